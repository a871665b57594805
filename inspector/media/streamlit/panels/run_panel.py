"""The controls that build and run, or compile, the layout."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import streamlit as st

from inspector.answers.program_run import PHASE_NAMES, phase_label, share
from inspector.jobs.engine import Status
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Progress, Request
from inspector.layout import Layout
from inspector.media.streamlit.page import buttons
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import asked, current_layout, planning
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import counted, left_text, seconds_text, whole_seconds_text

_JOB = "run"

Planned = tuple[Layout, Snapshot]


@st.fragment
def show(
    service: Inspection,
    *plans: Planned,
    ran: bool,
    label: str = "Build and run",
    rejected: bool = False,
    agreed: str = "",
) -> None:
    """Draw the button, or the progress of the running job. Several layouts run one after another.

    A click redraws this alone, because drawing the page would take processor time from the run.

    Args:
      ran: whether all layouts were run or compiled before.
      rejected: whether JAX rejects the layout, so that it can be neither run nor compiled.
      agreed: that the run or compile has placed all arrays as planned, in a sentence; "" if it has not.
    """
    if len(plans) == 1 and plans[0][0] != current_layout.last_layout():
        st.rerun()  # *Profile* has changed the layout
    requests = [request(service, *planned) for planned in plans]
    if asked.show_progress(_JOB, *requests):
        return
    layout = plans[0][0]
    compiles = layout.machine is not None
    impossible = next(filter(None, (service.why_not_run(*planned) for planned in plans)), None)
    if compiles:
        label = "Compile"
    refused = "JAX rejects this layout." if rejected else None
    said = agreed + (plain(impossible or refused or "") or _estimate(service, plans, ran))
    as_help = not (agreed or impossible or refused)  # an estimate alone
    with st.container(horizontal=True, gap="small"):
        st.button(
            f"{'Compile' if compiles else 'Run'} again" if ran else label,
            help=said if as_help else None,
            key="run_button",
            type="secondary" if ran or impossible or rejected else "primary",
            icon=":material/play_arrow:",
            width="stretch",
            disabled=impossible is not None or rejected,
            on_click=_start,  # before the page is drawn
            args=(service, plans),
        )
        if ran and not compiles and not layout.trace and len(plans) == 1:
            help = "Run it again under JAX's profiler. *Time* then has its operations."
            buttons.draw("Profile", "profile_button", "timer", _profile, service, plans[0], help=help)
    if not as_help:
        st.caption(said)
    for shown in requests:
        asked.show_failure(_JOB, shown.key)


def _estimate(service: Inspection, plans: tuple[Planned, ...], ran: bool) -> str:
    """Return the effect of the button, or how long it took the last time."""
    layout = plans[0][0]
    known = [seconds for layout, _ in plans if (seconds := service.last_seconds(layout)) is not None]
    if len(known) == len(plans):
        which = "this layout" if len(plans) == 1 else "these layouts"
        return f"The last {_noun(layout)} of {which} took {seconds_text(sum(known))}."
    if layout.machine is not None:
        if ran:
            return "From the compile cache: same code, same versions."
        return f"Compiles for {plain(layout.target)}, in seconds to minutes. Nothing is run."
    where = counted(layout.devices, "local device" if layout.is_local else "emulated device")
    if layout.processes > 1:
        where += f" in {layout.processes} processes"
    if len(plans) > 1:
        where += ", one layout after the other"
    return f"Compiles, and runs {counted(layout.steps, 'train step')} on {where}."


def _noun(layout: Layout) -> str:
    return "run" if layout.machine is None else "compile"


def _start(service: Inspection, plans: tuple[Planned, ...]) -> None:
    (layout, planned), *waiting = plans

    def then(_: Snapshot) -> None:
        if waiting:
            _start(service, tuple(waiting))

    asked.of(_JOB).again(request(service, layout, planned, then, len(waiting)))


def _profile(service: Inspection, plan: Planned) -> None:
    """Open the layout with a profile of its steps, and run it."""
    layout = replace(plan[0], trace=True)
    current_layout.put(layout)
    _start(service, ((layout, replace(plan[1], layout=layout.to_json())),))


def request(
    service: Inspection,
    layout: Layout,
    planned: Snapshot,
    then: Callable[[Snapshot], None] = lambda run: None,
    waiting: int = 0,
) -> Request[Snapshot]:
    """Return the request of a run or compile, whose result is kept for this session.

    `then` gets the result after that. `waiting` layouts follow it.
    """

    def keep(run: Snapshot) -> None:
        planning.remember(layout, run)
        then(run)

    describe = partial(_progress, service, layout, waiting)
    return replace(service.run(layout, planned), keep=keep, describe=describe)


def _progress(service: Inspection, layout: Layout, waiting: int, status: Status) -> Progress:
    phase, figures = status.phase or "start", status.progress
    program = figures.get("program")
    label = phase_label(PHASE_NAMES, phase, figures)
    if phase == "steps" and "done" in figures:
        label += f", step {figures['done'] + 1} of {figures['of']}"
    if waiting:
        label += f" ({counted(waiting, 'more layout')} to run)"
    return Progress(
        label,
        share(phase, program, figures, layout.machine is not None),
        _time(service, layout, status),
    )


def _time(service: Inspection, layout: Layout, status: Status) -> str:
    elapsed = f"{whole_seconds_text(status.elapsed)} elapsed"
    last_step = status.progress.get("last")
    if status.phase == "steps" and last_step is not None:
        left = (status.progress["of"] - status.progress["done"]) * last_step
        return f"{elapsed}, {left_text(left)} for these steps."
    before = service.last_seconds(layout)
    if before is not None:
        return f"{elapsed}. The last {_noun(layout)} of this layout took {seconds_text(before)}."
    return f"{elapsed}."
