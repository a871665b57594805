"""The Layout page: edit a layout, plan it at once, run it, and read its figures."""

import functools
from collections.abc import Callable, Sequence

import streamlit as st

from inspector.answers import sharding_errors
from inspector.assessment import assess
from inspector.jobs.agreement import placed_as_planned
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Outcome
from inspector.layout import Layout
from inspector.media.streamlit.editor.sidebar import Editor
from inspector.media.streamlit.page import page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.panels import (
    arrays_panels,
    improve_panel,
    program_panels,
    run_panel,
    snapshot_panels,
    summary_panel,
)
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import (
    chip_choice,
    current_layout,
    planning,
    selection,
    stated_counts,
    user,
    view_link,
)
from inspector.records.snapshot import Finding, Snapshot
from inspector.sharding.abstract import PartitionedPrograms
from inspector.sharding.once import NewestResults
from inspector.text.field_parser import Parsed

_placed = NewestResults[str](most=8)
_OF_PROGRAMS = ("Communication", "Time", "Memory")  # tabs that show partitioned programs


def show() -> None:
    """Draw the page."""
    service = user.service()
    service.warm()  # JAX starts in the planner while the sidebar is drawn
    parsed = current_layout.parsed()
    if parsed.value is not None:
        current_layout.remember(parsed.value)
    layout = current_layout.last_layout()

    editor = Editor(parsed, service.compiled)

    @functools.cache
    def draw_sidebar() -> None:
        with st.sidebar:
            editor.draw()

    try:
        planned, draw_link = _draw_main(service, layout, parsed, draw_sidebar)
    finally:
        draw_sidebar()  # also after an error, so that the layout can be changed
    if planned is not None:
        editor.show_plan_problems(planned)
    if parsed.value is not None:
        current_layout.write_url(planned, snapshot_panels.PANELS)
    draw_link()
    page_width.measure()


def _draw_main(
    service: Inspection, layout: Layout, parsed: Parsed[Layout], draw_sidebar: Callable[[], None]
) -> tuple[Snapshot | None, Callable[[], None]]:
    """Draw summary and panels. Return the plan and what draws the link of the page.

    The plan is None if the model cannot be traced.

    draw_sidebar: draws the sidebar. The figures are sent before it because they show the change, unless the
      page waits for JAX to trace the model, or for long until its programs are partitioned.
    """

    def before_tracing() -> None:
        draw_sidebar()
        planning.make_way()

    problems = st.container()
    if parsed.value is None:
        st.warning(
            "Fix the fields marked in red. Until then, the page shows the layout before that edit.",
            icon=":material/edit_off:",
        )
    improve_panel.make_way(layout)
    planned = planning.planned(service, layout, before_tracing)
    if planned is None:
        with problems:
            _show_url_problems()
        return None, lambda: None
    run = planning.run_of(service, layout)
    partitions = run is None and snapshot_panels.is_open(*_of_programs())
    errors, summary = st.container(), st.container(gap="xsmall")
    # The browser draws the tabs while the programs are partitioned.
    tabs = snapshot_panels.draw_tabs()
    programs = _programs(service, layout, partitions, draw_sidebar)
    computing = programs.known is None and not programs.ended
    snapshot = planning.added(run or planned, programs)
    snapshot = stated_counts.applied(improve_panel.with_known(service, snapshot, layout))
    with problems:
        _show_url_problems(snapshot)
    with errors:
        _show_errors(() if run is None else run.findings)
    panels = _panels_of_plan(service, snapshot, programs)
    snapshot_panels.show(tabs, snapshot, layout, panels)
    with errors:
        render.show(sharding_errors.refusals(snapshot.programs))
    with summary:
        draw_link = _draw_head(service, layout, planned, run, snapshot, programs)
        if _counts_partitioned(run, layout) and not programs.ended and not partitions:
            # For the head; the figures come first.
            known = run is not None or programs.known is not None
            planning.watch(service, layout, totals=known)
        if layout.explicit_axes and computing and st.session_state.get("panel") not in panels:
            planning.watch(service, layout, words="")  # JAX may refuse the programs
    return planned, draw_link


