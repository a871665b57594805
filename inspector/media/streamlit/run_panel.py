"""Build and run the layout: the button, the progress by phase, Cancel, and what came of it."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from dataclasses import dataclass

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted, seconds_text
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.layout import emulation as machine
from inspector.machines import targets
from inspector.media.streamlit.plain_text import plain
from inspector.service.engine import Job, Status
from inspector.service.inspection import Inspection

POLL_SECONDS = 0.3  # below 0.3 s a rerun can swallow a click on Cancel
REMEMBERED_RUNS = 8

PROGRAM_NAMES = {"init": "initialisation", "train_step": "train step", "apply": "inference"}
PHASE_NAMES = {
    "start": "Starting a worker",
    "topology": "Asking for the machine's topology",
    "build": "Building the model",
    "lower": "Lowering",
    "compile": "Compiling",
    "first run": "First run of",
    "steps": "Measuring",
    "timeit": "Timing loops of",
    "trace": "Profiling",
    "read": "Reading the live arrays",
}


Planned = tuple[Layout, Snapshot]


@dataclass(eq=False)
class RunInProgress:
    """A job of this session, the layout it is for with its plan, and those to be run after it."""

    layout: Layout
    planned: Snapshot
    job: Job
    waiting: tuple[Planned, ...]


def finished_run(service: Inspection, layout: Layout) -> Snapshot | None:
    """What a run of exactly this layout found in this session, or compiling it at any time."""
    found = _runs().get(layout.key())
    if found is None and (found := service.kept_answer(layout)) is not None:
        _remember(layout, found)
    return found


def show(service: Inspection, *plans: Planned, label: str = "Build and run") -> None:
    """The controls, as the state of this session's run has them; several layouts run in turn."""
    if st.session_state.get("run") is not None:
        # A fragment redraws itself alone, so that the page's other widgets stay usable.
        st.fragment(_show_progress, run_every=POLL_SECONDS)(service, plans)
        return
    _show_button(service, plans, label)
    error = st.session_state.get("run_error")
    if error:
        st.error(plain(error), icon=":material/error:")


def _show_button(service: Inspection, plans: tuple[Planned, ...], label: str) -> None:
    ran = all(finished_run(service, layout) is not None for layout, _ in plans)
    compiled = plans[0][0].machine is not None
    too_large = _too_many_devices(plans)
    if st.button(
        _label(label, compiled, ran),
        key="run_button",
        type="secondary" if ran or too_large else "primary",
        icon=":material/play_arrow:",
        width="stretch",
        disabled=too_large is not None,
    ):
        st.session_state.run_error = None
        _start(service, plans)
        st.rerun()
    if too_large is not None:
        st.caption(too_large)
        return
    known = [service.last_seconds(layout) for layout, _ in plans]
    if None not in known:
        what = "this layout" if len(plans) == 1 else "these layouts"
        done = "compile" if compiled else "run"
        st.caption(f"The last {done} of {what} took {seconds_text(sum(known))}.")
        return
    layout = plans[0][0]
    if compiled:
        st.caption(_words_on_compiling(service, layout, ran))
        return
    st.caption(
        f"Compiles and runs {counted(layout.steps, 'train step')} on "
        f"{counted(layout.devices, 'emulated device')}"
        + (f" in {layout.processes} processes" if layout.processes > 1 else "")
        + (", one layout after the other" if len(plans) > 1 else "")
        + ". Not run yet, so no estimate."
    )


def _too_many_devices(plans: tuple[Planned, ...]) -> str | None:
    """Why a plan cannot be run: a mesh may have more devices than are emulated on one machine."""
    devices = max((layout.devices for layout, _ in plans if layout.machine is None), default=0)
    return machine.why_not_emulated(devices)


def _label(label: str, compiled: bool, ran: bool) -> str:
    if compiled:
        return "Compile again" if ran else "Compile"
    return "Run again" if ran else label


def _words_on_compiling(service: Inspection, layout: Layout, ran: bool) -> str:
    missing = targets.missing_compiler(layout.machine)
    if missing is not None:
        return plain(f"{missing}.")
    if ran:
        return "Kept from an earlier compile with the same code and versions."
    return (
        f"Compiles three programs for {plain(layout.target)} with that machine's own compiler; nothing "
        "is run. A small model takes seconds, an 8B one half a minute and more."
    )


