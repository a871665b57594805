"""The board's section that times the pinned layouts together."""

import json
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from inspector.answers import paired_times as section_of_times
from inspector.answers.program_run import PHASE_NAMES, phase_label
from inspector.answers.section import Folded, text
from inspector.compare import paired_times
from inspector.compare.paired_times import DEFAULT_ROUNDS, LEAST_ROUNDS, MOST_ROUNDS, Candidates, PairedTimes
from inspector.jobs.engine import Status
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Progress, Request
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import asked, screenshot_mode, user
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import counted, left_text, whole_seconds_text

Pins = Sequence[tuple[str, Snapshot]]

ABSENT = "it was not pinned when the others were timed"
_JOB, _RESULT = "timing", "timing_result"
_PHASES = PHASE_NAMES | {"warm up": "Warming up", "rounds": "Timing"}
_ROUNDS_PX = 130


def show(pins: Pins, baseline: int) -> None:
    """Draw the section, for at least two pins that can run. `baseline` is the index of a pin."""
    if not screenshot_mode.on():
        _show_controls(user.service(), pins, baseline)
    if (last := st.session_state.get(_RESULT)) is not None:
        keys, times = last
        _show_result(keys, times, pins, baseline)


def _show_controls(service: Inspection, pins: Pins, baseline: int) -> None:
    with st.container():
        if asked.show_progress(_JOB):
            return
        candidates = service.timing_candidates([snapshot for _, snapshot in pins], baseline)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.session_state.setdefault("timing_rounds", DEFAULT_ROUNDS)
            rounds = st.number_input(
                "Rounds",
                min_value=LEAST_ROUNDS,
                max_value=MOST_ROUNDS,
                key="timing_rounds",
                width=_ROUNDS_PX,
                persist_state="session",
                help="Each round runs every layout once. More rounds give narrower intervals.",
            )
            request = _request(service, pins, int(rounds), baseline)
            if st.button(
                "Time layouts",
                key="timing_button",
                type="secondary" if st.session_state.get(_RESULT) else "primary",
                icon=":material/timer:",
            ):
                asked.of(_JOB).again(request)
                st.rerun()
        st.caption(_description(candidates, [name for name, _ in pins], baseline))
    asked.show_failure(_JOB, request.key)


def _description(candidates: Candidates, names: Sequence[str], baseline: int) -> str:
    """Return the effect of the button and which layouts cannot be timed, as Markdown."""
    base = baseline if baseline in candidates.layouts else min(candidates.layouts)
    first = (
        f"Runs train step and inference of {counted(len(candidates.layouts), 'layout')} in turn in "
        f"one process with {counted(candidates.devices, 'emulated device')}, and gives ratios to "
        f"{names[base]}."
    )
    excluded = [f"{names[pin.layout]} cannot be timed: {pin.reason}." for pin in candidates.untimed]
    return "\n".join([plain(first), "", *(f"- {plain(line)}" for line in excluded)])


def _request(service: Inspection, pins: Pins, rounds: int, baseline: int) -> Request[PairedTimes]:
    snapshots = [snapshot for _, snapshot in pins]

    def keep(times: PairedTimes) -> None:
        st.session_state[_RESULT] = ([*map(_key, snapshots)], times)

    return replace(service.timing(snapshots, rounds, baseline), describe=_progress, keep=keep)


def _progress(status: Status) -> Progress:
    """Return the progress; compiling counts as one half, the rounds as the other."""
    phase, figures = status.phase or "start", status.progress
    label = phase_label(_PHASES, phase, figures)
    done, of = figures.get("done", 0), figures.get("of", 1)
    elapsed = f"{whole_seconds_text(status.elapsed)} elapsed"
    if phase not in ("warm up", "rounds"):
        if "done" in figures:
            label += f", layout {done + 1} of {of}"
        return Progress(label, 0.5 * done / of, f"{elapsed}.")
    share = 0.5 + 0.5 * done / of if phase == "rounds" else 0.5
    if phase == "rounds" and "last" in figures:
        elapsed += f", {left_text((of - done) * figures['last'])}"
    return Progress(f"{label}, round {done + 1} of {of}", share, f"{elapsed}.")


def _show_result(keys: Sequence[str], times: PairedTimes, pins: Pins, baseline: int) -> None:
    places = _places(keys, [_key(snapshot) for _, snapshot in pins])
    shown = paired_times.chosen(times, places, ABSENT)
    if not shown.timed:
        return
    said, rows = section_of_times.section(shown, pins, baseline).blocks
    versions = ", ".join(f"{name} {number}" for name, number in times.versions.items())
    created = text(f"Timed {times.created}, {versions}.", quiet=True)
    render.show([said, Folded("Table", (rows, created))])


def _places(keys: Sequence[str], pinned: Sequence[str]) -> list[int | None]:
    """Return the index at which each pinned layout was timed. Equal layouts keep their order."""
    left = list(enumerate(keys))
    places: list[int | None] = []
    for key in pinned:
        match = next((pair for pair in left if pair[1] == key), None)
        if match is not None:
            left.remove(match)
        places.append(None if match is None else match[0])
    return places


def _key(snapshot: Snapshot) -> str:
    """Return what identifies a layout when pins are added, removed or reordered."""
    return json.dumps(snapshot.layout, sort_keys=True)
