"""The blocks of which a section is made.

A section contains one fact, ready to render. A function of this package computes the fact from a Snapshot.
`inspector.media` contains one renderer per medium: Streamlit, HTML, Markdown and terminal. Each renderer
draws every type of block, so a new section needs no new renderer.

All strings are plain text. Names that come from files are never markup; each renderer escapes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar, cast, get_args

import plotly.graph_objects as go

from inspector import figures
from inspector.text.formatting import bytes_text, seconds_text

Record = TypeVar("Record")
_CODE = re.compile(r"`([^`]+)`")
NoticeKind = Literal["info", "unknown", "success", "warning", "error"]
CellKind = Literal["text", "code", "count", "bytes", "seconds"]
NUMBERS: frozenset[CellKind] = frozenset({"count", "bytes", "seconds"})


@dataclass(frozen=True)
class Code:
    """A name or an expression inside a sentence, such as an array path or a PartitionSpec."""

    text: str


@dataclass(frozen=True)
class Strong:
    """The figure or the name that a sentence is about."""

    text: str


@dataclass(frozen=True)
class Mark:
    """A short verdict in a color that supports the word, such as `✓ −25% better`."""

    text: str
    kind: NoticeKind


Inline: TypeAlias = str | Code | Strong | Mark

# One cell. A number is formatted by the kind of its column; None is shown as "unknown".
Cell: TypeAlias = str | int | float | Code | Strong | Mark | tuple[Inline, ...] | None


@dataclass(frozen=True)
class Text:
    """One paragraph. `quiet` marks an explanation that a reader can skip.

    cut: the number of entries that the list above lacks, and their noun, so that a medium can cut more of it.
    """

    parts: tuple[Inline, ...]
    quiet: bool = False
    cut: tuple[int, str] | None = None


@dataclass(frozen=True)
class Notice:
    """A highlighted message: a result, a warning, or the reason why something is unknown."""

    kind: NoticeKind
    parts: tuple[Inline, ...]


@dataclass(frozen=True)
class Listing:
    """A list with one entry per item."""

    items: tuple[tuple[Inline, ...], ...]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
      heading: the column's heading, a noun phrase.
      kind: how its cells are formatted and aligned; numbers stay numbers if a medium can sort them.
      help: one sentence that explains the column, shown as a tooltip or below the table.
    """

    heading: str
    kind: CellKind = "text"
    help: str | None = None


@dataclass(frozen=True)
class Table:
    """Rows of cells.

    Attributes:
      key: identifies the table within its page and must be unique there.
      wrap: whether long cells wrap and keep their emphasis. Such a table cannot be sorted in the dashboard.
    """

    key: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    wrap: bool = False

    @classmethod
    def of(
        cls,
        key: str,
        records: Iterable[Record],
        cells: Mapping[str | Column, Callable[[Record], Cell]],
        wrap: bool = False,
    ) -> Table:
        """Return a table with one row per record. `cells` has the columns as for `columns`."""
        rows = tuple(tuple(cell(record) for cell in cells.values()) for record in records)
        return cls(key, columns(*cells), rows, wrap)


@dataclass(frozen=True)
class Fact:
    """A labelled value, such as `Devices` and `8`.

    Attributes:
      help: explains the label in one sentence.
      change: the value before and now, such as `24.0 → 48.0 MiB`. None if there is no other value.
      better: whether the change is one to the better. None if it is neither.
      runs_of: the name of the chip whose runs give the interval at the end of the label, after the last
        comma. None without one.
      computing: whether the value is of an earlier layout, or none yet, while a page computes it.
    """

    label: str
    value: str
    help: str | None = None
    change: str | None = None
    better: bool | None = None
    runs_of: str | None = None
    computing: bool = False


# A label and its value, and its help, if any.
LabelAndValue: TypeAlias = tuple[str, str] | tuple[str, str, str | None]


@dataclass(frozen=True)
class Facts:
    """Labelled values next to each other.

    long: whether their labels are sentences, so that a narrow page has fewer of them in a row.
    """

    facts: tuple[Fact, ...]
    long: bool = False

    @classmethod
    def of(cls, *facts: LabelAndValue) -> Facts:
        """Return facts made of these labels and values."""
        return cls(tuple(Fact(*fact) for fact in facts))


