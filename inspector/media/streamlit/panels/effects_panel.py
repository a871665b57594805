"""The effects of a layout's rules, constraints and mesh axes, computed while the panel is open."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from inspector.assessment import assess
from inspector.core import typed_json
from inspector.core.assessment import Assessment
from inspector.core.errors import InvalidInput
from inspector.core.formatting import seconds_text
from inspector.core.snapshot import Effect, Effects, Snapshot
from inspector.layout import Layout, from_json
from inspector.machines.hardware import Chip
from inspector.media.streamlit.page import page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import board_pair, render
from inspector.media.streamlit.session import chip_choice, job_progress, program_choice, user
from inspector.media.streamlit.session.job_progress import Progress, Task
from inspector.sections import effects as section
from inspector.service.engine import Job, Status
from inspector.service.inspection import Inspection

_JOB = "effects"
_ENDED = "effects_ended"  # the key of the job that failed or was cancelled
_PROGRAMS = ("train_step", "apply", "init")


def show(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw the choice of program and chip, and the effects or the progress of the job."""
    layout = layout or _layout_of(snapshot)
    if layout is None:
        st.info(section.NO_LAYOUT, icon=":material/info:")
        return
    chosen, choice = page_width.beside([3, 1])
    with choice:
        chip = _chip(snapshot, layout)
    with chosen:
        names = [program.name for program in snapshot.programs] or list(_PROGRAMS)
        program = program_choice.choose(names, program_choice.KEYS["Improve"])
    service = user.service()
    name = None if chip is None else chip.name
    known = service.known_effects(layout, program, name) or _recorded(snapshot, program, name)
    if known is not None:
        _show_known(service, layout, known, assess(snapshot, chip))
        return
    key = f"{layout.key()} {program} {name}"
    if st.session_state.get(_ENDED) == key and not job_progress.subject(_JOB):
        job_progress.show_problem(_JOB)
        if st.button("Compute the effects", key="effects_again", icon=":material/play_arrow:"):
            st.session_state[_ENDED] = None
            st.rerun()
        return
    _start(service, layout, program, name, key)
    st.caption("Changes one rule, sharding constraint or mesh axis at a time, without a compile.")
    job_progress.show(_JOB)


def with_known(service: Inspection, snapshot: Snapshot, layout: Layout) -> Snapshot:
    """Return the Snapshot with the effects on its train step, if they are known."""
    chip = layout.machine.chip if layout.machine else chip_choice.chosen_chip()
    known = service.known_effects(layout, _PROGRAMS[0], None if chip is None else chip.name)
    return snapshot if known is None else replace(snapshot, effects=known)


def make_way(layout: Layout) -> None:
    """Cancel the job if it is for another layout."""
    if not job_progress.subject(_JOB).startswith(f"{layout.key()} "):
        job_progress.cancel(_JOB)


def _layout_of(snapshot: Snapshot) -> Layout | None:
    try:
        return None if snapshot.layout is None else from_json(snapshot.layout)
    except InvalidInput:
        return None


def _recorded(snapshot: Snapshot, program: str, chip: str | None) -> Effects | None:
    effects = snapshot.effects
    return effects if effects and (effects.program, effects.chip) == (program, chip) else None


def _chip(snapshot: Snapshot, layout: Layout) -> Chip | None:
    if layout.machine is None:
        return chip_choice.draw(snapshot)
    st.markdown(f"Predicted for **{plain(layout.machine.chip.title)}**")
    return layout.machine.chip


def _start(service: Inspection, layout: Layout, program: str, chip: str | None, key: str) -> None:
    """Start the job, unless it runs; cancel the job for another layout, program or chip."""
    if job_progress.subject(_JOB) == key:
        return
    job_progress.cancel(_JOB)

    def make() -> Task:
        job: Job[Effects] = service.start_effects(layout, program, chip)

        def finish() -> None:
            st.session_state[_ENDED] = key
            job.answer()  # the service then knows the effects

        describe = job_progress.of_job(job, _progress)
        return Task(describe, finish, job.cancel, key, draw=lambda: _show_first(job.status()))

    job_progress.start(_JOB, make)


def _show_first(status: Status) -> None:
    """Draw the figure of the changes that have been computed."""
    if (found := status.progress.get("found")) is not None:
        effects = typed_json.decode(Effects, found)
        render.show(section.figure(effects))


def _progress(status: Status) -> Progress:
    if "done" not in status.progress:
        label = "Tracing the model" if status.phase == "lower" else "Starting a worker"
        return Progress(label, 0.0)
    done, of = status.progress["done"], status.progress["of"]
    left = ""
    if done:
        left = f", about {seconds_text(status.elapsed * (of - done) / done)} left"
    label = f"Partitioning the programs, change {min(done + 1, of)} of {of}"
    return Progress(label, done / of, f"{seconds_text(status.elapsed)} elapsed{left}.")


def _show_known(
    service: Inspection, layout: Layout, effects: Effects, assessed: Assessment
) -> None:
    kinds = [kind for kind in section.KINDS if any(one.kind == kind for one in effects.changes)]
    wanted = st.pills(
        "Changes",
        kinds,
        selection_mode="multi",
        format_func=section.KINDS.__getitem__,
        key="effects_kinds",
    )
    if wanted:
        effects = replace(
            effects, changes=tuple(one for one in effects.changes if one.kind in wanted)
        )
    whole = section.section(effects, assessed)

    def pick(row: int | None) -> None:
        if row is None:
            st.caption("Select a row to compare the changed layout.")
        else:
            _show_one(service, layout, effects.changes[row])

    render.show([whole], {section.TABLE: pick})


def _show_one(service: Inspection, layout: Layout, effect: Effect) -> None:
    with st.container(border=True):
        st.markdown(f"**{plain(effect.label)}**")
        if effect.cost is None:
            st.warning(plain(effect.reason or ""), icon=":material/warning:")
        if effect.layout is None:
            st.caption("A layout cannot express this change: edit the line in the code.")
        elif effect.cost is not None and st.button(
            "Compare", key="effects_pin", icon=":material/view_column:", type="primary"
        ):
            board_pair.compare(service, layout, effect.label, from_json(effect.layout))
