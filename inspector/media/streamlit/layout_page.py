"""The Layout page: edit a layout, plan it at once, run it, and read its figures."""

from __future__ import annotations

import streamlit as st

from inspector.core.field_parser import Parsed
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.media.streamlit import (
    page_width,
    planning,
    propagation,
    run_panel,
    session,
    snapshot_panels,
    summary_panel,
)
from inspector.media.streamlit.editor import Editor
from inspector.media.streamlit.plain_text import plain
from inspector.service import inspection
from inspector.service.inspection import Inspection


def show() -> None:
    """Draw the page."""
    service = inspection.shared()
    service.warm()  # JAX starts in the planner while the sidebar is drawn
    parsed = session.parsed()
    if parsed.value is not None:
        session.remember(parsed.value)
    layout = session.last_layout()

    editor = Editor(parsed, service.compiled)
    # The figures are sent before the sidebar because they show the change. While JAX traces the model
    # there are no figures, so the sidebar comes first.
    sidebar_first = service.known_state(layout) is None
    if sidebar_first:
        _draw(editor)
    try:
        planned = _draw_main(service, layout, parsed)
    finally:
        # Also after an error: Streamlit forgets fields that a run has not drawn.
        if not sidebar_first:
            _draw(editor)
    if planned is not None:
        editor.show_plan_problems(planned)
    if parsed.value is not None:
        session.write_url()
    page_width.measure()


def _draw(editor: Editor) -> None:
    with st.sidebar:
        editor.draw()


def _draw_main(service: Inspection, layout: Layout, parsed: Parsed[Layout]) -> Snapshot | None:
    """Draw summary and panels. Return the plan, or None if the model cannot be traced."""
    _show_url_problems()
    if parsed.value is None:
        st.warning(
            "Fix the fields marked in red. The page shows the last valid layout.",
            icon=":material/edit_off:",
        )
    propagation.make_way(service, layout)
    planned = planning.planned(service, layout)
    if planned is None:
        return None
    run = run_panel.finished_run(service, layout)
    snapshot = run or propagation.with_known(service, planned, layout)
    snapshot_panels.prepare(snapshot)
    if run is not None and run.findings:
        messages = "  \n".join(plain(finding.message) for finding in run.findings)
        st.error(messages, icon=":material/difference:")
    summary = st.container()
    snapshot_panels.show(snapshot, layout, instead=_panels_of_plan(service, snapshot))
    with summary:
        summary_panel.show(snapshot, layout, lambda: run_panel.show(service, (layout, planned)))
    return planned


def _panels_of_plan(service: Inspection, snapshot: Snapshot) -> dict[str, snapshot_panels.Panel]:
    """Return the panel that starts the propagation of a plan and waits for its programs.

    Other panels show the programs once they are known. They start no propagation, because the rerun at its
    end closes an open dialog.
    """
    if propagation.is_known(snapshot):
        return {}

    def show(_: Snapshot, layout: Layout | None) -> None:
        assert layout is not None
        propagation.show(service, layout)

    return {"Collectives": show}


def _show_url_problems() -> None:
    problems: dict[str, str] = st.session_state.get("url_problems", {})
    if problems:
        messages = "  \n".join(plain(message) for message in problems.values())
        st.warning(
            f"The link has invalid values. Defaults replace them.  \n{messages}",
            icon=":material/link_off:",
        )
