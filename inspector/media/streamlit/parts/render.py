"""Render the blocks of a section in the dashboard."""

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlencode

import plotly.graph_objects as go
import streamlit as st

from inspector.answers import section
from inspector.answers.section import NUMBERS, cell_text, inline
from inspector.figures import stamp
from inspector.figures.whole_model.machine import Svg
from inspector.media.streamlit.page import page_files, page_switch, page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import chart, table
from inspector.media.streamlit.session import chip_choice
from inspector.media.streamlit.streamlit_internals import DeltaGenerator
from inspector.sharding.once import NewestResults
from inspector.text.formatting import bytes_text, seconds_text
from inspector.text.printable import printable

_svg_figures = NewestResults[go.Figure](most=16)


def draw_svg(
    svg: Svg, key: str, *, alt: str, on_pick: Callable[[dict[str, Any]], None] | None = None
) -> None:
    """Draw it.

    Args:
      alt: its subject, which names the files it is saved as.
      on_pick: called with the `path`, `collective` or `position` of the part that was clicked.
    """

    def picked() -> None:
        if on_pick is not None and isinstance(value := st.session_state[key].get("pick"), dict):
            on_pick(value)

    _svg_component()(data={"svg": svg.text}, key=key, on_pick_change=picked)
    chart.keep(key, _svg_figures.of(None, (svg,), lambda: stamp.figure_of(svg)), alt)


@functools.cache
def _svg_component() -> Callable[..., Any]:
    return st.components.v2.component(
        "drawing",
        html='<div class="drawing"></div>',
        css=page_files.text("drawing.css"),
        js=page_files.text("drawing.js"),
        isolate_styles=False,
    )


# So that no label of a fact is cut: the width of a character, and of the button that explains the fact.
_LABEL_CHARACTER_PX, _FACT_HELP_PX = 7, 30
_MOST_KEPT = 64  # of all sessions
_blocks = NewestResults[tuple[section.Block, ...]](_MOST_KEPT)
_figures = NewestResults[Any](_MOST_KEPT)
# `Step, predicted, 122–169 ms`; on a narrow page, two of them are next to each other, and wrapped.
_LEAST_LONG_FACT_PX, _LEAST_WRAPPED_FACT_PX = 200, 150
Color = Literal["blue", "gray", "green", "orange", "red"]
COLORS: dict[section.NoticeKind, Color] = {
    "info": "blue",
    "unknown": "gray",
    "success": "green",
    "warning": "orange",
    "error": "red",
}
ICONS: dict[section.NoticeKind, str] = {
    "info": ":material/info:",
    "unknown": ":material/help:",
    "success": ":material/check:",
    "warning": ":material/warning:",
    "error": ":material/error:",
}

_DELTA_COLORS: dict[bool | None, Any] = {True: "normal", False: "inverse", None: "off"}

# Cells of a table whose numbers have texts. Pandas makes a table with texts in 10 µs for each cell.
_MOST_STYLED = 5_000
# The texts of numbers in a column, which is still sorted by the numbers.
_TEXTS: dict[section.CellKind, Callable[[Any], str]] = {
    "bytes": bytes_text,
    "seconds": seconds_text,
}


@dataclass(frozen=True)
class _Page:
    """The width that figures may have, and the handlers of selections."""

    width_px: int
    picks: Mapping[str, Callable[[Any], None]]


def show(
    blocks: Iterable[section.Block],
    picks: Mapping[str, Callable[[Any], None]] | None = None,
    width_px: int | None = None,
) -> None:
    """Draw the blocks below each other. Figures are sent first, because they take longest to draw.

    Their places are sent before they are built, and all figures together: the browser lays out the places
    meanwhile, and draws at once what arrives together. It is busy for about 50 ms with a figure alone.

    Args:
      picks: by the key of a table or figure, what to call when the user selects in it. A table passes the
        number of the row, a figure the custom data of the point; both pass None if the selection is empty.
        By the label of a fact, what to call when the user clicks on it.
      width_px: the width that figures may have; by default that of the page.
    """
    page = _Page(int(width_px or page_width.content_px()), picks or {})
    every = list(blocks)
    if not any(map(_has_figure, every)):
        for block in every:
            _draw(block, page)
        return
    places = [place for block in every for place in _places(block, page)]
    figures = [
        (container, block, _built(block, inside.width_px))
        for container, block, inside in places
        if isinstance(block, section.Picture)
    ]
    for container, block, figure in figures:
        if figure is not None:
            with container:
                chart.draw(figure, block.key, alt=block.alt, on_pick=page.picks.get(block.key))
    chart.end_of_figures()
    for container, block, inside in places:
        if not isinstance(block, section.Picture):
            with container:
                _draw(block, inside)


