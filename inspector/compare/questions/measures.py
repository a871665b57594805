"""The rows about a step: memory, time, traffic and FLOPs, each with its parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from inspector.compare import amounts
from inspector.compare.amounts import TITLES, Amount, Kind
from inspector.compare.compared import Compared, work_of
from inspector.compare.question import Answer, Question
from inspector.compare.ratio import change_of
from inspector.compare.verdict import of_step
from inspector.machines import hardware
from inspector.machines.hardware import Chip

ANSWERS = "Answers"


@dataclass(frozen=True)
class Measure(Question):
    """A row about a step. Less is better.

    kind: the measured quantity.
    chip_name: the chip of `limit` or of the prediction; None if unknown, or if the layouts have several.
    amounts: one of each layout. The answers say how they compare with the baseline.
    """

    kind: Kind = "memory"
    chip_name: str | None = None
    amounts: tuple[Amount, ...] = ()

    @property
    def chip(self) -> Chip | None:
        return hardware.CHIPS.get(self.chip_name or "")

    @property
    def part_names(self) -> tuple[str, ...]:
        """The names of all parts in the order of the stack, from the bottom up."""
        return tuple(dict.fromkeys(part.name for amount in self.amounts for part in amount.parts))

    def text(self, amount: float | None) -> str:
        """Return an amount with its unit; `unknown` for None."""
        return amounts.amount_text(self.kind, amount)


def measures(every: Sequence[Compared], baseline: int = 0) -> tuple[Measure, ...]:
    """Return memory, time, traffic and FLOPs of the step of each layout, as their assessments have them.

    Args:
      baseline: the index of the layout that the others are compared with.
    """
    chips = {compared.assessment.chip for compared in every}
    names = {compared.assessment.program for compared in every}
    measures = []
    for kind, title in TITLES.items():
        own = tuple(amounts.amount(kind, compared) for compared in every)
        if kind == "time":
            answers = tuple(map(partial(_of_time, every[baseline]), every, own))
        else:
            answers = amounts.answers(kind, every, baseline)
        # Why an amount is unknown is said next to it, also of the baseline.
        answers = tuple(
            replace(answer, remark=amount.unknown or answer.remark)
            for answer, amount in zip(answers, own, strict=True)
        )
        program = next(iter(names)) if len(names) == 1 else None
        chip = next(iter(chips)) if len(chips) == 1 else None
        measures.append(Measure(ANSWERS, title, "less", answers, program, kind, chip, own))
    return tuple(measures)


def _of_time(reference: Compared, compared: Compared, amount: Amount) -> Answer:
    """Return the verdict about two steps as an answer."""
    if compared is reference:
        return Answer(amount.value, amount.text, "baseline")
    judged = of_step(reference, compared)
    remark = judged.reason or ""
    if amount.value is None or reference.assessment.step is None:
        return Answer(amount.value, amount.text, "unknown", remark=remark)
    if judged.ratio is None:
        return Answer(amount.value, amount.text, "not comparable", remark=remark)
    change, work = change_of(judged), work_of(reference, compared)
    remark = "; ".join(filter(None, (work.why, remark)))
    verdict = "equal" if judged.low == judged.high == 1 else judged.answer
    return Answer(amount.value, amount.text, verdict, change, remark, work.per if change else "")
