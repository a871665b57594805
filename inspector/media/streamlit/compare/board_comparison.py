"""The layouts side by side: verdict, picture, table, differences in sentences, and times that are paired."""

import json
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from inspector import audit
from inspector.answers import comparison, glance
from inspector.answers import comparison as section_of_times
from inspector.answers.program_run import PHASE_NAMES, phase_label
from inspector.answers.section import Block, Columns, Folded, Strong, text
from inspector.compare import paired_times
from inspector.compare.board import MOST_PINS, Board
from inspector.compare.compared import compared
from inspector.compare.paired_times import DEFAULT_ROUNDS, LEAST_ROUNDS, MOST_ROUNDS, Candidates, PairedTimes
from inspector.compare.question import Question
from inspector.compare.questions import StepMeasure, questions
from inspector.jobs.engine import Status
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Progress, Request
from inspector.machines import hardware
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import asked, kept_field, screenshot_mode, user
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import and_text, counted, left_text, whole_seconds_text
from inspector.text.program_names import title

Pins = Sequence[tuple[str, Snapshot]]

ABSENT = "it was not pinned when the others were timed"
_JOB, _RESULT = "timing", "timing_result"
_PHASES = PHASE_NAMES | {"warm up": "Warming up", "rounds": "Timing"}
_ROUNDS_PX = 130
_MOST_SENTENCES = 3  # of one layout; the others are in an expander
_MOST_COLUMNS = 3
# All columns of the table have the same width. Three layouts fit on a page of 400 pixels, which scrolls more.
_STYLE = """<style>
.st-key-board_sentences li { font-size: 0.93rem; line-height: 1.4; }
.st-key-board_table [data-testid="stMarkdownContainer"] { overflow-x: auto; }
.st-key-board_table table { table-layout: fixed; width: 100%;
  min-width: calc(min(14rem, 30vw) + LAYOUTS * min(6.5rem, 20vw)); }
.st-key-board_table th:first-child { width: min(14rem, 30vw); }
.st-key-board_table :is(td, th) {
  vertical-align: top; overflow-wrap: anywhere; white-space: normal; padding: 0.24rem 0.5rem !important;
  font-size: 0.87rem; line-height: 1.35;
}
</style>"""


def show(board: Board, computing: Sequence[str] = ()) -> None:
    """Draw the verdict and the picture, the table, then the differences of each from the baseline.

    computing: the names of the layouts that are being compiled. Until they are, there is no verdict.
    """
    chip = hardware.CHIPS.get(board.chip or "")
    named = [(name, audit.audited(snapshot)) for name, snapshot in board.named]
    st.html(_STYLE.replace("LAYOUTS", str(len(named))))
    width_px = screenshot_mode.content_px()
    if computing:
        st.caption(f"The verdict follows when {plain(and_text(list(computing)))} is compiled.")
    else:
        render.show(comparison.verdict(named, chip, board.baseline).blocks)
    # In Screenshot mode, closed details are hidden.
    render.show(glance.section(glance.of(named, chip, board.baseline)).blocks, width_px=width_px)
    if len(named) == 1:
        st.caption(f"Pin another layout (at most {MOST_PINS}) to compare.")
    rows = questions(compared(named, chip), board.baseline)
    kept = _kept(rows, len(named))
    with st.container(key="board_table"):
        render.show([comparison.board_table("board", board.names, kept, board.baseline)])
    if screenshot_mode.on():
        st.caption(f"{counted(len(rows) - len(kept), 'row')} not shown.")
    elif len(named) > 1:
        render.show([comparison.legend(board.names[board.baseline])])
    if len(named) > 1:
        with st.container(key="board_sentences"), st.expander("Differences in sentences"):
            _sentences(named, chip, board.baseline, width_px)


def _sentences(named: comparison.Named, chip: hardware.Chip | None, baseline: int, width_px: int) -> None:
    """Draw few sentences, so that the table stays on the page."""
    most = 1 if len(named) - 1 > _MOST_COLUMNS else _MOST_SENTENCES
    against = Strong(named[baseline][0])
    columns: list[tuple[Block, ...]] = [() for _ in range(min(len(named) - 1, _MOST_COLUMNS))]
    changes = comparison.differences(named, chip, baseline, most, most)
    for place, (name, blocks) in enumerate(changes):
        columns[place % len(columns)] += (text(Strong(name), " compared with ", against), *blocks)
    render.show([Columns(tuple(columns))], width_px=width_px)


def _kept(rows: Sequence[Question], count: int) -> list[Question]:
    """Draw the choices for the table, and return its rows."""
    of_programs = [row for row in rows if row.program and not isinstance(row, StepMeasure)]
    programs = list(dict.fromkeys(row.program for row in of_programs if row.program))
    with screenshot_mode.controls("table", horizontal=True, vertical_alignment="center", gap="medium"):
        chosen = _choose_program(programs)
        everything = st.toggle(
            "All rows",
            key="board_equal_rows",
            help="Also show parts of memory, step and traffic, equal answers, and all of the train state.",
        )
    main, _ = comparison.board_rows(rows)
    shown = comparison.every_row(rows) if everything or count == 1 else main
    return [row for row in shown if row not in of_programs or row.program == chosen]


def _choose_program(programs: list[str]) -> str | None:
    """Return the chosen program, at first the train step."""
    if len(programs) < 2:
        return programs[0] if programs else None
    return kept_field.choose(
        "Program", programs, "board_program", format_func=lambda name: plain(title(name))
    )


def show_times(pins: Pins, baseline: int) -> None:
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
