"""The evidence of the figures of a program on a chip: the only place that decides it.

A program that was compiled for CPUs says little about a TPU: XLA for CPUs widens bfloat16, fuses and combines
in another way, and its memory is that of another schedule. So for a chip the same program counts as XLA's
partitioner leaves it, after the passes for the chip's kind of machine, if that is recorded.
"""

from dataclasses import replace

from inspector.compiled.matched_origins import with_origins
from inspector.machines import targets
from inspector.machines.hardware import Chip, Kind
from inspector.records.assessment import Evidence, Stage
from inspector.records.snapshot import Mesh, Platform, Program, Snapshot, Work
from inspector.sharding.memory_kinds import PINNED
from inspector.sharding.meshes import is_emulated
from inspector.sharding.once import once_per_snapshot

HOST_MOVES = "moves to and from host memory take no time"  # an assumption of a step before a compile


@once_per_snapshot
def _by_kind(snapshot: Snapshot) -> dict[Kind, Snapshot]:
    return {}


def for_chip(snapshot: Snapshot, chip: Chip | None) -> Snapshot:
    """Return a Snapshot with the programs that count on its own chip, or else on the chosen one.

    A program that was made for another kind of machine is replaced by the partitioned one for that of the
    chip, if that is recorded. Everything that shows figures on a chip reads this Snapshot.

    Args:
      chip: None if none was chosen.
    """
    chip = targets.chip_for(snapshot, chip)
    if chip is None or not snapshot.partitioned:
        return snapshot
    known = _by_kind(snapshot)
    if chip.kind not in known:
        programs = tuple(_on(snapshot, program, chip.kind) for program in snapshot.programs)
        unchanged = programs == snapshot.programs
        known[chip.kind] = snapshot if unchanged else replace(snapshot, programs=programs)
    return known[chip.kind]


def program_for_chip(snapshot: Snapshot, program: Program, chip: Chip | None) -> Program:
    """Return the program that counts on a chip in the place of one of a Snapshot, as `for_chip` does."""
    places = (place for place, other in enumerate(snapshot.programs) if other is program)
    place = next(places, None)
    return program if place is None else for_chip(snapshot, chip).programs[place]


def _on(snapshot: Snapshot, program: Program, kind: Kind) -> Program:
    if platform_of(snapshot, program) == kind:
        return program
    partitioned = partitioned_for(snapshot, program, kind)
    if partitioned is None:
        return program
    # Records of the program itself stay: its arrays, losses, measured steps and conflicts.
    (own,) = with_origins((replace(partitioned, conflicts=program.conflicts),), (program,))
    return replace(
        program,
        stage=own.stage,
        platform=own.platform,
        flops_per_device=own.flops_per_device,
        ideal=_ideal(program, kind),
        collectives=own.collectives,
        conflicts=own.conflicts,
        work=own.work,
        memory=None,
        memory_use=own.memory_use,
        schedule=None,
        prediction=None,
        open_choices=own.open_choices,
        pipelines=program.pipelines if own.pipelines is None else own.pipelines,
        assumptions=own.assumptions,
        residuals=own.residuals,
    )


def _ideal(program: Program, kind: Kind) -> Work | None:
    """Return the work of a program before partitioning, as JAX lowers it for a kind of machine."""
    ideal = program.ideal
    if kind != "tpu" or ideal is None or ideal.matmul_on_tpu is None:
        return ideal
    return replace(ideal, flops=None, matmul=ideal.matmul_on_tpu)


def partitioned_for(snapshot: Snapshot, program: Program, kind: Platform) -> Program | None:
    """Return a program of a Snapshot after XLA's partitioner, which is a further record; None if unknown.

    It is that after the passes for a kind of machine, or else before those of any platform.
    """
    known = [
        record
        for record in snapshot.partitioned or ()
        if record.name == program.name and record.mesh == program.mesh and record.work
    ]
    wanted: list[Platform | None] = [kind] if program.before_compile else [kind, None]
    return next((record for platform in wanted for record in known if record.platform == platform), None)


def partitioned_beside(snapshot: Snapshot) -> tuple[Program, ...]:
    """Return the partitioned programs of a Snapshot of the machine for which its own were compiled."""
    return tuple(
        record
        for program in snapshot.programs
        for record in snapshot.partitioned or ()
        if record.name == program.name and record.mesh == program.mesh
        if record.platform in (None, platform_of(snapshot, program)) and not program.before_compile
    )


def platform_of(snapshot: Snapshot, program: Program) -> Platform:
    """Return the kind of machine for which a program of a Snapshot was partitioned or compiled."""
    kind = snapshot.source.kind
    if program.platform is None and not program.before_compile and kind in targets.KINDS:
        return "tpu" if kind == "tpu" else "gpu"
    return platform_on(program, snapshot.mesh_of(program))


def platform_on(program: Program, mesh: Mesh | None) -> Platform:
    """Return the kind of machine for which a program on a mesh was partitioned or compiled."""
    if program.platform is not None:
        return program.platform
    if program.before_compile or mesh is None or is_emulated(mesh):
        return "cpu"
    return "tpu" if (mesh.device_kind or "").startswith("TPU") else "gpu"


def evidence_of(snapshot: Snapshot, program: Program | None, chip: Chip | None) -> Evidence:
    """Return the evidence of the figures of a program on a chip.

    Args:
      snapshot: one of `for_chip`.
      program: None if there is none, so that only the arrays are known.
      chip: None for the devices that the program was made for.
    """
    if program is None:
        kind: Platform = "cpu" if chip is None else chip.kind
        return Evidence("planned", kind, None if chip is None else chip.name)
    steps = program.seconds.steps if program.seconds else ()
    measured = bool(steps) and not program.before_compile and chip == targets.chip_of(snapshot)
    return evidence_on(program, platform_of(snapshot, program), chip, measured)


def evidence_on(program: Program, platform: Platform, chip: Chip | None, measured: bool = False) -> Evidence:
    """Return the evidence of the figures of a program, if it was made for a kind of machine.

    Args:
      measured: whether its steps were measured on this chip.
    """
    stage: Stage = "partitioned" if program.before_compile else "compiled"
    fits = chip is not None and chip.kind == platform
    return Evidence(
        "measured" if measured else stage,
        platform,
        chip.name if chip is not None and fits else None,
        (*program.assumptions, *([HOST_MOVES] if leaves_out_host(program) else [])),
    )


def leaves_out_host(program: Program) -> bool:
    """Return whether the time of a program leaves out moves to and from host memory.

    Before a compile the text has no such moves: arguments, results or activations are in host memory.
    """
    far = any(one.memory_kind == PINNED for one in program.shardings)
    offloaded = any(name.policy == "offloaded" for name in program.checkpoint_names or ())
    kept = program.residuals.kept if program.residuals is not None else ()
    return program.before_compile and (far or any(one.host for one in kept) or (offloaded and bool(kept)))