def kept(
    key: Hashable, parts: tuple[object, ...], make: Callable[[], Iterable[section.Block]]
) -> tuple[section.Block, ...]:
    """Return the blocks that `make` returns, made once for a key and the same `parts`.

    Their figures are then built once, too, and not whenever the page is drawn.
    """
    return _blocks.of(key, parts, lambda: tuple(make()))


def _built(block: section.Picture | section.Drawing, width_px: int) -> Any:
    return _figures.of(width_px, (block,), lambda: block.build(width_px))


def markdown(parts: Sequence[section.Inline]) -> str:
    """Return the parts of a sentence as Streamlit's Markdown, with every name escaped."""
    return "".join(_part(part) for part in parts)


def _label(fact: section.Fact) -> str:
    """Return the label of a fact. Its interval leads to its runs, and has the help on hover."""
    if fact.runs_of is None:
        return plain(fact.label)
    name, _, interval = fact.label.rpartition(", ")
    address = f"{page_switch.ACCURACY}?{urlencode({chip_choice.KEY: fact.runs_of})}"
    said = f' "{plain(fact.help).replace(chr(34), "")}"' if fact.help else ""
    return f"{plain(name)}, [{plain(interval)}]({address}{said})"


def _places(block: section.Block, page: _Page) -> Iterator[tuple[DeltaGenerator, section.Block, _Page]]:
    """Yield an empty container for the block, or for each block in its columns if they have figures."""
    if not isinstance(block, section.Columns) or not _has_figure(block):
        yield st.container(), block, page
        return
    columns, inside = _columns(block, page)
    for place, column in zip(columns, block.columns, strict=True):
        with place:
            for inner in column:
                yield from _places(inner, inside)


def _has_figure(block: section.Block) -> bool:
    """Return whether the block is a figure, or a row of columns with a figure."""
    match block:
        case section.Picture():
            return True
        case section.Columns(columns):
            return any(_has_figure(inside) for column in columns for inside in column)
        case _:
            return False