def _start(service: Inspection, plans: tuple[Planned, ...]) -> None:
    (layout, planned), *waiting = plans
    try:
        job = service.start_run(layout, planned)
    except InvalidInput as refused:
        st.session_state.run_error = str(refused)
        return
    current = RunInProgress(layout, planned, job, tuple(waiting))
    # Streamlit drops a session's state a while after its tab is closed; nobody waits then.
    weakref.finalize(current, job.cancel)
    st.session_state.run = current


def _show_progress(service: Inspection, plans: tuple[Planned, ...]) -> None:
    current: RunInProgress = st.session_state["run"]
    status = current.job.status()
    if status.state in ("done", "failed", "cancelled"):
        _finish(service, current)
        st.rerun()
    label, share = _progress(status, current.layout)
    if current.waiting:
        label += f" ({counted(len(current.waiting), 'layout')} to follow)"
    if current.layout.key() not in (layout.key() for layout, _ in plans):
        label += " (a layout that this page does not show now)"
    # No columns: in a small window that of the button would be too narrow for its word.
    with st.container(horizontal=True, vertical_alignment="center", gap="small", wrap=False):
        st.progress(share, text=plain(label))
        if st.button("Cancel", key="cancel_button", icon=":material/stop:", width="content"):
            current.job.cancel()
    st.caption(_elapsed(service, current, status))


def _finish(service: Inspection, current: RunInProgress) -> None:
    """Keep what came of the job, and start what waits for it unless it failed."""
    st.session_state.run = None
    try:
        found = service.take_run(current.layout, current.job, current.planned)
    except InvalidInput as refused:
        st.session_state.run_error = str(refused)
        return
    _remember(current.layout, found)
    if current.waiting:
        _start(service, current.waiting)


def _remember(layout: Layout, found: Snapshot) -> None:
    runs = _runs()
    runs[layout.key()] = found
    runs.move_to_end(layout.key())
    while len(runs) > REMEMBERED_RUNS:
        runs.popitem(last=False)


def _progress(status: Status, layout: Layout) -> tuple[str, float]:
    """What is happening in words, and a share of the whole for the bar."""
    if status.state == "queued":
        return f"Waiting for a worker, place {status.place} in the queue", 0.0
    phase, figures = status.phase or "start", status.progress
    words = PHASE_NAMES.get(phase, phase)
    program = figures.get("program")
    if program:
        words += f" the {PROGRAM_NAMES.get(program, program)}"
    if phase == "steps" and "done" in figures:
        words += f", step {figures['done'] + 1} of {figures['of']}"
    return words, _share(phase, program, figures, layout)


def _share(phase: str, program: str | None, figures: dict, layout: Layout) -> float:
    """How far along: phases count equally, for how long each takes is not known before."""
    order = [
        ("start", None),
        ("topology", None),
        ("build", None),
        *((stage, name) for name in PROGRAM_NAMES for stage in ("lower", "compile")),
    ]
    if layout.machine is None:
        order += [
            ("first run", "init"),
            *(
                (stage, name)
                for name in ("train_step", "apply")
                for stage in ("first run", "steps")
            ),
            ("timeit", "train_step"),
            ("timeit", "apply"),
            ("trace", "train_step"),
        ]
    order.append(("read", None))
    position = order.index((phase, program)) if (phase, program) in order else 0
    within = figures["done"] / figures["of"] if "done" in figures else 0.0
    return (position + within) / len(order)


def _elapsed(service: Inspection, current: RunInProgress, status: Status) -> str:
    if status.state == "queued":
        return "It starts when a worker is free; cancelling gives up the place."
    words = f"{seconds_text(status.elapsed)} so far"
    last = status.progress.get("last")
    if status.phase == "steps" and last is not None:
        left = (status.progress["of"] - status.progress["done"]) * last
        return f"{words}, about {seconds_text(left)} left of these steps"
    before = service.last_seconds(current.layout)
    if before is not None:
        done = "run" if current.layout.machine is None else "compile"
        return f"{words}; the last {done} of this layout took {seconds_text(before)}"
    if current.layout.machine is not None:
        return f"{words}; how long a compiler takes is not known before it has done it once"
    return f"{words}; how long it will take is not known before the first step is measured"


def _runs() -> OrderedDict[str, Snapshot]:
    return st.session_state.setdefault("finished_runs", OrderedDict())
