"""Render the blocks of a section for a terminal, with Rich.

On a terminal, tables adapt to its width. In a pipe or a file, each table row is one line of aligned text.
Control characters and escape sequences in names are replaced, so a file cannot control the terminal.
Figures that matter have a form in text. The others are left out: the tables contain the same numbers.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from inspector.answers import section
from inspector.answers.section import NUMBERS, cell_text, inline
from inspector.media.terminal import screen
from inspector.text.printable import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PIPE_WIDTH = 100_000  # so wide that no line is ever wrapped
# Blocks with an empty line around them.
_APART = (section.Section, section.Table, section.Facts, section.Preformatted, section.Folded)
_STYLES: dict[section.NoticeKind, str] = {
    "info": "",
    "unknown": "dim",
    "success": "green",
    "warning": "yellow",
    "error": "red",
}


def show(blocks: Iterable[section.Block], stream: TextIO | None = None) -> None:
    """Write the blocks to a stream, standard output by default."""
    stream = sys.stdout if stream is None else stream
    if not stream.isatty():
        stream.write(text(blocks))
        return
    console = _console(file=stream)
    for part in _renderables(blocks, console):
        console.print(part)


def show_on_screen(blocks: Iterable[section.Block]) -> None:
    """Write what fits on one screen to standard output."""
    width = _console().width if sys.stdout.isatty() else None
    show(screen.fitting(list(blocks), lambda shown: text(shown, width)))


def _console(**settings: Any) -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, force_jupyter=False, **settings)


def text(blocks: Iterable[section.Block], width: int | None = None) -> str:
    """Return the blocks as plain text; every line ends with a line end.

    width: that of a terminal. None for a pipe or a file, where no line is wrapped.
    """
    buffer = io.StringIO()
    console = _console(
        file=buffer, width=width or _PIPE_WIDTH, color_system=None, force_terminal=width is not None,
        legacy_windows=False,
    )  # fmt: skip
    for part in _renderables(blocks, console):
        console.print(part)
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _renderables(blocks: Iterable[section.Block], console: Console) -> list[RenderableType]:
    parts: list[RenderableType] = []
    apart = False
    for block in blocks:
        inside = _block(block, console)
        if not inside:
            continue
        before, apart = apart, isinstance(block, _APART)
        if parts and (before or apart):
            parts.append("")
        parts += inside
    return parts


def _block(block: section.Block, console: Console) -> list[RenderableType]:
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    match block:
        case section.Text(parts, quiet):
            return [_line(parts, "dim" if quiet else "")]
        case section.Notice(kind, parts):
            return [_line(parts, _STYLES[kind])]
        case section.Listing(items):
            return [_line(("- ", *item)) for item in items]
        case section.Facts(facts):
            grid = RichTable.grid(padding=(0, 2))
            for fact in facts:
                grid.add_row(_line((fact.label,), "dim"), _line((fact.value,)))
            return [grid]
        case section.Table():
            return [_table(block, console.is_terminal)]
        case section.Picture():
            return _renderables(block.in_text, console)
        case section.Drawing():
            return []
        case section.Columns(columns):
            return _renderables((block for column in columns for block in column), console)
        case section.Folded(heading, blocks) | section.Section(_, heading, blocks):
            inside = _renderables(blocks, console)
            return [_line((section.Strong(heading),)), *inside] if inside else []
        case section.Preformatted(text):
            return [
                RichText(printable(line.expandtabs()), no_wrap=True, overflow="ignore")
                for line in text.splitlines()
            ]


def _table(block: section.Table, terminal: bool) -> RenderableType:
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(
        box=box.SIMPLE_HEAD if terminal else None, pad_edge=False, padding=(0, 1, 0, 0 if terminal else 1),
        header_style="bold", show_header=any(column.heading for column in block.columns),
    )  # fmt: skip
    for column in block.columns:
        table.add_column(
            _line((column.heading,)),
            justify="right" if column.kind in NUMBERS else "left",
            no_wrap=not terminal,
            overflow="fold",
        )
    for row in block.rows:
        table.add_row(*map(_cell, row, block.columns))
    return table


def _line(parts: Sequence[section.Inline], style: str = "") -> RenderableType:
    from rich.text import Text as RichText

    line = RichText(style=style)
    for part in parts:
        match part:
            case section.Code(words):
                line.append(one_line(words), "cyan")
            case section.Strong(words):
                line.append(one_line(words), "bold")
            case section.Mark(words, kind):
                line.append(one_line(words), _STYLES[kind])
            case _:
                line.append(one_line(part))
    return line


def _cell(cell: section.Cell, column: section.Column) -> RenderableType:
    if cell is None or isinstance(cell, (int, float)):
        # A number and its unit stay on one line.
        words = cell_text(cell, column.kind).replace(" ", "\N{NO-BREAK SPACE}")
        return _line((words,), "dim" if cell is None else "")
    return _line(inline(cell))
