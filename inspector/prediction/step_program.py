"""The program of a step: the one whose time, traffic and FLOPs decide between layouts."""

from collections.abc import Sequence

from inspector.compiled import assumed
from inspector.records.snapshot import Program, Snapshot
from inspector.sharding.once import once_per_snapshot

# `init` runs once, so it does not count when choosing a layout.
ONCE = ("init",)
STEPS = ("train_step", "apply", "decode")
_KEY_BYTES = 1024  # arguments of more bytes can be data; a random key has 8 or 16


@once_per_snapshot
def step_program(snapshot: Snapshot) -> Program | None:
    """Return the program of a step; None without programs.

    It is the train step, else the inference, else the decode step. Of other programs, such as those of a
    user's script, whose names say nothing, it is the one whose measured steps take longest together, else the
    one with the most FLOPs on a device, and the first one if no FLOPs are known. One that only makes the
    state of others is none. A loop of unknown trip count counts with one iteration. FLOPs are those before
    any compile, if they are recorded of all, so that it is the same program on each chip.
    """
    if snapshot.source.file is None:
        for name in STEPS:
            if (program := snapshot.program(name)) is not None:
                return program
    before = _before_compile(snapshot)

    def rank(one: Program) -> tuple[float, float]:
        return measured_seconds(one), known_flops(before.get((one.name, one.mesh), one)) or 0.0

    return max(_compared(snapshot), key=rank, default=None)


def main_first(snapshot: Snapshot) -> list[Program]:
    """Return all programs, the one of a step first."""
    main = step_program(snapshot)
    return sorted(snapshot.programs, key=lambda program: program is not main)


@once_per_snapshot
def equal_programs(snapshot: Snapshot) -> tuple[tuple[Program, ...], ...]:
    """Return the programs as `main_first`, those with equal instructions together."""
    equal: dict[object, tuple[Program, ...]] = {}
    for program in main_first(snapshot):
        same = (program.fingerprint, program.platform, program.mesh, program.devices, program.memory)
        key = program.name if program.fingerprint is None else same
        equal[key] = (*equal.get(key, ()), program)
    return tuple(equal.values())


def are_before_compile(snapshot: Snapshot) -> bool:
    """Return whether the FLOPs by which a program is taken are those before any compile."""
    return bool(_before_compile(snapshot))


@once_per_snapshot
def initializers(snapshot: Snapshot) -> tuple[Program, ...]:
    """Return the programs that only make the state of others, unless all do.

    Such a program is named `init`, or takes no array that it returns or whose use is known. It then returns a
    weight or a moment of another one; or its arguments are keys, and another one replaces what it returns.
    """
    used = [one for program in snapshot.programs for one in program.shardings if one.role == "input"]
    state = {one.path for one in used if one.use in ("weight", "moment")}
    replaced = {path for one in snapshot.programs for path in _paths(one, "input") & _paths(one, "output")}

    def makes_state(program: Program) -> bool:
        made = _paths(program, "output") - _paths(program, "input")
        size = None if program.memory is None else program.memory.arguments
        asked = state | replaced if size is not None and size <= _KEY_BYTES else state
        return not any(one.use for one in program.shardings) and not made.isdisjoint(asked)

    found = tuple(program for program in snapshot.programs if program.name in ONCE or makes_state(program))
    return found if len(found) < len(snapshot.programs) else ()


def _paths(program: Program, role: str) -> set[str]:
    return {one.path for one in program.shardings if one.role == role}


def _compared(snapshot: Snapshot) -> Sequence[Program]:
    left_out = initializers(snapshot)
    return [program for program in snapshot.programs if program not in left_out]


def _before_compile(snapshot: Snapshot) -> dict[tuple[str, int | None], Program]:
    """Return the programs before any compile by name and mesh; none if one is missing."""
    known = [one for one in snapshot.partitioned or () if one.platform is None and one.work]
    before = {(one.name, one.mesh): one for one in known}
    return before if all((one.name, one.mesh) in before for one in _compared(snapshot)) else {}


def known_flops(program: Program) -> float | None:
    """Return the FLOPs on a device, one iteration of loops of unknown trip count; None if unknown."""
    unknown = program.flops_per_device is None and program.open_choices
    return (assumed.once(program) if unknown else program).flops_per_device


def measured_seconds(program: Program) -> float:
    """Return the seconds of all measured or profiled runs of a program together, 0 without any."""
    steps = sum(program.seconds.steps) if program.seconds else 0.0
    return steps or (program.trace.seconds if program.trace else 0.0)
