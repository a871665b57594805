"""Time the pinned layouts together: the button, the progress with Cancel, and what came of it."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from inspector.compare import paired_times
from inspector.compare.paired_times import DEFAULT_ROUNDS, LEAST_ROUNDS, MOST_ROUNDS, PairedTimes
from inspector.compare.paired_times import text as paired_times_text
from inspector.compare.paired_times.candidates import Candidates
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted, seconds_text
from inspector.core.snapshot import Snapshot
from inspector.figures.paired_times import ratio_intervals
from inspector.media.streamlit import chart, page_width, screenshot_mode, table
from inspector.media.streamlit.plain_text import plain
from inspector.media.streamlit.run_panel import PHASE_NAMES, POLL_SECONDS, PROGRAM_NAMES
from inspector.service import inspection
from inspector.service.engine import Job, Status
from inspector.service.inspection import Inspection

Pins = Sequence[tuple[str, Snapshot]]

ABSENT = "it was not pinned when the others were timed"
_PHASES = PHASE_NAMES | {"warm up": "Warming up", "rounds": "Timing"}
_ROUNDS_PX = 130


@dataclass(eq=False)
class TimingInProgress:
    """A job of this session, and the layouts that it is for, in the order of their numbers."""

    keys: tuple[str, ...]
    job: Job


def show(pins: Pins, baseline: int) -> None:
    """The section: pins are names and Snapshots, `baseline` is the number of the one to compare with."""
    service = inspection.shared()
    if not screenshot_mode.on():
        _show_controls(service, pins, baseline)
    last = st.session_state.get("timing_result")
    if last is not None:
        _show_result(*last, pins, baseline)


def _show_controls(service: Inspection, pins: Pins, baseline: int) -> None:
    if len(pins) < 2:
        st.info("Pin a second layout to time it against the first.", icon=":material/timer:")
        return
    with st.container():
        if st.session_state.get("timing") is not None:
            st.fragment(_show_progress, run_every=POLL_SECONDS)(service, pins)
            return
        _show_button(service, pins, baseline)
    error = st.session_state.get("timing_error")
    if error:
        st.error(plain(error), icon=":material/error:")


def _show_button(service: Inspection, pins: Pins, baseline: int) -> None:
    found = service.timing_candidates([one for _, one in pins], baseline)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        # Streamlit forgets a widget that is not drawn while the job runs; what it held is put back.
        st.session_state.setdefault(
            "timing_rounds", st.session_state.get("timing_kept_rounds", DEFAULT_ROUNDS)
        )
        rounds = st.number_input(
            "Rounds",
            min_value=LEAST_ROUNDS,
            max_value=MOST_ROUNDS,
            key="timing_rounds",
            width=_ROUNDS_PX,
            help="In each round every layout runs once. More rounds make the intervals narrower and take "
            "longer.",
        )
        st.session_state["timing_kept_rounds"] = rounds
        pressed = st.button(
            "Time them together",
            key="timing_button",
            type="secondary" if st.session_state.get("timing_result") else "primary",
            icon=":material/timer:",
            disabled=len(found.layouts) < 2,
        )
    st.caption("\n".join(_words_before(found, [name for name, _ in pins], baseline)))
    if pressed:
        st.session_state.timing_error = None
        _start(service, pins, int(rounds), baseline)
        st.rerun()


def _words_before(found: Candidates, names: Sequence[str], baseline: int) -> list[str]:
    """What will be done, and under it a line for each layout that is left out; as Markdown."""
    if len(found.layouts) >= 2:
        base = baseline if baseline in found.layouts else min(found.layouts)
        first = (
            f"Runs {counted(len(found.layouts), 'layout')} in turn in one process with "
            f"{counted(found.devices, 'emulated device')}, train step and inference, and gives each "
            f"as a ratio to {names[base]}."
        )
    else:
        first = "Two layouts at least must run on emulated devices of one process."
    left_out = [f"{names[one.layout]} cannot be timed: {one.reason}." for one in found.untimed]
    return [plain(first), "", *(f"- {plain(sentence)}" for sentence in left_out)]


def _start(service: Inspection, pins: Pins, rounds: int, baseline: int) -> None:
    snapshots = [one for _, one in pins]
    try:
        job = service.start_timing(snapshots, rounds, baseline)
    except InvalidInput as refused:
        st.session_state.timing_error = str(refused)
        return
    current = TimingInProgress(tuple(map(_key, snapshots)), job)
    # Streamlit drops a session's state a while after its tab is closed; nobody waits then.
    weakref.finalize(current, job.cancel)
    st.session_state.timing = current


def _show_progress(service: Inspection, pins: Pins) -> None:
    current: TimingInProgress = st.session_state["timing"]
    status = current.job.status()
    if status.state in ("done", "failed", "cancelled"):
        st.session_state.timing = None
        try:
            times = service.take_timing(current.job)
        except InvalidInput as refused:
            st.session_state.timing_error = str(refused)
        else:
            st.session_state.timing_result = (current.keys, times)
        st.rerun()
    label, share = _progress(status)
    bar, button = st.columns([3, 1], vertical_alignment="center")
    bar.progress(share, text=plain(label))
    if button.button("Cancel", key="timing_cancel", icon=":material/stop:", width="stretch"):
        current.job.cancel()
    st.caption(_elapsed(status))


def _progress(status: Status) -> tuple[str, float]:
    """What is happening in words, and a share of the whole: half for compiling, half for the rounds."""
    if status.state == "queued":
        return f"Waiting for a worker, place {status.place} in the queue", 0.0
    phase, figures = status.phase or "start", status.progress
    words = _PHASES.get(phase, phase)
    done, of = figures.get("done", 0), figures.get("of", 1)
    if phase in ("warm up", "rounds"):
        share = 0.5 + 0.5 * done / of if phase == "rounds" else 0.5
        return f"{words}, round {done + 1} of {of}", share
    program = figures.get("program")
    if program:
        words += f" the {PROGRAM_NAMES.get(program, program)}"
    if "done" in figures:
        words += f", layout {done + 1} of {of}"
    return words, 0.5 * done / of


def _elapsed(status: Status) -> str:
    if status.state == "queued":
        return "It starts when a worker is free; cancelling gives up the place."
    words = f"{seconds_text(status.elapsed)} so far"
    last = status.progress.get("last")
    if status.phase == "rounds" and last is not None:
        left = (status.progress["of"] - status.progress["done"]) * last
        return f"{words}, about {seconds_text(left)} left"
    return f"{words}; how long it will take is not known before the first round"


def _show_result(keys: tuple[str, ...], times: PairedTimes, pins: Pins, baseline: int) -> None:
    places = _places(keys, [_key(found) for _, found in pins])
    shown = paired_times.chosen(times, places, ABSENT)
    if not shown.timed:
        return
    names = [name for name, _ in pins]
    figure = ratio_intervals(shown, names, baseline, width_px=int(page_width.content_px()))
    if figure is not None:
        chart.draw(
            figure,
            "timing_figure",
            alt="Ratio of each layout's time to the baseline's, with its interval",
        )
    said = paired_times_text.sentences(shown, names, baseline)
    said += paired_times_text.other_work(shown, [found for _, found in pins], names, baseline)
    st.markdown("\n".join(f"- {plain(sentence)}" for sentence in said))
    if not screenshot_mode.on():
        with st.expander("Table"):
            table.show(paired_times_text.columns(shown, names, baseline), key="timing_table")
            versions = ", ".join(f"{name} {number}" for name, number in times.versions.items())
            st.caption(plain(f"Timed {times.created}, {versions}."))


def _places(keys: Sequence[str], pinned: Sequence[str]) -> list[int | None]:
    """For each pin the number that its layout had when it was timed; equal layouts in their order."""
    left = list(enumerate(keys))
    places: list[int | None] = []
    for key in pinned:
        found = next((pair for pair in left if pair[1] == key), None)
        if found is not None:
            left.remove(found)
        places.append(None if found is None else found[0])
    return places


def _key(found: Snapshot) -> str:
    """What a layout is known by when pins come, go and change their order."""
    # Of a Snapshot without a layout nothing is timed, and its place is as good as any other's.
    return json.dumps(found.layout, sort_keys=True)
