"""A question that is asked of several Snapshots, with an answer of each and how it compares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["baseline", "better", "worse", "equal", "different", "not comparable", "unknown"]
Better = Literal["less", "more"]
MINUS = "−"
UNKNOWN = "unknown"
NEXT_TO_NOTHING = "<0.1%"  # a change that makes nothing better or worse
# Two floats that come of the same numbers in another order are the same figure.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Statement:
    """What one Snapshot says to a question, before it is held against another.

    text: the answer as people read it. value: the number behind it; None where it is none or not known.
    excluded: why it cannot be compared, in words; empty where it can.
    as_read: whether two that read the same are equal, whatever their further figures.
    """

    text: str
    value: float | None = None
    excluded: str = ""
    as_read: bool = False


@dataclass(frozen=True)
class Answer:
    """The answer of one Snapshot.

    verdict: against the baseline. change: by how much, with a sign: `−25%`; empty if there is none.
    remark: why it is not comparable, or what to keep in mind; empty if there is nothing.
    """

    value: float | None
    text: str
    verdict: Verdict
    change: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Question:
    """A row of the board. `better` is None where neither less nor more is better."""

    section: str
    title: str
    better: Better | None
    answers: tuple[Answer, ...]
    note: str = ""

    @property
    def differs(self) -> bool:
        """Whether an answer is not that of the baseline; what none of them can tell is no difference."""
        verdicts = {one.verdict for one in self.answers}
        if verdicts & {"better", "worse", "different"}:
            return True
        return len(verdicts - {"baseline", "equal"}) > 0 and len({a.text for a in self.answers}) > 1

    @property
    def unknown(self) -> bool:
        """Whether none of them knows an answer."""
        return all(one.value is None and one.text == UNKNOWN for one in self.answers)


def question(
    section: str,
    title: str,
    statements: Sequence[Statement],
    baseline: int,
    better: Better | None = None,
    note: str = "",
    remarks: Sequence[str] | None = None,
) -> Question:
    """Hold every statement against that of the baseline; `remarks` are kept in mind of comparable ones."""
    against = statements[baseline]
    answers = []
    for place, one in enumerate(statements):
        if place == baseline:
            answers.append(Answer(one.value, one.text, "baseline", remark=one.excluded))
            continue
        verdict, change, remark = _verdict(one, against, better)
        if not remark and remarks is not None and verdict not in ("unknown", "equal"):
            remark = remarks[place]
        answers.append(Answer(one.value, one.text, verdict, change, remark))
    return Question(section, title, better, tuple(answers), note)


def change_text(before: float, after: float) -> str:
    """The change with its sign: `−25%`, `+100%`, `×12` from ten times on; `from 0` where there was none."""
    if before == after:
        return ""
    if before == 0:
        return "from 0"
    ratio = after / before
    if ratio >= 10:
        return f"×{ratio:,.0f}"
    percent = 100 * (ratio - 1)
    sign = "+" if percent > 0 else MINUS
    size = abs(percent)
    if size < 0.05:
        return f"{sign}{NEXT_TO_NOTHING}"
    # Only what is gone altogether is −100%.
    digits = 1 if size < 10 or (sign == MINUS and 99.5 <= size < 100) else 0
    if digits and sign == MINUS and size >= 99.95 and after:
        return f"nearly {sign}100%"
    return f"{sign}{size:.{digits}f}%"


def _verdict(one: Statement, against: Statement, better: Better | None) -> tuple[Verdict, str, str]:
    for side, which in ((one, ""), (against, "the baseline: ")):
        if side.excluded:
            return "not comparable", "", which + side.excluded
    if one.value is None and against.value is None:
        if UNKNOWN in (one.text, against.text):
            return "unknown", "", ""
        return ("equal" if one.text == against.text else "different"), "", ""
    if one.value is None or against.value is None:
        return "unknown", "", "" if one.value is None else "unknown of the baseline"
    if math.isclose(one.value, against.value, rel_tol=_ROUNDING, abs_tol=0.0):
        same_words = better is not None or one.text == against.text
        return ("equal" if same_words else "different"), "", ""
    if one.as_read and against.as_read and one.text == against.text:
        return "equal", "", ""
    change = change_text(against.value, one.value)
    if better is None or change.endswith(NEXT_TO_NOTHING):
        return "different", change, ""
    improved = (one.value < against.value) == (better == "less")
    return ("better" if improved else "worse"), change, ""
