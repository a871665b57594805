"""The phases of a run or compile in words, and the share of it that is finished."""

from typing import Any

from inspector.core.program_names import noun

_PROGRAMS = ("init", "train_step", "apply")
PHASE_NAMES = {
    "start": "Starting a worker",
    "topology": "Reading the topology",
    "build": "Building the model",
    "lower": "Lowering",
    "compile": "Compiling",
    "first run": "First run of",
    "steps": "Measuring",
    "timeit": "Timing loops of",
    "trace": "Profiling",
    "read": "Reading the live arrays",
}


def phase_label(names: dict[str, str], phase: str, figures: dict[str, Any]) -> str:
    """Return the phase and its program: `Compiling the train step`."""
    program = figures.get("program")
    label = names.get(phase, phase)
    return f"{label} {noun(program)}" if program else label


def share(phase: str, program: str | None, figures: dict[str, Any], compiles: bool) -> float:
    """Return the finished share. All phases count equally because their times are unknown."""
    order: list[tuple[str, str | None]] = [("start", None), ("topology", None), ("build", None)]
    order += [(stage, name) for name in _PROGRAMS for stage in ("lower", "compile")]
    if not compiles:
        order.append(("first run", "init"))
        order += [(stage, name) for name in ("train_step", "apply") for stage in ("first run", "steps")]
        order += [("timeit", "train_step"), ("timeit", "apply"), ("trace", "train_step")]
    order.append(("read", None))
    position = order.index((phase, program)) if (phase, program) in order else 0
    within = figures["done"] / figures["of"] if "done" in figures else 0.0
    return (position + within) / len(order)
