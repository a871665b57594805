"""Read a Snapshot file, or the Snapshot of a folder that `run` wrote."""

from __future__ import annotations

from pathlib import Path

from inspector.core import program_run, snapshot, strict_json
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.producers.readers import content
from inspector.producers.readers.content import Report, Sample, no_report


def recognizes(sample: Sample) -> bool:
    """Return whether it is JSON with the format of a Snapshot, in any order of keys, or a folder of `run`."""
    return sample.json_format() == snapshot.FORMAT or program_run.FILE in (sample.names or ())


def read(path: Path, what: str, step: int | None = None, report: Report = no_report) -> Snapshot:
    """Return the Snapshot in a file, in the only file of a folder, or in a folder of `run`."""
    file = _of_run(path, what) or content.only_file(path, what)
    return snapshot.from_json(content.read_json(file, what, strict_json.MOST_VALUES), what)


def _of_run(path: Path, what: str) -> Path | None:
    """Return the Snapshot beside the record of a run in a folder; None without a record."""
    files = content.files_below(path, what) if path.is_dir() else []
    records = [file for file in files if file.name == program_run.FILE]
    if not records:
        return None
    if len(records) > 1:
        raise InvalidInput(f"{what} contains {len(records)} folders of `run`, but must contain one")
    file = records[0].with_name(program_run.SNAPSHOT)
    if file not in files:
        raise InvalidInput(f"{what} is a folder of `run` without {file.name}, which is written at the end")
    return file
