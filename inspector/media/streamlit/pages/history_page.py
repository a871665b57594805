"""The History page: what was run, compiled, searched and compared, to reopen or delete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import streamlit as st

from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.media.streamlit.page import buttons, last_problem, page_switch
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.pages import search_page
from inspector.media.streamlit.parts import table
from inspector.media.streamlit.session import finished_runs, pins, user
from inspector.media.streamlit.streamlit_internals import uninterrupted
from inspector.sections import history as section
from inspector.service.history import DAMAGED, HistoryEntry, beyond_size, older_than

_CHOSEN = "history_chosen"
_OPEN = {"compare": "Open comparison", "search": "Open search"}  # other entries open a layout
_MEBIBYTE = 2**20


def show() -> None:
    """Draw the table, the selected entry, and the deletion by age or size."""
    page_switch.follow()
    st.markdown("### History")
    last_problem.show()
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
    chosen = {entry.id: entry for entry in entries}.get(st.session_state.get(_CHOSEN, ""))
    _show_chosen(chosen or entries[0])
    _show_deletion(entries)


def _show_table(entries: Sequence[HistoryEntry]) -> None:
    listed = section.table(entries)
    headings = [column.heading for column in listed.columns]
    columns = dict(zip(headings, zip(*listed.rows, strict=True), strict=True))
    table.show_entries(columns, "history_table", [entry.id for entry in entries], _CHOSEN)


def _show_chosen(entry: HistoryEntry) -> None:
    with st.container(border=True):
        st.markdown(f"#### {section.KINDS.get(entry.kind, entry.kind)}: {plain(entry.title)}")
        when = datetime.fromisoformat(entry.time)
        st.caption(f"{when:%Y-%m-%d %H:%M} UTC" + (f" · {plain(entry.owner)}" if entry.owner else ""))
        if entry.kind == DAMAGED:
            st.error("This entry cannot be read: delete it.", icon=":material/error:")
        with st.container(horizontal=True, gap="small"):
            buttons.draw(
                _OPEN.get(entry.kind, "Open layout"),
                "history_open",
                "open_in_full",
                _open,
                entry,
                type="primary",
                disabled=entry.kind == DAMAGED,
            )
            if entry.owner is not None and entry.changeable:
                label, icon = ("Make private", "lock") if entry.shared else ("Share", "group")
                buttons.draw(label, "history_share", icon, _share, entry, type="tertiary")
            if entry.changeable:
                entries = (entry,)
                buttons.draw("Delete entry", "history_delete", "delete", _delete, entries, type="tertiary")
        with st.expander("Parameters", key="history_parameters"):
            st.json(entry.parameters)


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
    label, key = f"Delete {section.size_text(doomed)}", f"history_delete_{by}"
    buttons.draw(label, key, "delete_forever", _delete, tuple(doomed), disabled=not doomed)


@uninterrupted()
def _open(entry: HistoryEntry) -> None:
    """Open the Board, the search, or the layout with its answers, in the next run."""
    with last_problem.kept():
        if entry.kind == "compare":
            pins.reopen(entry.parameters["board"])
            page_switch.in_next_run(page_switch.BOARD)
        elif entry.kind == "search":
            search_page.reopen(entry)
            page_switch.in_next_run(page_switch.SEARCH)
        else:
            layout = layouts.from_json(entry.parameters["layout"])
            if entry.kind == "run" and (run := user.history().run(entry.id)) is not None:
                finished_runs.remember(layout, run)
            st.session_state["last_layout"] = layout
            page_switch.in_next_run(page_switch.LAYOUT)


def _share(entry: HistoryEntry) -> None:
    with last_problem.kept():
        user.history().share(entry.id, not entry.shared)


def _delete(entries: Sequence[HistoryEntry]) -> None:
    with last_problem.kept():
        user.history().delete(entries)
