"""Marks and remarks of the board."""

from __future__ import annotations

from inspector.compare.difference import Answer, Question
from inspector.sections import comparison


def row(section: str, *remarks: str, verdict: str = "not comparable") -> Question:
    answers = tuple(Answer(1.0, "1", verdict, remark=remark) for remark in remarks)
    return Question(section, "title", None, answers)


def test_a_remark_is_shown_once_per_column_and_section() -> None:
    rows = [
        row("Memory", "", "planned", "other arrays"),
        row("Memory", "", "planned", "another model"),
        row("Memory", "", "", "another model"),
        row("Memory", "timed apart", "planned", "other arrays"),
        row("Time", "timed apart", "planned", "other arrays"),
    ]
    assert comparison.remarks(rows) == [
        ["", "planned", "other arrays"],
        ["", "", "another model"],
        ["", "", ""],
        ["timed apart", "", "other arrays"],
        ["timed apart", "planned", "other arrays"],
    ]


def test_a_remark_that_qualifies_a_mark_is_repeated() -> None:
    rows = [row("Memory", "another model", verdict=verdict) for verdict in ("worse", "better")]
    assert comparison.remarks(rows) == [["another model"], ["another model"]]


def test_notes_list_at_most_three_titles() -> None:
    titles = [
        "train_step, all",
        "train_step, over data",
        "apply, all",
        "apply, over data",
        "init, all",
    ]
    assert comparison.titles_text(titles[:1]) == "train_step, all"
    assert comparison.titles_text(titles[:4]) == " · ".join(titles[:4])
    assert comparison.titles_text(titles) == f"{' · '.join(titles[:3])} · 2 more rows"
