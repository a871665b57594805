"""The verdict about two steps as an answer of the Board."""

from __future__ import annotations

from inspector.compare.compared import Compared
from inspector.compare.question import Answer, Verdict, change_text
from inspector.compare.verdict import of_step


def time_answer(reference: Compared, compared: Compared, value: float | None, text: str) -> Answer:
    """Return the verdict as the answer of one layout in a row of steps."""
    if compared is reference:
        return Answer(value, text, "baseline")
    judged = of_step(reference, compared)
    if value is None or reference.assessment.step is None:
        return Answer(value, text, "unknown", remark=judged.reason or "")
    if judged.ratio is None:
        return Answer(value, text, "not comparable", remark=judged.reason or "")
    change = change_text(1.0, judged.ratio)
    answer: Verdict = "equal" if not change else judged.answer
    return Answer(value, text, answer, change, judged.reason or "")