@dataclass(frozen=True)
class Picture:
    """One figure, built only when a medium draws it.

    Attributes:
      key: identifies the figure within its page, and names the file it is saved as.
      alt: the subject of the figure in words; screen readers also get the main statement of the figure.
      build: returns the figure for a width in pixels, or None if there is nothing to draw.
      stamp: lines that a saved picture needs because the figure does not contain them.
      in_text: what Markdown and the terminal show instead. They leave out a figure without it.
    """

    key: str
    alt: str
    build: Callable[[int], go.Figure | None] = field(compare=False)
    stamp: tuple[str, ...] = ()
    in_text: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Drawing:
    """One drawing as SVG, whose texts are texts of the page. Markdown and the terminal leave it out.

    Attributes:
      key: identifies it within its page, and names the file it is saved as.
      alt: the subject in words.
      build: returns the drawing for a width in pixels.
    """

    key: str
    alt: str
    build: Callable[[int], figures.whole_model.machine.Svg] = field(compare=False)


@dataclass(frozen=True)
class Columns:
    """Blocks next to each other; a narrow medium puts them below each other."""

    columns: tuple[tuple[Block, ...], ...]


@dataclass(frozen=True)
class Folded:
    """Details that are hidden until the reader opens them, in a medium that can hide them."""

    summary: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Preformatted:
    """Text whose line ends and spaces matter. `language` names its syntax, such as `python`."""

    text: str
    language: str | None = None


Block: TypeAlias = (
    "Text | Notice | Listing | Table | Facts | Picture | Drawing | Columns | Folded | Preformatted | Section"
)


@dataclass(frozen=True)
class Section:
    """One fact: a heading, and the blocks that show it. A section may contain sections."""

    key: str
    heading: str
    blocks: tuple[Block, ...]


def text(*parts: Inline, quiet: bool = False) -> Text:
    """Return a paragraph made of these parts."""
    return Text(parts, quiet)


def notice(kind: NoticeKind, *parts: Inline) -> Notice:
    """Return a notice made of these parts."""
    return Notice(kind, parts)


def unknown(*parts: Inline) -> Notice:
    """Return a notice about something unknown, with the reason."""
    return Notice("unknown", parts)


def plain(parts: Sequence[Inline]) -> str:
    """Return the parts as plain text, without emphasis."""
    return "".join(part if isinstance(part, str) else part.text for part in parts)


def columns(*headings: str | Column) -> tuple[Column, ...]:
    """Return columns from headings. `Bytes:bytes` is the heading `Bytes` and the kind `bytes`."""
    return tuple(heading if isinstance(heading, Column) else Column(*_split(heading)) for heading in headings)


def cell_text(cell: Cell, kind: CellKind) -> str:
    """Return a cell as plain text.

    Args:
      cell: the value; None gives "unknown".
      kind: the kind of its column. Bytes are integers, seconds are floats.
    """
    if cell is None:
        return "unknown"
    if not isinstance(cell, (int, float)):
        return plain(inline(cell))
    match kind:
        case "bytes":
            return bytes_text(int(cell))
        case "seconds":
            return seconds_text(cell)
        case _:
            return f"{cell:,}"


def _split(heading: str) -> tuple[str, CellKind]:
    text, _, kind = heading.rpartition(":")
    if kind in get_args(CellKind):
        return text, cast(CellKind, kind)
    return heading, "text"  # a name can have a colon


def inline(cell: str | Code | Strong | Mark | tuple[Inline, ...]) -> tuple[Inline, ...]:
    """Return the parts of a cell that is not a number."""
    return cell if isinstance(cell, tuple) else (cell,)


def with_code(sentence: str) -> tuple[Inline, ...]:
    """Return the parts of a sentence that has names between backticks."""
    parts = _CODE.split(sentence)
    return tuple(Code(part) if place % 2 else part for place, part in enumerate(parts) if part)


def listing(*items: str) -> Listing:
    """Return a list of plain sentences."""
    return Listing(tuple((item,) for item in items))


def more(count: int, noun: str) -> tuple[Text, ...]:
    """Return that a list was cut, as a block below it; nothing if it was not."""
    return (Text((more_text(count, noun),), True, (count, noun)),) if count > 0 else ()


def more_text(count: int, noun: str) -> str:
    """Return the line below a list that was cut: `3 more findings are not shown.`"""
    return f"{count:,} more {noun} is not shown." if count == 1 else f"{count:,} more {noun}s are not shown."
