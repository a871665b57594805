"""The reason of a verdict: the longest wait of a step, or the memory that does not fit, in one sentence."""

import math

from inspector.machines import hardware
from inspector.machines.hardware import si_text
from inspector.records.assessment import UNKNOWN_AXES, Assessment, MemoryKind, MemoryNeed, Step, StepPart
from inspector.text.formatting import bytes_text, counted, mesh_axes_text, seconds_text, share_text
from inspector.text.program_names import is_step, run_of

# The name of each kind, and the beginning of a sentence about it.
_WORK_WORDS = {
    "compute": ("matrix products", "Matrix products take"),
    "memory": ("HBM", "Reads and writes of HBM take"),
    "copies": ("copies", "Waits for copies take"),
    "rest": ("overhead", "Starting operations and other overhead take"),
}
# A profile says which instruction ran, not what limited it, and why none ran is not known.
_MEASURED_WORDS = _WORK_WORDS | {
    "memory": ("other operations", "Operations that neither multiply matrices nor communicate take"),
    "rest": ("no operation", "A device runs no operation for"),
}
_MEMORY_WORDS: dict[MemoryKind, tuple[str, str]] = {
    "state": ("state and batch", "The state and the batch take"),
    "activations": ("activations", "Activations take"),
    "constants": ("constants and code", "Constants and code take"),
    "temporaries": ("outputs and temporaries", "Outputs and temporaries take"),
    "unknown": ("in use", "It takes"),
}
_AS_LONG = 0.8  # share of the longest part from which a second one is named, too
_VISIBLE = 0.01  # share of a transfer that has to be hidden to be worth a word


def because(assessment: Assessment) -> str:
    """Return the dominant reason of an assessment as a sentence; "" if nothing is known.

    Show it below a verdict, so that its reader knows what to change. If JAX rejects the layout, that is the
    reason. If it does not fit, it is the largest part of its memory. Otherwise it is the longest part of the
    predicted step, with the second one if it is almost as long. Names of mesh axes are in backticks.

    >>> parts = (StepPart("compute", 0.6), StepPart("between", 2.0, "fsdp", bytes=4 * 2**30))
    >>> step = Step(2.6, 2.3, 2.9, "predicted", parts=parts)
    >>> assessment = Assessment("v5e", 32, "partitioned", "train_step", step, None, None, None, None)
    >>> because(assessment).partition(": ")[0]
    '`fsdp` crosses the data center network'
    >>> because(assessment).partition(": ")[2]
    '4.0 GiB at 2.15 GB/s per device take 2.00 s of the step of 2.60 s.'
    """
    if assessment.rejected is not None:
        return f"JAX rejects this layout: {assessment.rejected}."
    need = assessment.memory
    if need is not None and need.fits is False:
        return _of_memory(need)
    step = assessment.step
    if step is not None and step.parts:
        largest, *others = sorted(step.parts, key=lambda part: -part.seconds)
        also = ""
        if others and others[0].seconds >= _AS_LONG * largest.seconds:
            also = _also(step, others[0])
        return _of_step(step, largest, assessment, also)
    return ""


def memory_words(kind: MemoryKind, need: MemoryNeed) -> tuple[str, str]:
    """Return the name of a part of memory, and the start of a sentence about it.

    Only a train step has a state.
    """
    if kind == "state" and not is_step(need.program):
        return "arguments", "Its arguments take"
    return _MEMORY_WORDS[kind]


def part_text(part: StepPart, between: bool = False, measured: bool = False) -> str:
    """Return the name of a part of a step: `matrix products`, `fsdp`, or `fsdp between slices`.

    Args:
      between: whether other parts cross slices, so that those inside of one say so.
      measured: whether the step was measured, so that only what its profile has is named.
    """
    if not part.is_communication:
        return _work_words(part, measured)[0]
    where = " between slices" if part.kind == "between" else " inside a slice" if between else ""
    return f"{axes_text(part.axes)}{where}"


def _work_words(part: StepPart, measured: bool) -> tuple[str, str]:
    return (_MEASURED_WORDS if measured else _WORK_WORDS).get(part.kind, ("", ""))


