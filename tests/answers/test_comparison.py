"""Marks and remarks of the board."""

from __future__ import annotations

from inspector.answers import comparison
from inspector.answers.section import Mark, Strong
from inspector.compare.question import Answer, Better, Question, QuestionRow, Statement


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


def test_any_column_of_the_board_can_be_the_baseline() -> None:
    answers = (Answer(2, "2", "worse", "+100%", "another model"), Answer(1, "1", "baseline"))
    row_ = Question("Memory", "train_step", "less", answers)
    table = comparison.board_table("board", ["one", "two"], [row_], baseline=1)
    assert [column.heading for column in table.columns] == ["Question", "one", "two (baseline)"]
    assert table.rows == (
        (Strong("Memory"), "", ""),
        (
            "train_step",
            ("2", " ", Mark("✗ +100% worse", "error"), " (another model)"),
            ("1",),
        ),
    )


def test_rows_of_the_train_state_with_the_same_verdicts_are_one() -> None:
    sizes = {
        name: row_of("Train state", name, "less", *values)
        for name, values in (("State", (80, 10)), ("Copies", (8, 1)), ("Largest", (10, 20)))
    }
    main, others = comparison.board_rows(list(sizes.values()))
    assert main == [sizes["State"], sizes["Largest"]] and others == [sizes["Copies"]]


def row_of(section: str, title: str, better: Better, *values: int) -> Question:
    return QuestionRow(section, title, better, [Statement.of_number(value) for value in values]).compared(0)
