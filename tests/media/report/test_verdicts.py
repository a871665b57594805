"""What stands beside the figures of a comparison, and that nothing of it is said over and over."""

from __future__ import annotations

from inspector.compare.difference import Answer, Question
from inspector.media.report import verdicts


def row(section: str, *remarks: str, verdict: str = "not comparable") -> Question:
    answers = tuple(Answer(1.0, "1", verdict, remark=remark) for remark in remarks)
    return Question(section, "title", None, answers)


def test_a_remark_is_said_once_in_its_column_and_section() -> None:
    rows = [
        row("Memory", "", "planned", "other arrays"),
        row("Memory", "", "planned", "another model"),
        row("Memory", "", "", "another model"),
        row("Memory", "timed apart", "planned", "other arrays"),
        row("Time", "timed apart", "planned", "other arrays"),
    ]
    assert verdicts.remarks(rows) == [
        ["", "planned", "other arrays"],
        ["", "", "another model"],
        ["", "", ""],
        ["timed apart", "", "other arrays"],
        ["timed apart", "planned", "other arrays"],
    ]


def test_what_qualifies_a_figure_stands_beside_each() -> None:
    rows = [row("Memory", "another model", verdict=verdict) for verdict in ("worse", "better")]
    assert verdicts.remarks(rows) == [["another model"], ["another model"]]


def test_many_rows_are_counted_and_no_single_one_is() -> None:
    titles = [
        "train_step, all",
        "train_step, over data",
        "apply, all",
        "apply, over data",
        "init, all",
    ]
    assert verdicts.titles_text(titles[:1]) == "train_step, all"
    assert verdicts.titles_text(titles[:4]) == " · ".join(titles[:4])
    assert verdicts.titles_text(titles) == f"{' · '.join(titles[:3])} · 2 more rows"
