"""Render the blocks of a section for a terminal, with Rich, and cut them to one screen.

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
from inspector.text.printable import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from inspector.answers.section import (
    Block,
    Cell,
    Columns,
    Folded,
    Inline,
    Listing,
    Notice,
    Picture,
    Section,
    Table,
    Text,
    more,
)

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
    show(fitting(list(blocks), lambda shown: text(shown, width)))


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


MOST_LINES, MOST_WORDS = 45, 400
_CELL, _SENTENCE = 40, 70  # most words

_Path = tuple[int, ...]  # the place of a block, and that of a block inside of it


def fitting(blocks: Sequence[Block], text: Callable[[Sequence[Block]], str]) -> list[Block]:
    """Return the blocks that fit on one screen. Lists end with the number of entries that are left out.

    Args:
      blocks: the most important first. The last one always stays.
      text: returns blocks as they are printed: wrapped on a terminal, and not in a pipe or a file.
    """
    *first, last = _flat(blocks)
    kept: dict[_Path, int] = {}
    while first:
        shown = [*_cut(first, kept), last]
        printed = text(shown)
        if len(printed.splitlines()) <= MOST_LINES and len(printed.split()) <= MOST_WORDS:
            return shown
        lists = [(len(text([block]).split()), path) for path, block in _lists(first, kept)]
        if lists:
            _, path = max(lists)
            kept[path] -= 1
        else:
            first.pop()
    return [last]


def _flat(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks with short sentences, pictures as text, and without those that open on request."""
    for block in blocks:
        match block:
            case Section(key, heading, inside):
                yield Section(key, heading, tuple(_flat(inside)))
            case Columns(columns):
                yield from _flat(part for column in columns for part in column)
            case Picture():
                yield from _flat(block.in_text)
            case Text(parts) | Notice(_, parts):
                yield replace(block, parts=_short(parts, _SENTENCE))
            case Listing(items):
                yield Listing(tuple(_short(item, _SENTENCE) for item in items))
            case Table(rows=rows):
                yield replace(block, rows=tuple(tuple(map(_short_cell, row)) for row in rows))
            case Folded():
                pass
            case _:
                yield block


def _short_cell(cell: Cell) -> Cell:
    return cell if cell is None or isinstance(cell, (int, float)) else _short(inline(cell), _CELL)


def _short(parts: Sequence[Inline], most: int) -> tuple[Inline, ...]:
    """Return the first words."""
    kept: list[Inline] = []
    for part in parts:
        words = (part if isinstance(part, str) else part.text).split(" ")
        if len(words) > most:
            ends = [place for place in range(most // 2, most) if words[place].endswith((".", ":", ";"))]
            short = " ".join(words[: ends[-1] + 1 if ends else most]) + " …"
            return (*kept, short if isinstance(part, str) else replace(part, text=short))
        most -= len(words)
        kept.append(part)
    return tuple(kept)


def _lists(
    blocks: Sequence[Block], kept: dict[_Path, int], path: _Path = ()
) -> Iterator[tuple[_Path, Block]]:
    """Yield the lists of which more than one entry is kept, as they are cut."""
    for place, block in enumerate(blocks):
        here = (*path, place)
        if isinstance(block, Section):
            yield from _lists(block.blocks, kept, here)
        elif isinstance(block, (Table, Listing)):
            entries = block.rows if isinstance(block, Table) else block.items
            if kept.setdefault(here, len(entries)) > 1:
                yield here, _first(block, kept[here])


def _cut(blocks: Sequence[Block], kept: Mapping[_Path, int], path: _Path = ()) -> Iterator[Block]:
    for place, block in enumerate(blocks):
        here = (*path, place)
        if isinstance(block, Section):
            yield replace(block, blocks=tuple(_cut(block.blocks, kept, here)))
        elif isinstance(block, Listing) and here in kept and _cut_above((*blocks, None)[place + 1]):
            yield replace(block, items=block.items[: kept[here]])
        elif isinstance(block, (Table, Listing)) and here in kept:
            yield _first(block, kept[here])
        elif (known := _cut_above(block)) and isinstance(before := blocks[place - 1], Listing):
            count = len(before.items)
            yield from more(known[0] + count - kept.get((*path, place - 1), count), known[1])
        else:
            yield block


def _cut_above(block: Block | None) -> tuple[int, str] | None:
    return block.cut if isinstance(block, section.Text) else None


def _first(block: Table | Listing, count: int) -> Table | Listing:
    """Return the first entries of a list, and the number of others."""
    if isinstance(block, Listing):
        more = len(block.items) - count
        return Listing((*block.items[:count], *([(f"{more} more",)] if more else ())))
    more = len(block.rows) - count
    last: tuple[Cell, ...] = (f"{more} more", *("" for _ in block.columns[1:]))
    return replace(block, rows=(*block.rows[:count], *([last] if more else ())))
