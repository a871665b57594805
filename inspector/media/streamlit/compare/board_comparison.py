"""The layouts side by side: the verdict, one picture, the table, then the differences in sentences."""

from collections.abc import Sequence

import streamlit as st

from inspector import audit
from inspector.answers import comparison, glance
from inspector.answers.section import Block, Columns, Strong, text
from inspector.compare.board import MOST_PINS, Board
from inspector.compare.compared import compared
from inspector.compare.questions import Question, questions
from inspector.compare.questions.questions import StepMeasure
from inspector.machines import hardware
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import kept_field, screenshot_mode
from inspector.text.formatting import and_text, counted
from inspector.text.program_names import title

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