def _draw_head(
    service: Inspection,
    layout: Layout,
    planned: Snapshot,
    run: Snapshot | None,
    snapshot: Snapshot,
    programs: Outcome[PartitionedPrograms],
) -> Callable[[], None]:
    """Draw the head with the buttons that run and compile. Return what draws the link of the page."""
    agreed = ""
    if run is not None:
        agreed = _placed.of(None, (planned, run), lambda: placed_as_planned(planned, run))
    rejected = assess(snapshot, chip_choice.chosen_chip()).rejected is not None
    return summary_panel.show(
        snapshot,
        layout,
        lambda: run_panel.show(
            service, (layout, planned), ran=run is not None, rejected=rejected, agreed=agreed
        ),
        computing=_counts_partitioned(run, layout) and not programs.ended,
        without_totals=planned if run is None and programs.so_far is not None else None,
    )


def _counts_partitioned(run: Snapshot | None, layout: Layout) -> bool:
    """Return whether figures are those of partitioned programs: of a plan, or of a run on a chosen chip."""
    return run is None or (layout.machine is None and bool(chip_choice.platforms()))


def _programs(
    service: Inspection, layout: Layout, needed: bool, draw_sidebar: Callable[[], None]
) -> Outcome[PartitionedPrograms]:
    """Return the known programs. If the open tab needs them, wait for a moment.

    The sidebar is drawn before a longer wait.
    """
    if not needed:
        return planning.outcome(service, layout, False, 0.0)
    programs = planning.outcome(service, layout, True, planning.FIGURES_FIRST_SECONDS)
    if programs.known is None and not programs.ended:
        draw_sidebar()
        programs = planning.outcome(service, layout, seconds=planning.PATIENCE_SECONDS)
    return programs


def _show_errors(findings: Sequence[Finding]) -> None:
    wrong = [plain(finding.message) for finding in findings if finding.level == "error"]
    if wrong:
        st.error("  \n".join(wrong), icon=":material/difference:")


def _panels_of_plan(
    service: Inspection, snapshot: Snapshot, programs: Outcome[PartitionedPrograms]
) -> dict[str, snapshot_panels.Panel]:
    """Return the panels that start the partitioning of a plan and wait for its programs.

    Other panels show the programs once they are known, and start no partitioning.
    """
    if programs.result is not None and programs.result.only:
        return {name: _with_rest(service, name) for name in _of_programs()}
    if programs.ended:
        return {}
    totals = programs.known is not None

    def show(snapshot: Snapshot, layout: Layout | None) -> None:
        assert layout is not None
        if snapshot.source.kind == "plan":
            planning.watch(service, layout, totals, "")
            return
        # Above the collectives, because the missing part is below and in their details.
        words = "Then causes of collectives and a comparison are added below."
        planning.watch(service, layout, totals=True, words=words)
        program_panels.show_collectives(snapshot, layout)

    if snapshot.source.kind != "plan":  # to compare with the compiled programs
        return {"Communication": show}
    panels = {name: _with_causes(service, name) if totals else show for name in _OF_PROGRAMS}
    if "Arrays" in _of_programs():
        views = {chip_choice.ARRAYS_VIEW: show}
        panels["Arrays"] = functools.partial(arrays_panels.show, instead=views)
    return panels


def _of_programs() -> tuple[str, ...]:
    """Return the tabs that show partitioned programs. *Arrays* does in one of its views."""
    view = st.session_state.get(selection.VIEW_KEY)
    return (*_OF_PROGRAMS, *(["Arrays"] if view == chip_choice.ARRAYS_VIEW else []))


def _with_causes(service: Inspection, name: str) -> snapshot_panels.Panel:
    """Return a panel that shows the totals of the train step, and waits for its origins and conflicts."""

    def show(snapshot: Snapshot, layout: Layout | None) -> None:
        assert layout is not None
        with chip_choice.with_pending(planning.programs_of(layout)):
            if name == "Communication":
                program_panels.show_collectives(snapshot, layout, computing=True)
            else:
                snapshot_panels.PANELS[name](snapshot, layout)
        planning.watch(service, layout, totals=True)

    return show


def _with_rest(service: Inspection, name: str) -> snapshot_panels.Panel:
    """Return a panel that also starts the partitioning of the other programs."""

    def show(snapshot: Snapshot, layout: Layout | None) -> None:
        assert layout is not None
        with chip_choice.with_pending(planning.programs_of(layout)):
            snapshot_panels.PANELS[name](snapshot, layout)
        # After a run, only this tab shows partitioned programs, next to the compiled ones.
        shows_them = snapshot.source.kind == "plan" or name == "Communication"
        planning.show_rest(service, layout, shows_them)

    return show


def _show_url_problems(snapshot: Snapshot | None = None) -> None:
    problems = [*st.session_state.get("url_problems", {}).values()]
    if snapshot is not None:
        problems += view_link.absent(snapshot)
    view_link.show_problems(problems)
