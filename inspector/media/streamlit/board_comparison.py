"""The board's comparison: the largest differences in sentences, then the table."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from inspector.checks import audit
from inspector.compare import difference
from inspector.compare.board import MOST_PINS, Board, Pin
from inspector.compare.difference import Question
from inspector.core.formatting import counted
from inspector.core.snapshot import Snapshot
from inspector.machines import hardware
from inspector.media.streamlit import board_table, screenshot_mode
from inspector.media.streamlit.plain_text import plain

# The largest differences; the others are in an expander.
_MOST_SENTENCES = 3
_MOST_COLUMNS = 3
_ALWAYS = ("Source", "Mesh")  # rows that are always shown
_STYLE = """<style>
.st-key-board_sentences li { font-size: 0.93rem; line-height: 1.4; margin: 0.1rem 0 0.1rem 1.1rem; }
.st-key-board_sentences p { margin-bottom: 0.2rem; }
</style>"""
_FIRST_PROGRAM = "train_step"


def show(board: Board) -> None:
    """Draw the differences of each layout from the baseline, then the table."""
    chip = hardware.CHIPS[board.chip]
    board = replace(board, pins=tuple(_audited(pin) for pin in board.pins))
    _sentences(board, chip)
    rows = difference.questions(board.snapshots, board.baseline, chip)
    kept = _kept(rows, board.snapshots)
    board_table.show(board, kept)
    brief = screenshot_mode.on()
    legend = board_table.legend(kept, len(board.pins), brief=brief)
    if brief:
        legend += f"  \n{counted(len(rows) - len(kept), 'row')} not shown."
    st.caption(legend)


def _audited(pin: Pin) -> Pin:
    """Return the pin with the findings of the audit."""
    return replace(pin, snapshot=audit.audited(pin.snapshot))


def _sentences(board: Board, chip: hardware.Chip) -> None:
    if len(board.pins) == 1:
        st.caption(f"Pin another layout (at most {MOST_PINS}) to compare.")
        return
    baseline = board.pins[board.baseline]
    others = [pin for place, pin in enumerate(board.pins) if place != board.baseline]
    st.html(_STYLE)
    with st.container(key="board_sentences"):
        columns = st.columns(min(len(others), _MOST_COLUMNS), gap="medium")
        for place, pin in enumerate(others):
            with columns[place % len(columns)]:
                _against(baseline, pin, chip, _most_sentences(len(others)))


def _most_sentences(others: int) -> int:
    """Return the number of sentences per comparison, so that the table stays on the page."""
    if others > _MOST_COLUMNS:
        return 1
    return _MOST_SENTENCES - 1 if screenshot_mode.on() else _MOST_SENTENCES


def _against(baseline: Pin, pin: Pin, chip: hardware.Chip, most: int) -> None:
    said = difference.sentences(baseline.snapshot, pin.snapshot, chip)
    reserved = [caveat.text for caveat in difference.caveats(baseline.snapshot, pin.snapshot)]
    shown_reserved = reserved[: 1 if screenshot_mode.on() else most]
    lines = [f"**{plain(pin.name)}** compared with **{plain(baseline.name)}**"]
    lines += [f"- {plain(sentence)}" for sentence in said[:most] or ("Nothing differs.",)]
    lines += [f"- :gray[{plain(sentence)}]" for sentence in shown_reserved]
    st.markdown("\n".join(lines))
    rest = [*said[most:], *reserved[len(shown_reserved) :]]
    if rest and not screenshot_mode.on():
        with st.expander(counted(len(rest), "more sentence")):
            st.markdown("\n".join(f"- {plain(sentence)}" for sentence in rest))


def _kept(rows: tuple[Question, ...], snapshots: tuple[Snapshot, ...]) -> list[Question]:
    """Draw the choices for the table, and return its rows."""
    programs = list(dict.fromkeys(one.name for found in snapshots for one in found.programs))
    with screenshot_mode.controls(
        "table", horizontal=True, vertical_alignment="center", gap="medium"
    ):
        chosen = _choose_program(programs)
        everything = st.toggle(
            "Show equal rows",
            key="board_equal_rows",
            help="Also show rows that are the same in every layout.",
        )
    others = tuple(f"{name} " for name in programs if name != chosen) + tuple(
        f"{name}," for name in programs if name != chosen
    )
    return [
        row
        for row in rows
        if not row.title.startswith(others)
        and (everything or len(snapshots) == 1 or _varies(row) or row.title in _ALWAYS)
    ]


def _varies(row: Question) -> bool:
    """Return whether the layouts differ in this row."""
    return row.differs and len({answer.text for answer in row.answers}) > 1


def _choose_program(programs: list[str]) -> str | None:
    if len(programs) < 2:
        return programs[0] if programs else None
    key = "board_program"
    if st.session_state.get(key) not in programs:
        first = _FIRST_PROGRAM if _FIRST_PROGRAM in programs else programs[0]
        st.session_state[key] = first
    return st.segmented_control(
        "Program", programs, key=key, required=True, label_visibility="collapsed", format_func=plain
    )
