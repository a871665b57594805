"""A report for a review: one file about one or more named Snapshots, the first one the baseline.

`.html` opens offline with interactive figures. `.md` is for a pull request.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go

from inspector import audit, figures
from inspector.compare.board import aligned
from inspector.files import output
from inspector.machines.hardware import Chip
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted

SUFFIXES = (".html", ".md")
MAX_SNAPSHOTS = 8  # columns that can be read side by side


def write(
    snapshots: Sequence[tuple[str, Snapshot]],
    path: str | os.PathLike[str],
    chip: Chip | None = None,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write a report; if an error occurs, no file is left behind.

    Args:
      snapshots: names and Snapshots; the others are compared with the first.
      notes: notes of the author, by the names of Snapshots.

    Raises:
      InvalidInput: the suffix, the number of Snapshots, a name or a note is invalid, or the file cannot be
        written.
    """
    suffix = check_suffix(path)
    output.refuse_unwritable(path)
    output.write_text(content(snapshots, suffix, chip, notes), path)


def content(
    snapshots: Sequence[tuple[str, Snapshot]],
    suffix: str,
    chip: Chip | None = None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """Return the text of a report in the format of `suffix`. The audit adds its findings.

    Raises:
      InvalidInput: as `write`.
    """
    _check(snapshots, notes or {})
    audited = aligned([audit.audited(snapshot) for _, snapshot in snapshots])
    named = [(name, snapshot) for (name, _), snapshot in zip(snapshots, audited, strict=True)]
    if suffix == ".html":
        from inspector.media.html import page
    elif suffix == ".md":
        from inspector.media.markdown import page
    else:
        raise InvalidInput(f"the suffix is {shown(suffix)}, but must be {' or '.join(SUFFIXES)}")
    return page(named, chip, notes)


def picture(snapshots: Sequence[tuple[str, Snapshot]], chip: Chip | None, width_px: int) -> go.Figure:
    """Return the layouts at a glance, with their verdict and their provenance."""
    from inspector.answers import glance, subject
    from inspector.compare.compared import compared
    from inspector.compare.verdict import headline

    figure = glance.figure(glance.of(snapshots, chip), width_px)
    verdict = [headline(compared(snapshots, chip)).replace("`", "")] if len(snapshots) > 1 else []
    return figures.stamp.stamped_with(figure, [*verdict, *subject.source_lines(snapshots)])


def check_suffix(path: str | os.PathLike[str], allowed: Sequence[str] = SUFFIXES) -> str:
    """Return the suffix of a file.

    Raises:
      InvalidInput: the suffix is not an allowed one.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in allowed:
        raise InvalidInput(f"--output is {shown(str(path))}, but must end in {', '.join(allowed)}")
    return suffix


def _check(snapshots: Sequence[tuple[str, Snapshot]], notes: Mapping[str, str]) -> None:
    if not 1 <= len(snapshots) <= MAX_SNAPSHOTS:
        raise InvalidInput(
            f"the report has {counted(len(snapshots), 'Snapshot')}, but must have 1 to {MAX_SNAPSHOTS}"
        )
    names = [name for name, _ in snapshots]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InvalidInput(f"two Snapshots have the name {shown(repeated)}, but names must differ")
    for name in notes:
        if name not in names:
            raise InvalidInput(f"a note is for {shown(name)}, but must be for one of the Snapshots")
