"""Cut blocks to one screen: the longest list loses its last entry until the rest fits."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    inline,
)

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
        elif isinstance(block, (Table, Listing)) and here in kept:
            yield _first(block, kept[here])
        else:
            yield block


def _first(block: Table | Listing, count: int) -> Table | Listing:
    """Return the first entries of a list, and the number of others."""
    if isinstance(block, Listing):
        more = len(block.items) - count
        return Listing((*block.items[:count], *([(f"{more} more",)] if more else ())))
    more = len(block.rows) - count
    last: tuple[Cell, ...] = (f"{more} more", *("" for _ in block.columns[1:]))
    return replace(block, rows=(*block.rows[:count], *([last] if more else ())))
