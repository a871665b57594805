"""A table on a page, made of columns of plain values."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import selection
from inspector.text.formatting import numbered
from inspector.text.printable import one_line

SELECT_A_ROW = "Select a row (Shift+Space)"
_ENTRIES_PX = 320  # more than eight rows scroll
# A first column that is wider leaves no room for the bytes on a page 800 pixels wide.
_MOST_NAME_PX, _LEAST_NAME_PX = 260, 130
_MOST_TEXT_PX = 420  # of any other column; the rest of a longer text is cut
_CHARACTER_PX, _CELL_PX = 7, 20
_SELECTION_PX, _BORDER_PX = 40, 2


def show(
    columns: Mapping[str, Sequence[Any]],
    key: str,
    texts: Mapping[str, Callable[[Any], str]] | None = None,
    width_px: float | None = None,
    **settings: Any,
) -> Any:
    """Draw the table and return what `st.dataframe` returns. The first column stays visible if it has texts.

    Args:
      texts: the text of a number, by column. The column is still sorted by its numbers. Columns of strings
        are drawn as they are.
      width_px: the width of its place; None if it is unknown.
    """
    column_config = dict(settings.pop("column_config", {}))
    taken = _BORDER_PX + (_SELECTION_PX if "selection_mode" in settings else 0)
    widths = fitted(columns, texts or {}, None if width_px is None else int(width_px) - taken)
    for name, width in widths.items():
        form: Any = column_config.get(name, st.column_config.Column())
        column_config[name] = {**form, "width": width}
    first, cells = next(iter(columns.items()))
    if first in column_config and cells and all(isinstance(cell, str) for cell in cells):
        column_config[first] = {**column_config[first], "pinned": True}
    headings = dict(zip(columns, numbered(map(one_line, columns)), strict=True))
    printed = {
        headings[heading]: [one_line(cell) if isinstance(cell, str) else cell for cell in cells]
        for heading, cells in columns.items()
    }
    frame = pd.DataFrame(printed)
    numbers = {
        headings[heading]: text
        for heading, text in (texts or {}).items()
        if not any(isinstance(cell, str) for cell in columns[heading])
    }
    return st.dataframe(
        frame.style.format(numbers) if numbers and len(frame) else frame,
        hide_index=True,
        key=key,
        column_config={headings[name]: form for name, form in column_config.items()},
        **settings,
    )


def fitted(
    columns: Mapping[str, Sequence[Any]], texts: Mapping[str, Callable[[Any], str]], width_px: int | None
) -> dict[str, int]:
    """Return the widths of columns in pixels. Streamlit chooses those that are missing.

    If not all columns fit, those that do fill the width, so that none of them is cut. The others follow when
    the table is scrolled. The first column gives room to the second one.
    """

    def needed(name: str, cells: Sequence[Any]) -> int:
        text = texts.get(name, str)
        longest = max((len(cell if isinstance(cell, str) else text(cell)) for cell in cells), default=0)
        return min(_CELL_PX + _CHARACTER_PX * max(len(name), longest), _MOST_TEXT_PX)

    widths = {name: needed(name, cells) for name, cells in columns.items()}
    first, *others = widths
    widths[first] = min(widths[first], _MOST_NAME_PX)
    if width_px is None or sum(widths.values()) <= width_px:
        return {first: widths[first]} if columns[first] and isinstance(columns[first][0], str) else {}
    if others:
        widths[first] = min(widths[first], max(width_px - widths[others[0]], _LEAST_NAME_PX))
    ends = list(itertools.accumulate(widths.values()))
    whole = [*widths][: max(1, sum(end <= width_px for end in ends))]
    spare = width_px - ends[len(whole) - 1]
    for left, name in zip(range(len(whole), 0, -1), whole, strict=True):
        widths[name] += spare // left
        spare -= spare // left
    return widths


def show_entries(
    columns: Mapping[str, Sequence[Any]],
    key: str,
    names: Sequence[str],
    chosen: str,
    **settings: Any,
) -> None:
    """Draw a table of entries, of which the user selects one.

    Args:
      names: of the entry of each row.
      chosen: the key of the selected name in the session.
    """

    def pick() -> None:
        rows = st.session_state[key].selection.rows
        if rows and rows[0] < len(names):
            st.session_state[chosen] = names[rows[0]]

    height = _ENTRIES_PX if len(names) > 8 else "auto"
    show(columns, key, on_select=pick, selection_mode="single-row", height=height, **settings)


def picker(hint: str, draw: Callable[[int], None]) -> Callable[[int | None], None]:
    """Return what to call with the selected row: it draws the row, or the hint while there is none."""

    def pick(row: int | None) -> None:
        if row is None:
            st.caption(hint)
        else:
            draw(row)

    return pick


def array_picker(paths: Sequence[str], key: str, hint: str) -> Callable[[int | None], None]:
    """Return what to call with the selected row: it selects the array of the shard map.

    Args:
      paths: the array of each row.
      key: the key of the selected path in the session; a later choice elsewhere stays.
      hint: the start of the caption while no row is selected.
    """

    def select(row: int) -> None:
        if paths[row] != st.session_state.get(key):
            st.session_state[key] = paths[row]
            selection.select(paths[row])
            st.rerun()  # the map is above the table
        st.caption(f"The shard map shows {plain(paths[row])}.")

    return picker(f"{hint} {SELECT_A_ROW} to see its shard map.", select)
