"""The program of a step: the one whose time, traffic and FLOPs decide between layouts."""

from inspector.compiled import assumed
from inspector.records.snapshot import Program, Snapshot
from inspector.sharding.once import once_per_snapshot

# `init` runs once, so it does not count when choosing a layout.
ONCE = ("init",)
STEPS = ("train_step", "apply", "decode")


@once_per_snapshot
def step_program(snapshot: Snapshot) -> Program | None:
    """Return the program of a step; None without programs.

    It is the train step, else the inference, else the decode step. Of other programs, such as those of a
    user's script, whose names say nothing, it is the one whose measured steps take longest together, else the
    one with the most FLOPs on a device, and the first one if no FLOPs are known. A loop of unknown trip count
    counts with one iteration. FLOPs are those before any compile, if they are recorded, so that
    it is the same program on each chip.
    """
    if snapshot.source.file is None:
        for name in STEPS:
            if (program := snapshot.program(name)) is not None:
                return program
    others = [program for program in snapshot.programs if program.name not in ONCE] or snapshot.programs
    before = {
        (one.name, one.mesh): one for one in snapshot.partitioned or () if one.platform is None and one.work
    }

    def rank(one: Program) -> tuple[float, float]:
        return measured_seconds(one), known_flops(before.get((one.name, one.mesh), one)) or 0.0

    return max(others, key=rank, default=None)


def known_flops(program: Program) -> float | None:
    """Return the FLOPs on a device, one iteration of loops of unknown trip count; None if unknown."""
    unknown = program.flops_per_device is None and program.open_choices
    return (assumed.once(program) if unknown else program).flops_per_device


def measured_seconds(program: Program) -> float:
    """Return the seconds of all measured or profiled runs of a program together, 0 without any."""
    steps = sum(program.seconds.steps) if program.seconds else 0.0
    return steps or (program.trace.seconds if program.trace else 0.0)
