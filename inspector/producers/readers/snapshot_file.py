"""Read a Snapshot file."""

from __future__ import annotations

from pathlib import Path

from inspector.core import snapshot, strict_json
from inspector.core.snapshot import Snapshot
from inspector.producers.readers import content
from inspector.producers.readers.content import Report, Sample, no_report


def recognizes(sample: Sample) -> bool:
    """Return whether a file is a Snapshot: JSON with its format, whatever the order of its keys."""
    return sample.json_format() == snapshot.FORMAT


def read(path: Path, what: str, step: int | None = None, report: Report = no_report) -> Snapshot:
    """Return the Snapshot in a file, or in the only file of a folder."""
    file = content.only_file(path, what)
    return snapshot.from_json(content.read_json(file, what, strict_json.MOST_VALUES), what)
