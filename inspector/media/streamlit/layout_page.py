"""The page where a layout is made, planned at once, run, and looked at."""

from __future__ import annotations

import streamlit as st

from inspector.core.field_parser import Parsed
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.media.streamlit import (
    page_width,
    planning,
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
    """Draw the page: the editor beside, then what the layout is, then the panel that is open."""
    service = inspection.shared()
    # JAX starts in the planner while the sidebar is drawn.
    service.warm()
    parsed = session.parsed()
    if parsed.value is not None:
        session.remember(parsed.value)
    layout = session.last_layout()

    editor = Editor(parsed, service.compiled)
    # What a change redraws comes first, and the fields that were changed after it; but while JAX is asked
    # for shapes, there must be something to see.
    waits = service.known_state(layout) is None
    if waits:
        _draw(editor)
    try:
        planned = _show_found(service, layout, parsed)
    except Exception:
        # Streamlit forgets the fields that a run has not drawn, and no panel may cost them.
        if not waits:
            _draw(editor)
        raise
    if not waits:
        _draw(editor)
    if planned is not None:
        editor.show_plan_problems(planned)
    if parsed.value is not None:
        session.write_url()
    page_width.measure()


def _draw(editor: Editor) -> None:
    with st.sidebar:
        editor.draw()


def _show_found(service: Inspection, layout: Layout, parsed: Parsed[Layout]) -> Snapshot | None:
    """What is known of the layout; the plan, None where there is none."""
    _show_url_problems()
    if parsed.value is None:
        st.warning(
            "The sidebar has a mistake, marked in red. Until it is mended, this page shows the last "
            "layout that was right.",
            icon=":material/edit_off:",
        )
    planned = planning.planned(service, layout)
    if planned is None:
        return None
    run = run_panel.finished_run(service, layout)
    found = run or planned
    snapshot_panels.prepare(found)
    if run is not None and run.findings:
        # One box: several push what matters off the page.
        said = "  \n".join(plain(finding.message) for finding in run.findings)
        st.error(said, icon=":material/difference:")
    summary = st.container()
    snapshot_panels.show(found, layout)
    with summary:
        summary_panel.show(found, layout, lambda: run_panel.show(service, (layout, planned)))
    return planned


def _show_url_problems() -> None:
    problems: dict[str, str] = st.session_state.get("url_problems", {})
    if problems:
        sentences = "  \n".join(plain(sentence) for sentence in problems.values())
        st.warning(
            f"The link had values that cannot be used, so the defaults stand in:  \n{sentences}",
            icon=":material/link_off:",
        )
