"""The page where a layout is made, planned at once, run, and looked at."""

from __future__ import annotations

import streamlit as st

from inspector import inspection
from inspector.layout import Layout
from inspector.snapshot import Snapshot
from inspector.views import (
    array_table_panel,
    collectives_panel,
    memory_panel,
    overview_panel,
    page_width,
    planning,
    run_panel,
    session,
    shard_map_panel,
    summary_panel,
    time_panel,
    train_state_panel,
    tree_panel,
)
from inspector.views.editor import Editor
from inspector.views.plain_text import plain

PANELS = {
    "Shard map": shard_map_panel.show,
    "Overview": overview_panel.show,
    "PartitionSpec tree": tree_panel.show,
    "Arrays": array_table_panel.show,
    "Collectives": collectives_panel.show,
    "Train state": train_state_panel.show,
    "Memory": memory_panel.show,
    "Time": time_panel.show,
}


def show() -> None:
    """Draw the page: the editor beside, then what the layout is, then the panel that is open."""
    service = inspection.shared()
    # JAX starts in the planner while the sidebar is drawn.
    service.warm()
    parsed = session.parsed()
    if parsed.value is not None:
        session.remember(parsed.value)
    layout = session.last_layout()

    editor = Editor(parsed, service.kept)
    with st.sidebar:
        editor.draw()

    _show_url_problems()
    if parsed.value is None:
        st.warning(
            "The sidebar has a mistake, marked in red. Until it is mended, this page shows the last "
            "layout that was right.",
            icon=":material/edit_off:",
        )
    planned = planning.planned(service, layout)
    if planned is None:
        return
    editor.show_plan_problems(planned)
    run = run_panel.finished_run(service, layout)
    found = run or planned
    for finding in run.findings if run is not None else ():
        st.error(plain(finding.message), icon=":material/difference:")
    summary_panel.show(found, layout, lambda: run_panel.show(service, (layout, planned)))
    _show_panels(found, layout)
    page_width.measure()


def _show_url_problems() -> None:
    problems: dict[str, str] = st.session_state.get("url_problems", {})
    if problems:
        sentences = "  \n".join(plain(sentence) for sentence in problems.values())
        st.warning(
            f"The link had values that cannot be used, so the defaults stand in:  \n{sentences}",
            icon=":material/link_off:",
        )


def _show_panels(found: Snapshot, layout: Layout) -> None:
    tabs = st.tabs(list(PANELS), key="panel", on_change="rerun")
    for tab, draw in zip(tabs, PANELS.values(), strict=True):
        if tab.open:
            with tab:
                draw(found, layout)