def axes_text(axes: str | None) -> str:
    """Return the mesh axes of a part or of traffic, which are joined by `+`, in words."""
    return mesh_axes_text(None if axes in (None, UNKNOWN_AXES) else str(axes).split("+"))


def _of_memory(need: MemoryNeed) -> str:
    least = "at least " if need.at_least else "about " if need.is_estimated else ""
    capacity = bytes_text(need.capacity_bytes)
    whole = f"{least}{bytes_text(need.peak_bytes)}, and a device has {capacity}"
    if not need.parts:
        return f"It needs {whole}."
    kind = max(need.parts, key=lambda kind: need.parts[kind])
    of_part = "" if need.parts[kind] == need.peak_bytes else f"{bytes_text(need.parts[kind])} of "
    return f"{memory_words(kind, need)[1]} {of_part}{whole}."


def _also(step: Step, part: StepPart) -> str:
    """Return a second part as a clause: `and waits for `replica` between slices take 138 ms, 38%`."""
    beginning = _work_words(part, step.kind == "measured")[1]
    what = f"{beginning[:1].lower()}{beginning[1:]}"
    if part.is_communication:
        what = f"waits for {_marked(part.axes) if part.axes else 'communication'}"
        what += " between slices take" if part.kind == "between" else " take"
    seconds = seconds_text(part.seconds)
    if step.kind == "at least":
        return f", and {what} at least {seconds}"
    return f", and {what} {seconds}, {share_text(part.seconds / step.seconds, 0)}"


def _of_step(step: Step, part: StepPart, assessment: Assessment, also: str) -> str:
    seconds, run = seconds_text(part.seconds), run_of(assessment.program).removeprefix("one ")
    if not part.is_communication:
        beginning = _work_words(part, step.kind == "measured")[1]
        if step.kind == "at least":
            return f"{beginning} at least {seconds}{also}."
        share = share_text(part.seconds / step.seconds, 0)
        return f"{beginning} {seconds}, {share} of the {run}{also}."
    names = _marked(part.axes) if part.axes else "Communication"
    if part.is_latency and step.kind != "at least":
        return f"Over {names}, {latency_text(part).removesuffix('.')}{also}."
    chip = hardware.CHIPS.get(assessment.chip or "")
    machine = "devices" if chip is None else "GPUs" if chip.kind == "gpu" else "chips"
    network = f"sends between {machine}"
    if part.kind == "between":
        network = "crosses the data center network"
    whole = part.seconds + part.hidden
    took = seconds_text(whole)
    if part.bytes and math.isfinite(rate := part.bytes / whole):
        took = f"{bytes_text(part.bytes)} at {si_text(rate, 'B/s')} per device take {took}"
    else:
        took = f"this takes {took}"
    if step.kind == "at least":
        return f"{names} {network}: {took}, or more{also}."
    whole_step = f"the {run} of {seconds_text(step.seconds)}"
    if part.hidden > _VISIBLE * whole:
        return f"{names} {network}: {took}, and {whole_step} waits {seconds} for it{also}."
    return f"{names} {network}: {took} of {whole_step}{also}."


def latency_text(part: StepPart, runs: int | None = None) -> str:
    """Return that latency is the cost of a part, and what its collectives take.

    runs: how many collectives the program runs, before a compiler combines them.
    """
    origin = f"combined from {runs:,}" if runs and runs > part.messages else "after combining"
    size = f" of {bytes_text(round(part.bytes / part.messages))}" if part.bytes else ""
    size += " on average" * (bool(size) and part.messages > 1)
    whole = part.seconds + part.hidden
    waits = ""
    if part.hidden > _VISIBLE * whole:
        waits = f", and the step waits {seconds_text(part.seconds)} for them"
    return (
        f"latency is the cost: {counted(part.messages, 'collective')}{size}, {origin}, are predicted to take "
        f"{seconds_text(whole)}{waits}."
    )


def _marked(axes: str) -> str:
    return mesh_axes_text(axes.split("+"), lambda name: f"`{name}`")
