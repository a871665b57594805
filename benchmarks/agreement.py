"""Compare partitioned with compiled collectives of random layouts, on CPU, TPUs, two TPU slices and GPUs.

A partitioned program is XLA's own after its partitioner, with the passes of the target's compiler that
change what is sent. A pair is a program and one set of mesh axes,
with the bytes on the wire of all executions. For each target, the report has the number of pairs whose bytes
agree, the traffic between slices, and a line with reasons for each other pair. Layouts that JAX or a
compiler refuses are not compared. Compiled results stay in the user's cache. Targets without their compiler
are left out.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.random_layouts import USERS_MODELS, random_layouts
from inspector import layout as layouts
from inspector.compare.propagated_traffic import Pair, compared, pairs
from inspector.core.errors import InvalidInput
from inspector.core.formatting import mesh_axes_text
from inspector.core.snapshot import Collective, Mesh, Program, Snapshot
from inspector.core.tpu_slices import DCN, crossing_axes, slices_of
from inspector.machines import targets
from inspector.service.inspection import Inspection
from inspector.service.own_model_registration import register_own

SEED = 1
# Layouts by target.
TARGETS = {"cpu": 60, "tpu:v5e:2x4": 20, "tpu:v5e:2x4*2": 20, "gpu:h100:8": 20}
# Difference of bytes that counts as agreement, and the share of the pairs that should agree.
CPU = (0.01, 1.0)
ACCELERATOR = (0.05, 0.9)
BETWEEN_SLICES = 0.1  # difference of the traffic between slices that counts as agreement


@dataclass
class Agreement:
    """The pairs of one target, and the layouts that could not be compared.

    between_slices: the name of each layout on several slices, and the bytes that a device sends between them,
      partitioned and compiled.
    """

    target: str
    pairs: list[tuple[str, Pair]] = field(default_factory=list)
    between_slices: list[tuple[str, int, int]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def goal(self) -> tuple[float, float]:
        return CPU if self.target == "cpu" else ACCELERATOR

    def agrees(self, pair: Pair) -> bool:
        return _close(pair.propagated, pair.compiled, self.goal[0])


def report() -> str:
    """Return the agreement of all targets as text."""
    for name in USERS_MODELS:
        register_own(name)
    service = Inspection(run_workers=1)
    try:
        measured = [measure(target, count, service) for target, count in TARGETS.items()]
    finally:
        service.close()
    return "\n\n".join(map(text, measured))


def measure(
    target: str,
    count: int,
    service: Inspection,
    only: Sequence[str] = (),
) -> Agreement:
    """Partition and compile the first layouts of a target. The users' models must be registered.

    only: the names of the programs to compare; all if it is empty.
    """
    result = Agreement(target)
    machine = layouts.parse({"target": target}).unwrap().machine
    if machine and (lacking := targets.missing_compiler(machine)):
        result.failed.append(lacking)
        return result
    for name, layout in itertools.islice(random_layouts(target, SEED), count):
        print(f"  {target}: {name}", file=sys.stderr, flush=True)
        try:
            partitioned = service.programs(layout).answer()
            compiled = service.run(layout).answer()
        except InvalidInput as error:
            result.failed.append(f"{name}: {error}")
            continue
        programs = [one for one in partitioned.programs if not only or one.name in only]
        add(result, name, programs, compiled)
    return result


def add(
    result: Agreement,
    name: str,
    programs: Sequence[Program],
    compiled: Snapshot,
) -> None:
    """Add the pairs of one layout."""
    mesh = compiled.mesh
    slices = None if mesh is None else slices_of(mesh)
    names = {one.name for one in programs}
    same = [one for one in compiled.programs if one.name in names]
    result.pairs += [(name, pair) for pair in pairs(compared(programs, same))]
    if slices is not None:
        sent = [
            sum(_between_slices(one.collectives or (), mesh) for one in either) for either in (programs, same)
        ]
        result.between_slices.append((name, sent[0], sent[1]))


def _between_slices(collectives: Iterable[Collective], mesh: Mesh) -> int:
    """Return the bytes of collectives whose groups have devices of several slices."""
    return sum(
        (one.wire_bytes_per_device or 0) * (one.executions or 0)
        for one in collectives
        if one.network == DCN or _crosses(one, mesh)
    )


def _crosses(collective: Collective, mesh: Mesh) -> bool:
    slices = slices_of(mesh)
    groups = collective.device_groups or collective.source_target_pairs
    if slices is None or groups is None:
        return bool(set(collective.mesh_axes or ()) & set(crossing_axes(mesh)))
    return any(len({int(slices[device]) for device in group}) > 1 for group in groups)


def text(result: Agreement) -> str:
    """Return the counts of one target, and a line for each pair that differs."""
    tolerance, share = result.goal
    total = len(result.pairs)
    agreeing = sum(result.agrees(pair) for _, pair in result.pairs)
    lines = [f"{result.target}: {agreeing} of {total} pairs agree within {tolerance:.0%}"]
    if total:
        verdict = "pass" if agreeing >= share * total else "under"
        lines[0] += f" ({agreeing / total:.0%}), target at least {share:.0%}: {verdict}"
    if result.between_slices:
        near = sum(_close(sent[1], sent[2], BETWEEN_SLICES) for sent in result.between_slices)
        lines.append(
            f"  between slices: {near} of {len(result.between_slices)} layouts within {BETWEEN_SLICES:.0%}"
        )
        lines += [
            f"  {name}, between slices: {partitioned:,} → {compiled:,} bytes"
            for name, partitioned, compiled in result.between_slices
            if not _close(partitioned, compiled, BETWEEN_SLICES)
        ]
    for name, pair in result.pairs:
        if not result.agrees(pair):
            axes = "unknown axes" if pair.mesh_axes is None else mesh_axes_text(pair.mesh_axes)
            sent = ["unknown" if one is None else f"{one:,}" for one in (pair.propagated, pair.compiled)]
            lines.append(
                f"  {name}, {pair.program}, {axes}: {sent[0]} → {sent[1]} bytes ({', '.join(pair.reasons)})"
            )
    return "\n".join([*lines, *(f"  not compared: {each}" for each in result.failed)])


def _close(partitioned: int | None, compiled: int | None, tolerance: float) -> bool:
    if partitioned is None or compiled is None:
        return False
    return abs(partitioned - compiled) <= tolerance * max(partitioned, compiled)
