"""A report for a review: several named Snapshots, the first one the baseline, in one file.

`.html` opens offline with interactive figures, `.md` is for a pull request.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from inspector.checks import audit
from inspector.core import output
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import Snapshot
from inspector.machines.hardware import Chip

SUFFIXES = (".html", ".md")
MOST = 8  # columns that can be read side by side


def write(
    snapshots: Sequence[tuple[str, Snapshot]],
    path: str | os.PathLike[str],
    chip: Chip | None = None,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write the report whole or not at all.

    Args:
      snapshots: a name and what was found, one or several; the first is what the others are held against.
      path: ends in `.html` or `.md`.
      chip: what memory and time are modelled on.
      notes: what a person says of a Snapshot, by its name.

    Raises:
      InvalidInput: the suffix is another, there are no or too many Snapshots, two have one name, a note is of
        none of them, or the file cannot be written.
    """
    suffix = refuse_suffix(path)
    output.refuse_unwritable(path)
    output.write_text(content(snapshots, suffix, chip, notes), path)


def content(
    snapshots: Sequence[tuple[str, Snapshot]],
    suffix: str,
    chip: Chip | None = None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """The text of a report with this suffix, the audit's findings among those of the Snapshots.

    Raises:
      InvalidInput: as `write`.
    """
    _check(snapshots, notes or {})
    snapshots = [(name, audit.audited(found)) for name, found in snapshots]
    if suffix == ".html":
        from inspector.media.report import html_page

        return html_page.page(snapshots, chip, notes)
    if suffix == ".md":
        from inspector.media.report import markdown_page

        return markdown_page.page(snapshots, chip, notes)
    raise InvalidInput(f"a report's suffix is {shown(suffix)}, but must be {' or '.join(SUFFIXES)}")


def refuse_suffix(path: str | os.PathLike[str]) -> str:
    """The suffix of a report's file.

    Raises:
      InvalidInput: it is none that a report can have.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidInput(
            f"a report is written to {shown(str(path))}, but its name must end in {' or '.join(SUFFIXES)}"
        )
    return suffix


def _check(snapshots: Sequence[tuple[str, Snapshot]], notes: Mapping[str, str]) -> None:
    if not 1 <= len(snapshots) <= MOST:
        raise InvalidInput(
            f"a report is of {counted(len(snapshots), 'Snapshot')}, but must be of 1 to {MOST}"
        )
    names = [name for name, _ in snapshots]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(
            f"two Snapshots of the report have the name {shown(twice)}: names must differ"
        )
    for name in notes:
        if name not in names:
            raise InvalidInput(f"there is a note of {shown(name)}, but no Snapshot of this name")
