"""The History page: what was run, compiled, searched and compared, to reopen or delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

import streamlit as st

from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.media.streamlit.page import page_switch
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.pages import search_page
from inspector.media.streamlit.parts import table
from inspector.media.streamlit.session import finished_runs, pins, user
from inspector.media.streamlit.session.uninterrupted import uninterrupted
from inspector.sections import history as section
from inspector.service.history import DAMAGED, HistoryEntry, beyond_size, older_than

_CHOSEN, _PROBLEM, _LEAVE_TO = "history_chosen", "history_problem", "history_leave_to"
_OPEN = {"compare": "Open comparison", "search": "Open search"}  # other entries open a layout
_TABLE_PX = 320  # at most; more rows scroll
_MEBIBYTE = 2**20


def show() -> None:
    """Draw the table, the selected entry, and the deletion by age or size."""
    page = st.session_state.pop(_LEAVE_TO, None)
    if page is not None:
        page_switch.to(page)
    st.markdown("### History")
    if problem := st.session_state.pop(_PROBLEM, None):
        st.error(plain(problem), icon=":material/error:")
    try:
        entries = user.history().entries()
    except InvalidInput as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    if not entries:
        st.info(
            "The history is empty. Runs, compiles, searches and comparisons are added when they are done.",
            icon=":material/history:",
        )
        return
    st.caption(f"{section.size_text(entries)}. The figures are those of one step on one device.")
    _show_table(entries)
    chosen = next((one for one in entries if one.id == st.session_state.get(_CHOSEN)), entries[0])
    _show_chosen(chosen)
    _show_deletion(entries)


def _show_table(entries: Sequence[HistoryEntry]) -> None:
    listed = section.table(entries)
    ids = [one.id for one in entries]

    def pick() -> None:
        rows = st.session_state["history_table"].selection.rows
        if rows and rows[0] < len(ids):
            st.session_state[_CHOSEN] = ids[rows[0]]

    table.show(
        {
            column.heading: [row[place] for row in listed.rows]
            for place, column in enumerate(listed.columns)
        },
        "history_table",
        on_select=pick,
        selection_mode="single-row",
        height=_TABLE_PX if len(entries) > 8 else "auto",
    )


def _show_chosen(entry: HistoryEntry) -> None:
    with st.container(border=True):
        st.markdown(f"#### {section.KINDS.get(entry.kind, entry.kind)}: {plain(entry.title)}")
        when = datetime.fromisoformat(entry.time)
        st.caption(
            f"{when:%Y-%m-%d %H:%M} UTC" + (f" · {plain(entry.owner)}" if entry.owner else "")
        )
        if entry.kind == DAMAGED:
            st.error("This entry cannot be read: delete it.", icon=":material/error:")
        with st.container(horizontal=True, gap="small"):
            st.button(
                _OPEN.get(entry.kind, "Open layout"),
                key="history_open",
                icon=":material/open_in_full:",
                type="primary",
                on_click=_open,
                args=(entry,),
                disabled=entry.kind == DAMAGED,
            )
            if entry.owner is not None and entry.changeable:
                if entry.shared:
                    _draw_action("Make private", "history_share", "lock", partial(_share, entry))
                else:
                    _draw_action("Share", "history_share", "group", partial(_share, entry))
            if entry.changeable:
                _draw_action("Delete entry", "history_delete", "delete", partial(_delete, (entry,)))
        with st.expander("Parameters", key="history_parameters"):
            st.json(entry.parameters)


def _draw_action(label: str, key: str, icon: str, act: Callable[[], None]) -> None:
    st.button(label, key=key, type="tertiary", icon=f":material/{icon}:", on_click=act)


def _show_deletion(entries: Sequence[HistoryEntry]) -> None:
    with st.expander("Delete old entries", icon=":material/delete_sweep:", key="history_deletion"):
        left, right = st.columns(2)
        with left:
            days = st.number_input(
                "Older than (days)", 0, 36_500, 30, key="history_days", persist_state="page"
            )
            _draw_delete(older_than(entries, days), "age")
        with right:
            size = st.number_input(
                "Keep at most (MiB)", 0, 1_024, 32, key="history_size", persist_state="page"
            )
            _draw_delete(beyond_size(entries, int(size) * _MEBIBYTE), "size")


def _draw_delete(doomed: Sequence[HistoryEntry], by: str) -> None:
    st.button(
        f"Delete {section.size_text(doomed)}",
        key=f"history_delete_{by}",
        icon=":material/delete_forever:",
        disabled=not doomed,
        on_click=_delete,
        args=(tuple(doomed),),
    )


@uninterrupted()
def _open(entry: HistoryEntry) -> None:
    """Open the Board, the search, or the layout with its answers, in the next run."""
    state = st.session_state
    try:
        if entry.kind == "compare":
            pins.reopen(entry.parameters["board"])
            state[_LEAVE_TO] = page_switch.BOARD
            return
        if entry.kind == "search":
            search_page.reopen(entry)
            state[_LEAVE_TO] = page_switch.SEARCH
            return
        layout = layouts.from_json(entry.parameters["layout"])
        if entry.kind == "run" and (found := user.history().run(entry.id)) is not None:
            finished_runs.remember(layout, found)
        state["last_layout"] = layout
        state[_LEAVE_TO] = page_switch.LAYOUT
    except InvalidInput as error:
        state[_PROBLEM] = str(error)


def _share(entry: HistoryEntry) -> None:
    try:
        user.history().share(entry.id, not entry.shared)
    except InvalidInput as error:
        st.session_state[_PROBLEM] = str(error)


def _delete(entries: Sequence[HistoryEntry]) -> None:
    try:
        user.history().delete(entries)
    except InvalidInput as error:
        st.session_state[_PROBLEM] = str(error)