def _draw(block: section.Block, page: _Page) -> None:
    match block:
        case section.Drawing():
            draw_svg(
                _built(block, page.width_px), block.key, alt=block.alt, on_pick=page.picks.get(block.key)
            )
        case section.Text(parts, quiet):
            (st.caption if quiet else st.markdown)(markdown(parts))
        case section.Notice(kind, parts):
            boxes = {"success": st.success, "warning": st.warning, "error": st.error}
            boxes.get(kind, st.info)(markdown(parts), icon=ICONS[kind])
        case section.Listing(items):
            st.markdown("\n".join(f"- {markdown(item)}" for item in items))
        case section.Facts(facts, long):
            labels = [
                _LABEL_CHARACTER_PX * len(fact.label) + (_FACT_HELP_PX if fact.help else 0) for fact in facts
            ]
            least = max(labels, default=_LEAST_LONG_FACT_PX)
            if long:
                least, whole = _LEAST_LONG_FACT_PX, page_width.content_px()
                if whole < len(facts) * (least + page_width.GAP_PX):  # half of them in a row
                    least = max(whole // 2 - page_width.GAP_PX, _LEAST_WRAPPED_FACT_PX)
            row = st.grid(len(facts), min_column_width=least)
            for fact in facts:
                value, on_click = plain(fact.value), page.picks.get(fact.label)
                tile = row if on_click is None else row.container(key=f"tile_{fact.label}")
                tile.metric(
                    _label(fact),
                    f":gray[{value}]" if fact.computing else value,
                    fact.change and plain(fact.change),
                    # The color is that of the sign, which the text of a change does not have.
                    _DELTA_COLORS[fact.better],
                    help=None if fact.runs_of else fact.help and plain(fact.help),
                    delta_arrow="off",
                )
                if on_click is not None:  # the button is as large as the tile
                    tile.button(
                        f"Open {fact.label}", key=f"open_{fact.label}", on_click=on_click, args=(None,)
                    )
        case section.Table():
            _draw_table(block, page)
        case section.Columns():
            columns, inside = _columns(block, page)
            for place, column in zip(columns, block.columns, strict=True):
                with place:
                    show(column, inside.picks, inside.width_px)
        case section.Folded(summary, blocks):
            with st.expander(plain(summary)):
                show(blocks, page.picks, page.width_px)
        case section.Preformatted(text, language):
            lines = (printable(line.expandtabs()) for line in text.splitlines())
            st.code("\n".join(lines), language=language, wrap_lines=False)
        case section.Section(_, heading, blocks):
            st.markdown(f"##### {plain(heading)}")
            show(blocks, page.picks, page.width_px)


def _draw_table(block: section.Table, page: _Page) -> None:
    if block.wrap:
        st.markdown(_markdown_table(block))
        return
    columns = {
        column.heading: _values([row[place] for row in block.rows], column)
        for place, column in enumerate(block.columns)
    }
    texts = {}
    if len(block.rows) * len(block.columns) <= _MOST_STYLED:
        texts = {col.heading: _TEXTS[col.kind] for col in block.columns if col.kind in _TEXTS}
    config = {
        column.heading: _config(column, columns[column.heading], column.heading in texts)
        for column in block.columns
    }
    pick = page.picks.get(block.key)
    choice = {"on_select": "rerun", "selection_mode": "single-row"} if pick else {}
    drawn = table.show(columns, block.key, texts, page.width_px, column_config=config, **choice)
    if pick is None:
        return
    rows = [row for row in drawn.selection.rows if row < len(block.rows)]
    pick(rows[0] if rows else None)


def _columns(
    block: section.Columns, page: _Page
) -> tuple[Sequence[contextlib.AbstractContextManager[Any]], _Page]:
    """Draw empty columns, below each other on a narrow page. Return them, and the page with their width."""
    count = len(block.columns)
    if count < 2 or page.width_px < page_width.NARROW_PX:
        return [contextlib.nullcontext() for _ in block.columns], page
    width_px = (page.width_px - (count - 1) * page_width.GAP_PX) // count
    return st.columns(count, gap="medium"), replace(page, width_px=width_px)


def _values(cells: Sequence[section.Cell], column: section.Column) -> list[Any]:
    """Return numbers, which sort, if all are known; otherwise text, which can say `unknown`."""
    numbers = [cell for cell in cells if isinstance(cell, (int, float))]
    if column.kind in NUMBERS and len(numbers) == len(cells):
        return list(numbers)
    return [cell_text(cell, column.kind) for cell in cells]


def _config(column: section.Column, values: Sequence[Any], has_texts: bool) -> Any:
    """Return the form of a column with these values. A format would replace the texts of its numbers."""
    if any(isinstance(value, str) for value in values) or column.kind not in NUMBERS:
        right: Literal["right"] | None = "right" if column.kind in NUMBERS else None
        return st.column_config.TextColumn(help=column.help, alignment=right)
    form = None if has_texts else "%.3g s" if column.kind == "seconds" else "localized"
    return st.column_config.NumberColumn(help=column.help, format=form)


def _markdown_table(block: section.Table) -> str:
    lines = [
        [plain(column.heading) for column in block.columns],
        ["---:" if column.kind in NUMBERS else "---" for column in block.columns],
    ]
    for row in block.rows:
        cells = zip(row, block.columns, strict=True)
        lines.append([_markdown_cell(cell, column) for cell, column in cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_cell(cell: section.Cell, column: section.Column) -> str:
    if cell is None or isinstance(cell, (int, float)):
        text = plain(cell_text(cell, column.kind))
        # A number and its unit stay on one line.
        return text.replace(" ", "\N{NO-BREAK SPACE}") if column.kind in NUMBERS else text
    return markdown(inline(cell))


def _part(part: section.Inline) -> str:
    match part:
        case section.Code(text):
            # section.Text that would end the code it is in is written without code formatting.
            return (
                plain(text) if set(text) & {"`", "|"} or not text.isprintable() or not text else f"`{text}`"
            )
        case section.Strong(text):
            return f"**{plain(text)}**" if text.strip() else ""
        case section.Mark(text, kind):
            return f":{COLORS[kind]}[**{plain(text)}**]" if text.strip() else ""
        case _:
            return plain(part)
