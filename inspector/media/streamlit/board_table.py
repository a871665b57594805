"""The board's table: a row per question, a column per layout, with marks against the baseline."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import streamlit as st

from inspector.compare.board import Board
from inspector.compare.difference import Answer, Question
from inspector.compare.difference.program_rows import OWN_RUN
from inspector.media.streamlit.plain_text import plain
from inspector.sections import comparison

_LINE = "  \n"
_TITLES_REM, _COLUMN_REM = 15.5, 6.5  # a narrow page scrolls the table
_BESIDE = " &ensp; "
_MARKED = ("better", "worse", "different")
_MOST_BESIDE = 4  # columns in which a verdict fits next to its figure

# All columns have the same width; long words break.
_STYLE = """<style>
.st-key-board_table [data-testid="stTable"] { overflow-x: auto; }
.st-key-board_table table { table-layout: fixed; width: 100%; min-width: LEAST_WIDTHrem; }
.st-key-board_table th:first-child { width: 15.5rem; }
.st-key-board_table :is(td, th) {
  vertical-align: top; overflow-wrap: anywhere; white-space: normal; padding: 0.24rem 0.5rem !important;
  font-size: 0.87rem; line-height: 1.35;
}
.st-key-board_table :is(td, th) * { overflow-wrap: anywhere !important; white-space: normal !important; }
.st-key-board_table p { margin: 0; }
.st-key-board_table th { color: inherit; }
</style>"""


def show(board: Board, rows: Sequence[Question]) -> None:
    """Draw the table."""
    # Imported here because pandas takes 0.2 s to import.
    import pandas as pd

    least = _TITLES_REM + _COLUMN_REM * len(board.pins)
    st.html(_STYLE.replace("LEAST_WIDTH", str(least)))
    with st.container(key="board_table"):
        st.table(
            pd.DataFrame(cells(rows), index=row_titles(rows), columns=headings(board)),
            border="horizontal",
            alt="Layouts side by side",
        )


def headings(board: Board) -> list[str]:
    """Return the names of the layouts as Markdown, with the baseline marked."""
    return [
        f"**{plain(name)}**"
        + (
            f"{_LINE}:small[:gray[baseline]]"
            if place == board.baseline and len(board.pins) > 1
            else ""
        )
        for place, name in enumerate(board.names)
    ]


def row_titles(rows: Sequence[Question]) -> list[str]:
    """Return the questions as Markdown, each after its section."""
    return [f":gray[{plain(row.section)} ·] {plain(row.title)}" for row in rows]


def cells(rows: Sequence[Question]) -> list[list[str]]:
    """Return the answers as Markdown, row by row. A remark is not repeated below itself."""
    count = max((len(row.answers) for row in rows), default=0)
    said, between = [""] * count, _BESIDE if count <= _MOST_BESIDE else _LINE
    made = []
    for row in rows:
        shared = _shared_remarks(row)
        made.append(
            [
                _cell(answer, (said[place], *shared), between)
                for place, answer in enumerate(row.answers)
            ]
        )
        said = [answer.remark or said[place] for place, answer in enumerate(row.answers)]
    return made


def legend(rows: Sequence[Question], count: int, *, brief: bool = False) -> str:
    """Return the meaning of the marks and the notes of rows, as Markdown.

    Args:
      count: the number of columns.
      brief: leave out notes that do not qualify a mark.
    """
    said = ["Marked against the baseline; unmarked answers are equal to it."] if count > 1 else []
    titles: dict[str, list[str]] = {}
    for row in rows:
        for note in (*([] if brief else [row.note]), *_shared_remarks(row, marked=brief)):
            if note and not (note == OWN_RUN and row.note):
                titles.setdefault(note, []).append(row.title)
    said += [
        f"{plain(comparison.titles_text(rows))}: {plain(note[0].lower() + note[1:].removesuffix('.'))}."
        for note, rows in titles.items()
    ]
    return _LINE.join(said)


def _shared_remarks(row: Question, *, marked: bool = False) -> list[str]:
    """Return remarks that several answers of a row share; the legend has them once.

    Args:
      marked: only those of answers with a mark.
    """
    remarks = [
        answer.remark
        for answer in row.answers
        if answer.remark and (not marked or answer.verdict in _MARKED)
    ]
    return [remark for remark in dict.fromkeys(remarks) if remarks.count(remark) > 1]


def _cell(answer: Answer, said_elsewhere: Collection[str], between: str) -> str:
    text = plain(answer.text)
    if answer.verdict in _MARKED:
        text = f"**{text}**"
    elif answer.verdict in ("unknown", "not comparable"):
        text = f":gray[{text}]"
    remark = "" if answer.remark in said_elsewhere else answer.remark
    return between.join(part for part in (text, _mark(answer, remark)) if part)


def _mark(answer: Answer, remark: str) -> str:
    """Return the verdict as a sign and a word, then the remark."""
    change, said = plain(answer.change), []
    if answer.verdict == "better":
        said.append(f":green[**{change} better**]")
    elif answer.verdict == "worse":
        said.append(f":red[**{change} worse**]")
    elif answer.verdict == "different":
        said.append(f":blue[**≠ {change or 'different'}**]")
    elif answer.verdict == "not comparable":
        said.append(":gray[not comparable]")
    if remark:
        said.append(f":gray[{plain(remark)}]")
    return f":small[{': '.join(said)}]" if said else ""
