"""The report as Markdown for a pull request: the verdict and its numbers, then parts that open."""

from collections.abc import Mapping, Sequence

from inspector.core.formatting import counted
from inspector.core.snapshot import Snapshot
from inspector.machines.hardware import Chip
from inspector.media.markdown import render
from inspector.media.markdown.text import code, plain, quoted
from inspector.sections import report, subject

MAX_CHARACTERS = 60_000  # GitHub accepts comments of 65,536


def page(
    named: Sequence[tuple[str, Snapshot]],
    chip: Chip | None = None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """Return the whole report. The first Snapshot is the baseline of the others."""
    names = [code(name) for name, _ in named]
    against = " against ".join(filter(None, (names[0], ", ".join(names[1:]))))
    parts = [f"## {plain(subject.title(named, chip))}: {against}\n"]
    for name, note in (notes or {}).items():
        parts.append(f"{code(name)}:\n\n{quoted(note)}")
    for block in report.short(named, chip):
        parts.append(render.render([block], level=3))
    return fitting([part for part in parts if part])


def fitting(parts: Sequence[str]) -> str:
    """Return the parts that fit into a comment, and the number of parts that do not."""
    kept: list[str] = []
    length = left_out = 0
    for part in parts:
        if length + len(part) > MAX_CHARACTERS:
            left_out += 1
            continue
        kept.append(part)
        length += len(part)
    if left_out:
        kept.append(f"{counted(left_out, 'part')} did not fit here: see the HTML report.\n")
    return "\n".join(kept)
