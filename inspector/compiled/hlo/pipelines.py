"""Pipelines: loops in which each device computes one stage, and hands its result to the next device.

A pipeline of s stages runs m microbatches in m + s − 1 iterations. Each device computes in every iteration,
but s − 1 results of it are not used: the bubble.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.module import Instruction
from inspector.core.snapshot import Collective, Pipeline


def pipelines(analysis: Analysis, collectives: Iterable[Collective]) -> tuple[Pipeline, ...]:
    """Return the loops whose structure is that of a pipeline.

    Each iteration sends a value of the shape of a microbatch to the next device along a mesh axis. The state
    of the loop, which has m + s − 1 iterations, has a stack of m microbatches of this shape. Loops that pad
    the stack to all iterations are not recognized.
    """
    shifts = {
        (collective.computation, collective.name): collective
        for collective in collectives
        if collective.op == "collective-permute" and _is_shift(collective)
    }
    found = []
    for computation, loop in analysis.module.instructions if shifts else ():
        if loop.opcode != "while":
            continue
        trips = analysis.loops.trip_count(computation, loop)
        body = analysis.module.callee(loop, "body")
        if trips is None or body is None:
            continue
        stacks = set(_stacks(loop))
        for instruction in body.instructions:
            shift = shifts.get((body.name, instruction.name))
            if shift is None or shift.group_size is None:
                continue
            microbatches = trips - shift.group_size + 1
            sent = _dimensions(body.operand(instruction))
            if microbatches > 1 and sent and (microbatches, *sent) in stacks:
                found.append(
                    Pipeline(
                        stages=shift.group_size,
                        microbatches=microbatches,
                        collective=shift.name,
                        axes=shift.mesh_axes,
                        source=shift.source,
                    )
                )
                break
    return tuple(found)


def _is_shift(collective: Collective) -> bool:
    """Return whether each device sends to its neighbor along one axis, around it or up to its end."""
    pairs, size = collective.source_target_pairs, collective.group_size
    if not pairs or size is None or size < 2 or (collective.mesh_axes or ("",))[1:]:
        return False
    moved = {abs(target - source) for source, target in pairs}
    step = min(moved)
    return step > 0 and moved <= {step, step * (size - 1)}


def _stacks(loop: Instruction) -> Iterator[tuple[int, ...]]:
    """Yield the dimensions of the arrays in the state of a loop, without those of size 1 after the first."""
    shape = loop.shape
    for part in (shape.parts or ()) if shape is not None else ():
        if part.dimensions and all(size is not None for size in part.dimensions):
            first, *rest = part.dimensions
            yield first or 0, *(size or 0 for size in rest if size != 1)


def _dimensions(value: Instruction | None) -> tuple[int, ...]:
    shape = None if value is None else value.shape
    return () if shape is None else tuple(size or 0 for size in shape.dimensions if size != 1)
