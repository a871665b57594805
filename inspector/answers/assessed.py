"""The answers of an assessment: does it fit, how long is a step, what does it send, and what is wrong."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from inspector.answers.section import Fact, Facts, Strong, Text, text
from inspector.assessment import assess
from inspector.assessment.assess import chip_title
from inspector.assessment.because import axes_text
from inspector.machines.hardware import Chip
from inspector.prediction.evidence import HOST_MOVES
from inspector.records.assessment import LEAST_CHANGE, MEMORY, RANGE, UNKNOWN_AXES, Assessment, StepTraffic
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import bytes_text, counted, seconds_text, share_text
from inspector.text.program_names import noun, run_of


def facts(snapshot: Snapshot, chip: Chip | None) -> Facts:
    """Return the four answers. If a recorded job has several programs, they name theirs.

    chip: for a Snapshot without one.
    """
    assessment = assess(snapshot, chip)
    memory, *others = of_assessment(assessment).facts
    if snapshot.layout is not None or len(snapshot.programs) < 2:
        return Facts((memory, *others), long=True)
    step, traffic, found = others
    if assessment.memory is not None and assessment.memory.program:
        memory = replace(memory, label=f"{memory.label}, {assessment.memory.program}")
    step, traffic = (
        replace(fact, label=f"{name} of {assessment.program}{comma}{rest}")
        for fact in (step, traffic)
        for name, comma, rest in [fact.label.partition(",")]
    )
    return Facts((memory, step, traffic, found), long=True)


def of_assessment(assessment: Assessment, before: Assessment | None = None) -> Facts:
    """Return the four answers of an assessment: short values, and their meaning as help.

    before: the assessment of another layout. Answers that differ from its answers have a `change`.
    """
    based = f"Based on: {assessment.stage}."
    known = assessment.step
    # The value of a lower bound says `at least`.
    step = "Step" if known is None else "Step, lower bound" if known.at_least else f"Step, {known.kind}"
    if known is None and assessment.chip is None:
        # Another run of a compiled program measures its step if it is profiled.
        step = f"Step, needs {'run --profile' if assessment.basis == 'compiled' else 'a run'} or a chip"
    if known is not None and known.outside:
        step += ", unchecked"  # its bounds are too long for a label; they are in the bar below
    elif known is not None and known.interval:
        few = known.ends == RANGE
        if known.kind == "measured":  # the number of steps says so
            step = f"Step, {known.steps if few else '80% of'} steps {known.interval}"
        else:
            step += f", {known.interval}"
    sent = assessment.traffic
    traffic = "Traffic"
    if assessment.traffic_made:  # with the share, a tile would cut it off
        traffic += f", {assessment.traffic_made}"
    elif sent is not None and sent.bytes:
        traffic += f", {_over_largest(sent)}"
    answers = (
        Fact(
            fits_label(assessment),
            _memory_text(assessment),
            f"{_fits_help(assessment)} {based}",
            *_change(assessment, before, _peak, bytes_text),
        ),
        Fact(
            step,
            "unknown" if known is None else known.value_text,
            f"{_step_help(assessment)} {based}",
            *_change(assessment, before, _seconds, seconds_text),
            assessment.chip if known is not None and known.kind == "predicted" and known.interval else None,
        ),
        Fact(
            traffic,
            _sent_text(assessment),
            f"{_traffic_help(assessment)} {based}",
            *_change(assessment, before, _sent, bytes_text),
        ),
        Fact(
            "Findings",
            findings_text(assessment),
            "Of the audit, and of the source.",
            *_change_of_findings(assessment, before),
        ),
    )
    return Facts(answers, long=True)


def while_computing(
    assessment: Assessment, last: Sequence[str] | None, before: Assessment | None, totals: bool
) -> Facts:
    """Return the four answers of a plan while its programs are partitioned.

    Answers that need the programs are those of another layout, and say so. The others are final.

    Args:
      last: the last answers for a layout of the same model with programs. None if there are none.
      before: the assessment that final answers are compared with; None if there is none.
      totals: whether the totals of the programs are known, so that only findings are not.
    """
    now = of_assessment(assessment, before).facts
    if assessment.rejected is not None:
        return Facts(now, long=True)
    need = assessment.memory
    final = (
        totals or (need is not None and need.fits is False),
        totals or assessment.chip is None,
        totals,
        False,
    )
    computed = [None if value.startswith("unknown") else value for value in last or ["unknown"] * len(now)]
    facts = zip(now, _COMPUTED, computed, final, strict=True)
    return Facts(
        tuple(fact if is_final else _computing(label, value) for fact, label, value, is_final in facts),
        long=True,
    )


_COMPUTED = ("Memory per device", "Step", "Traffic", "Findings")


def _computing(label: str, last: str | None) -> Fact:
    """Return an answer that is computed. `last` is that of another layout."""
    change = None if last is None else "last value, computing"
    why = "Computed from the programs of the layout, which are being partitioned."
    return Fact(label, last or "computing", why, change, computing=True)


def state_change(assessment: Assessment, before: Assessment | None) -> str:
    """Return the train state per device, before and now: `24.0 → 48.0 MiB`; only now without a change."""
    now = assessment.state_bytes_per_device
    then = None if before is None else before.state_bytes_per_device
    if now is None or then is None or not _differ(then, now):
        return bytes_text(now)
    return _from_to(bytes_text(then), bytes_text(now))


def _change(
    assessment: Assessment,
    before: Assessment | None,
    of: Callable[[Assessment], float | None],
    text: Callable[[Any], str],
) -> tuple[str | None, bool | None]:
    """Return the change of a figure, and whether it is to the better. Less is better.

    Figures of another chip, or from other evidence, are not compared: the difference would not be one of the
    layouts.
    """
    if before is None or _rests_on(before) != _rests_on(assessment):
        return None, None
    then, now = of(before), of(assessment)
    if then is None or now is None or not _differ(then, now) or text(then) == text(now):
        return None, None
    better = None if before.rejected or assessment.rejected else now < then
    return _from_to(text(then), text(now)), better


def _rests_on(assessment: Assessment) -> tuple[object, ...]:
    return assessment.chip, assessment.basis, assessment.evidence


def _change_of_findings(assessment: Assessment, before: Assessment | None) -> tuple[str | None, bool | None]:
    if before is None or before.findings is None or assessment.findings is None:
        return None, None
    then, now = ((counts.error, counts.warning) for counts in (before.findings, assessment.findings))
    if then == now:
        return None, None
    return f"{findings_text(before)} → {findings_text(assessment)}", now < then


def _peak(assessment: Assessment) -> float | None:
    return None if assessment.memory is None else assessment.memory.peak_bytes


def _seconds(assessment: Assessment) -> float | None:
    return None if assessment.step is None else assessment.step.seconds


def _sent(assessment: Assessment) -> float | None:
    return None if assessment.traffic is None else assessment.traffic.bytes


def _differ(then: float, now: float) -> bool:
    return abs(now - then) > LEAST_CHANGE * max(then, now)


def _from_to(then: str, now: str) -> str:
    """Return `24.0 → 48.0 MiB`, with one unit if both have the same."""
    number, _, unit = then.partition(" ")
    return f"{number if now.endswith(f' {unit}') else then} → {now}"


def fits_label(assessment: Assessment) -> str:
    """Return `Rejected by JAX`, `Fits`, `Probably does not fit`, or the name of the figure if unknown."""
    if assessment.rejected is not None:
        return "Rejected by JAX"
    need = assessment.memory
    return MEMORY if need is None or need.fits is None else need.fits_text.capitalize()


def fits_text(assessment: Assessment) -> str:
    """Return `9.5 GiB of 15.8 GiB: fits`, `does not fit`, or `9.5 GiB` without a chip."""
    need = assessment.memory
    if assessment.rejected is not None:
        return "rejected by JAX"
    if need is None:
        return "unknown"
    if need.fits is None:
        return need.text
    return f"{need.text}: {need.fits_text}"


def step_text(assessment: Assessment) -> str:
    """Return `145 ms (122 ms to 169 ms), predicted`, or why the step is unknown."""
    if assessment.step is None:
        return f"unknown: {assessment.unknown_step}" if assessment.unknown_step else "unknown"
    step, evidence = assessment.step, assessment.evidence
    without = ", without moves to host memory" if evidence and HOST_MOVES in evidence.assumptions else ""
    return f"{step.text if step.kind == 'at least' else f'{step.text}, {step.kind}'}{without}"


def traffic_text(assessment: Assessment) -> str:
    """Return `1.9 GiB, 90% over fsdp`, or why it is unknown."""
    sent = assessment.traffic
    if sent is None:
        return f"unknown: {assessment.unknown_traffic}" if assessment.unknown_traffic else "unknown"
    made = f", {assessment.traffic_made}" if assessment.traffic_made else ""
    return f"{sent.text}{made}, {_over_largest(sent)}" if sent.bytes else sent.text


def _over_largest(sent: StepTraffic) -> str:
    """Return `90% over fsdp`, or `over fsdp` if nothing is sent over other mesh axes."""
    largest = sent.largest or UNKNOWN_AXES
    share = f"{share_text(sent.by_axes[largest] / sent.bytes, 0)} " if len(sent.by_axes) > 1 else ""
    return f"{share}over {axes_text(largest)}"


def findings_text(assessment: Assessment) -> str:
    """Return `2 errors, 1 warning`, or `none`. Notes are named only if there is nothing worse."""
    counts = assessment.findings
    if counts is None:
        return "not audited"
    said = [
        counted(number, level)
        for level, number in (("error", counts.error), ("warning", counts.warning))
        if number
    ]
    return ", ".join(said) or (counted(counts.note, "note") if counts.note else "none")


def verdict(assessment: Assessment, subject: str = "") -> Text:
    """Return the verdict of one layout in a line: its name, memory, step, traffic and findings."""
    lead = fits_label(assessment)
    if assessment.rejected is None:
        lead = f"{lead}: {_memory_text(assessment)}"
    return text(
        Strong(" · ".join(filter(None, (subject, lead)))),
        f" · step {step_text(assessment)} · traffic {traffic_text(assessment)} · findings: "
        f"{findings_text(assessment)}",
    )


def rejection(reason: str) -> str:
    """Return the sentence for the reason of `Assessment.rejected`."""
    return f"JAX rejects this layout: {reason}."


def _fits_help(assessment: Assessment) -> str:
    need = assessment.memory
    if need is None:
        return "The bytes per device of its arrays are unknown."
    of = f" of {noun(need.program)}" if need.program else ""
    what = "At least what a step holds whatever a compiler does" if need.at_least else f"Peak memory{of}"
    on = ". Choose a chip to see whether it fits"
    if need.capacity_bytes is not None:
        on = f", of the {bytes_text(need.capacity_bytes)} of a device of {chip_title(assessment)}"
    rejected = "" if assessment.rejected is None else f" JAX rejects the layout: {assessment.rejected}."
    return f"{what} on one device{on}.{rejected}"


def _memory_text(assessment: Assessment) -> str:
    need = assessment.memory
    if need is None:
        return "unknown"
    return need.text.replace("at least ", "≥ ").removeprefix("about ")


def _sent_text(assessment: Assessment) -> str:
    if assessment.traffic is None:
        return "unknown"
    return assessment.traffic.text


def _traffic_help(assessment: Assessment) -> str:
    if assessment.traffic is None:
        return f"Unknown: {assessment.unknown_traffic}."
    by_axes = ", ".join(
        f"{axes_text(axes)} {bytes_text(size)}" for axes, size in assessment.traffic.by_axes.items()
    )
    less = assessment.traffic.at_most
    return (
        f"Bytes that the device that sends most sends in {run_of(assessment.program)}"
        f"{f': {by_axes}' if by_axes else ''}"
        f"{f'; it can be less, because {less}' if less else ''}."
    )


def _step_help(assessment: Assessment) -> str:
    if assessment.step is None:
        return f"Unknown: {assessment.unknown_step}."
    program = f"One run of {noun(assessment.program or '')}"
    if assessment.step.kind == "measured":
        machine = "emulated devices" if assessment.chip is None else chip_title(assessment)
        which = "all" if assessment.step.ends == RANGE else "80% of the"
        return f"{program}, measured on {machine}: the median, and the range of {which} steps."
    step = assessment.step
    if step.kind == "at least":
        return f"{program} on {chip_title(assessment)}: a lower bound, because {step.at_least}."
    if step.outside is not None:
        machine = chip_title(assessment)
        return f"{program}, predicted on {machine}, outside of what was checked: {step.outside}."
    return f"{program}, predicted on {chip_title(assessment)}, with an interval of 80%."
