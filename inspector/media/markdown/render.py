"""Render the blocks of a section as GitHub-flavored Markdown.

A comment cannot hold figures. Those that matter have a form in text, and tables contain their numbers.
"""

import re
from collections.abc import Iterable, Sequence

from inspector.core.printable import printable
from inspector.media.markdown.text import code, folded, html_text, listing, plain, table
from inspector.sections import section
from inspector.sections.section import NUMBERS, cell_text, inline, more_text

MAX_ROWS = 40  # of one table
_MAX_HEADING = 6


def render(blocks: Iterable[section.Block], level: int = 2) -> str:
    """Return the blocks as Markdown. `level` is the heading level of their sections."""
    return "\n".join(part for block in blocks if (part := _block(block, level)))


def parts_text(parts: Sequence[section.Inline]) -> str:
    """Return the parts of a sentence as Markdown on one line."""
    return "".join(map(_part, parts))


def _block(block: section.Block, level: int) -> str:
    match block:
        case section.Text(parts) | section.Notice(_, parts):
            return f"{parts_text(parts)}\n"
        case section.Listing(items):
            return listing(map(parts_text, items))
        case section.Facts(facts):
            return listing(f"{plain(fact.label)}: {plain(fact.value)}" for fact in facts)
        case section.Table():
            return _table(block)
        case section.Picture():
            return render(block.in_text, level)
        case section.Drawing():
            return ""
        case section.Columns(columns):
            return render((block for column in columns for block in column), level)
        case section.Folded(summary, blocks):
            body = render(blocks, level)
            return folded(html_text(summary), body) if body else ""
        case section.Preformatted():
            return _preformatted(block)
        case section.Section(_, heading, blocks):
            body = render(blocks, level + 1)
            return f"{'#' * min(level, _MAX_HEADING)} {plain(heading)}\n\n{body}" if body else ""


def _table(block: section.Table) -> str:
    rows = [
        [_cell(cell, column) for cell, column in zip(row, block.columns, strict=True)]
        for row in block.rows[:MAX_ROWS]
    ]
    numbers = [place for place, column in enumerate(block.columns) if column.kind in NUMBERS]
    text = table([plain(column.heading) for column in block.columns], rows, numbers)
    left_out = len(block.rows) - len(rows)
    return text + (f"\n{more_text(left_out, 'row')}\n" if left_out else "")


def _preformatted(block: section.Preformatted) -> str:
    lines = [printable(line.expandtabs()) for line in block.text.splitlines()]
    # A fence is longer than any run of backticks in the text, so the text cannot end it.
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join((fence + (block.language or ""), *lines, fence)) + "\n"


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
