"""One question to several Snapshots: an answer per Snapshot, compared with a baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from inspector.layout.plan import rejection
from inspector.records.assessment import LEAST_CHANGE, REJECTED
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import bytes_text

Verdict = Literal[
    "baseline",
    "better",
    "worse",
    "equal",
    "different",
    "not distinguishable",
    "not comparable",
    "unknown",
]
Better = Literal["less", "more"]
# Signs of answers, so that nothing depends on a color.
SIGNS: Mapping[str, str] = {
    "better": "✓",
    "worse": "✗",
    "different": "≠",
    "not distinguishable": "≈",
    "not comparable": "∅",
}
MINUS = "−"
UNKNOWN = "unknown"
# A larger ratio says little: the smaller of the two is nearly nothing.
LARGEST_RATIO = 100
# Sums of the same floats in another order are equal.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class WorkScale:
    """How a value is compared if a step of its layout does other work than a step of the baseline.

    Attributes:
      scale: the factor that makes the value one of the work of the baseline, such as the same tokens.
      per: the unit of the change, `per token`; "" if the work is the same.
      why: the sizes that differ, `batches differ`; "" if the work is the same.
    """

    scale: float = 1.0
    per: str = ""
    why: str = ""


SAME_WORK = WorkScale()


@dataclass(frozen=True)
class Statement:
    """The answer of one Snapshot, before it is compared.

    text: the answer as shown. value: its number; None if unknown or not a number.
    excluded: why the answer cannot be compared; empty if it can.
    as_read: whether two answers with the same text are equal, even if their values differ.
    parts: the terms whose sum is the value, by name.
    work: how it is compared if the work of a step differs.
    relative: whether its change has a percentage.
    """

    text: str
    value: float | None = None
    excluded: str = ""
    as_read: bool = False
    parts: Mapping[str, float] | None = None
    work: WorkScale = SAME_WORK
    relative: bool = True

    @classmethod
    def of_number(cls, value: int | None, zero: str = "0") -> Self:
        """Return a number as an answer, with the text `zero` for 0."""
        return cls(UNKNOWN if value is None else f"{value:,}" if value else zero, value)

    @classmethod
    def of_bytes(cls, value: int | None) -> Self:
        return cls(bytes_text(value), value)


@dataclass(frozen=True)
class Answer:
    """The answer of one Snapshot, compared with the baseline.

    change: the signed change, such as `−25%`, or an empty string.
    remark: why the answer is not comparable, or a caveat, or an empty string.
    per: the unit of the change, such as `per token`; empty for the whole step.
    """

    value: float | None
    text: str
    verdict: Verdict
    change: str = ""
    remark: str = ""
    per: str = ""


@dataclass(frozen=True)
class Question:
    """A row of the comparison. `better` is None if neither less nor more is better.

    program: the program that the question is about; None if it is about the layout, its arrays or its step.
    """

    section: str
    title: str
    better: Better | None
    answers: tuple[Answer, ...]
    program: str | None = None

    @property
    def differs(self) -> bool:
        """Whether an answer differs from the baseline. Answers that are all unknown do not differ."""
        verdicts: set[str] = {answer.verdict for answer in self.answers}
        known = verdicts & {"better", "worse", "different", "not distinguishable"}
        uncompared = verdicts - {"baseline", "equal"}
        texts = {answer.text for answer in self.answers}
        return bool(known) or (bool(uncompared) and len(texts) > 1)

    @property
    def unknown(self) -> bool:
        """Whether the answer is unknown for every Snapshot."""
        return all(answer.value is None and answer.text == UNKNOWN for answer in self.answers)


@dataclass(frozen=True)
class QuestionRow:
    """The statements of all Snapshots on one question, before they are compared."""

    section: str
    title: str
    better: Better | None
    statements: Sequence[Statement]
    program: str | None = None

    def without(self, excluded: Sequence[str]) -> QuestionRow:
        """Return the row with reasons why the answers of some Snapshots cannot be compared; "" for others."""
        statements = [
            replace(statement, excluded=statement.excluded or why)
            if statement.value is not None
            else statement
            for statement, why in zip(self.statements, excluded, strict=True)
        ]
        return replace(self, statements=statements)

    def of_work(self, works: Sequence[WorkScale]) -> QuestionRow:
        """Return the row whose values are compared for the same work."""
        pairs = zip(self.statements, works, strict=True)
        return replace(self, statements=[replace(statement, work=work) for statement, work in pairs])

    def compared(self, baseline: int, remarks: Sequence[str] | None = None) -> Question:
        """Compare every statement with that of the baseline. `remarks` go to the comparable answers.

        A single Snapshot is compared with nothing, so no remark says why it cannot be.
        """
        answers, alone = [], len(self.statements) == 1
        for place, statement in enumerate(self.statements):
            verdict: Verdict = "baseline"
            change, remark = "", "" if alone else statement.excluded
            if place != baseline:
                verdict, change, remark = _verdict(statement, self.statements[baseline], self.better)
                if not remark and verdict not in ("unknown", "equal"):
                    said = "" if remarks is None else remarks[place]
                    remark = ", ".join(filter(None, (said, statement.work.why)))
            per = statement.work.per if verdict in ("better", "worse") else ""
            answers.append(Answer(statement.value, statement.text, verdict, change, remark, per))
        return Question(self.section, self.title, self.better, tuple(answers), self.program)


def mark(answer: Answer, words: bool = True) -> str:
    """Return `✓ −25% better`, `✓ −25% better per token`, `≠ different` or `∅ not comparable`.

    It is empty for the baseline, for equal answers, and if either of the two is unknown.

    words: whether there is room for more than the sign and the change.
    """
    if answer.verdict not in SIGNS:
        return ""
    said = (SIGNS[answer.verdict], answer.change, answer.verdict if words else "", answer.per)
    return " ".join(part for part in said if part)


def without_rejected(rows: Iterable[QuestionRow], snapshots: Sequence[Snapshot]) -> list[QuestionRow]:
    """Return the rows in which no number of a layout that JAX rejects can be compared."""
    refused = [REJECTED if rejection(snapshot) else "" for snapshot in snapshots]
    return [row.without(refused) for row in rows]


def change_text(before: float, after: float) -> str:
    """Return the signed change: `−25%`, `+100%`, `×12` from a factor of 10, `from 0`; "" below 1%."""
    if before == after:
        return ""
    if before == 0:
        return "from 0"
    ratio = after / before
    if abs(ratio - 1) < LEAST_CHANGE:
        return ""
    if ratio > LARGEST_RATIO:
        return f"more than ×{LARGEST_RATIO}"
    if ratio >= 10:
        return f"×{ratio:,.0f}"
    percent = 100 * (ratio - 1)
    sign = "+" if percent > 0 else MINUS
    size = abs(percent)
    # −100% means that nothing is left.
    digits = 1 if size < 10 or (sign == MINUS and 99.5 <= size < 100) else 0
    if digits and sign == MINUS and size >= 99.95 and after:
        return f"nearly {sign}100%"
    return f"{sign}{size:.{digits}f}%"


def _verdict(statement: Statement, reference: Statement, better: Better | None) -> tuple[Verdict, str, str]:
    for side, prefix in ((statement, ""), (reference, "the baseline: ")):
        if side.excluded:
            return "not comparable", "", prefix + side.excluded
    value, base = statement.value, reference.value
    if value is not None:
        value *= statement.work.scale
    same_text = statement.text == reference.text and statement.work.scale == 1
    if value is None and base is None:
        if UNKNOWN in (statement.text, reference.text):
            return "unknown", "", ""
        return ("equal" if same_text else "different"), "", ""
    if value is None or base is None:
        return "unknown", "", "" if value is None else "unknown for the baseline"
    if math.isclose(value, base, rel_tol=_ROUNDING, abs_tol=0.0):
        return ("equal" if better is not None or same_text else "different"), "", ""
    if statement.as_read and reference.as_read and same_text:
        return "equal", "", ""
    change = change_text(base, value)
    if better is None:
        return "different", "", ""
    if not change:
        return "equal", "", ""
    if not value or not statement.relative:
        change = ""  # `none`, and small counts, say it themselves
    return ("better" if (value < base) == (better == "less") else "worse"), change, ""
