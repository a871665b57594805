"""Render the blocks of a section as GitHub-flavored Markdown.

Figures are left out: a comment cannot hold them, and the tables contain the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch

from inspector.media.markdown.text import code, folded, html_text, listing, plain, table
from inspector.media.printable import printable
from inspector.sections import section
from inspector.sections.section import NUMBERS, cell_text, inline, more_text

MAX_ROWS = 40  # of one table
_MAX_HEADING = 6


def render(blocks: Iterable[section.Block], level: int = 2) -> str:
    """Return the blocks as Markdown. `level` is the heading level of their sections."""
    return "\n".join(part for block in blocks if (part := _block(block, level)))


def parts_text(parts: Sequence[section.Inline]) -> str:
    """Return the parts of a sentence as Markdown on one line."""
    return "".join(_part(part) for part in parts)


@singledispatch
def _block(block: section.Block, level: int) -> str:
    raise TypeError(f"a section contains a {type(block).__name__}, which Markdown cannot render")


@_block.register(section.Text)
@_block.register(section.Notice)
def _(block: section.Text | section.Notice, level: int) -> str:
    return f"{parts_text(block.parts)}\n"


@_block.register
def _(block: section.Listing, level: int) -> str:
    return listing(parts_text(item) for item in block.items)


@_block.register
def _(block: section.Facts, level: int) -> str:
    return listing(f"{plain(fact.label)}: {plain(fact.value)}" for fact in block.facts)


@_block.register
def _(block: section.Table, level: int) -> str:
    rows = [
        [_cell(cell, column) for cell, column in zip(row, block.columns, strict=True)]
        for row in block.rows[:MAX_ROWS]
    ]
    numbers = [place for place, column in enumerate(block.columns) if column.kind in NUMBERS]
    text = table([plain(column.heading) for column in block.columns], rows, numbers)
    left_out = len(block.rows) - len(rows)
    return text + (f"\n{more_text(left_out, 'row')}\n" if left_out else "")


@_block.register
def _(block: section.Picture, level: int) -> str:
    return ""


@_block.register
def _(block: section.Columns, level: int) -> str:
    return "\n".join(part for column in block.columns if (part := render(column, level)))


@_block.register
def _(block: section.Folded, level: int) -> str:
    body = render(block.blocks, level)
    return folded(html_text(block.summary), body) if body else ""


@_block.register
def _(block: section.Preformatted, level: int) -> str:
    lines = [printable(line.expandtabs()) for line in block.text.splitlines()]
    # A fence is longer than any run of backticks in the text, so the text cannot end it.
    longest = max((len(run) for line in lines for run in _backticks(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join((fence + (block.language or ""), *lines, fence)) + "\n"


@_block.register
def _(block: section.Section, level: int) -> str:
    body = render(block.blocks, level + 1)
    if not body:
        return ""
    return f"{'#' * min(level, _MAX_HEADING)} {plain(block.heading)}\n\n{body}"


def _cell(cell: section.Cell, column: section.Column) -> str:
    if cell is None or isinstance(cell, (int, float)):
        return plain(cell_text(cell, column.kind))
    if column.kind == "code" and isinstance(cell, str):
        return code(cell)
    return parts_text(inline(cell))


def _part(part: section.Inline) -> str:
    match part:
        case section.Code(text):
            return code(text)
        case section.Strong(text) | section.Mark(text, _):
            return f"**{plain(text)}**" if text.strip() else ""
        case _:
            # `plain` strips its text, so the spaces around it are put back.
            before = " " if part[:1].isspace() else ""
            after = " " if part[-1:].isspace() and part.strip() else ""
            return f"{before}{plain(part)}{after}"


def _backticks(line: str) -> list[str]:
    return "".join(one if one == "`" else " " for one in line).split()
