"""Which outputs of a program can reuse the memory of its inputs, and which donated inputs none of them uses.

JAX pairs them by shape, element type and sharding. XLA pairs the rest by the bytes on one device alone.
Paths do not matter.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from inspector.records.snapshot import (
    Array,
    Donation,
    Mesh,
    Program,
    ProgramArray,
    Snapshot,
    Spec,
    UnusedDonation,
)
from inspector.sharding import memory_kinds
from inspector.sharding import placement as sharding
from inspector.sharding.memory_kinds import is_host_memory, memory_kind
from inspector.text.formatting import bytes_text, shape_text


def with_donation(snapshot: Snapshot) -> Snapshot:
    """Return the Snapshot with the donations of each program whose inputs and outputs are its arrays.

    A Snapshot of live arrays keeps the donations that were found with those of the program.
    """
    by_path = {array.path: array for array in snapshot.arrays}
    programs = []
    for program in snapshot.programs:
        mesh = snapshot.mesh_of(program)
        donatable = donatable_bytes(program, by_path, mesh)
        if donatable is not None:
            unused = tuple(_unused(program, by_path, mesh))
            program = replace(program, donation=Donation(donatable, unused))
        programs.append(program)
    return replace(snapshot, programs=tuple(programs))


def donatable_bytes(program: Program, by_path: Mapping[str, Array], mesh: Mesh | None) -> int | None:
    """Return the bytes of outputs on one device that fit over inputs of the same bytes, each used once.

    Inputs of the batch do not count: the caller has no new version of them. Return None if the inputs or the
    outputs are unknown.
    """
    sizes: dict[str, Counter[int]] = {"input": Counter(), "output": Counter()}
    known = dict.fromkeys(sizes, False)
    for value in program.shardings:
        array = by_path.get(value.path)
        if not value.used or array is None or is_in_host(array, value, mesh):
            continue
        size = bytes_in_program(array, value, mesh)
        if size is None:
            continue
        known[value.role] = True
        if array.group != "batch" or value.role == "output":
            sizes[value.role][size] += 1
    if not all(known.values()):
        return None
    return sum(size * count for size, count in (sizes["input"] & sizes["output"]).items())


def is_in_host(array: Array, argument: ProgramArray, mesh: Mesh | None) -> bool:
    """Return whether a program takes or returns an array in host memory. It can be elsewhere afterwards."""
    return is_host_memory(argument.memory_kind or memory_kind(array), mesh)


def bytes_in_program(array: Array, argument: ProgramArray, mesh: Mesh | None) -> int | None:
    """Return the bytes of an array on one device in a program, which may shard it differently."""
    spec = argument.compiled
    if spec is None or array.spec is None or mesh is None or same_spec(spec, array.spec):
        return memory_kinds.packed_per_device(array)
    if array.bytes is None or array.shape is None or len(spec) != len(array.shape):
        return None
    # The file may come from anywhere.
    if not {axis for axes in spec for axis in axes or ()}.issubset(mesh.axis_names):
        return None
    if any(sharding.indivisible(array.shape, spec, mesh)):
        return None
    parts = math.prod(map(mesh.ways, spec))
    return memory_kinds.packed_bytes(array.dtype, math.prod(array.shape) // parts, array.bytes // parts)


def same_spec(spec: Spec, other: Spec) -> bool:
    """Return whether two specs of one array are equal; an empty entry is None."""
    return tuple(axes or None for axes in spec) == tuple(axes or None for axes in other)


def _unused(program: Program, by_path: Mapping[str, Array], mesh: Mesh | None) -> Iterable[UnusedDonation]:
    outputs = [
        (array, output)
        for output in program.shardings
        if output.role == "output" and (array := by_path.get(output.path)) is not None
    ]
    for value in program.shardings:
        array = by_path.get(value.path)
        donated = value.role == "input" and value.donated
        if not donated or value.reused is not False or (array is not None and not array.bytes):
            continue
        if not value.used or array is None:
            yield UnusedDonation(value.path, None, "the program does not use it")
        else:
            size = bytes_in_program(array, value, mesh)
            yield UnusedDonation(value.path, size, _reason(array, size, outputs, mesh))


def _reason(
    array: Array, size: int | None, outputs: Sequence[tuple[Array, ProgramArray]], mesh: Mesh | None
) -> str:
    """Return why no output is written over a donated input, as a clause."""
    every = {bytes_in_program(other, output, mesh) for other, output in outputs}
    if size is None or None in every or size in every:
        return "outputs of its size are written over other arguments, or elsewhere"
    same_shape = [(other, output) for other, output in outputs if other.shape == array.shape]
    if not same_shape:
        words = f"{shape_text(array.shape)} {array.dtype}, {bytes_text(size)} on each device"
        return f"no output has its size, {words}"
    same_type = [(other, output) for other, output in same_shape if other.dtype == array.dtype]
    if not same_type:
        types = ", ".join(sorted({other.dtype for other, _ in same_shape}))
        return f"it is {array.dtype}, and each output of its shape is {types}"
    sizes = sorted({bytes_in_program(other, output, mesh) or 0 for other, output in same_type})
    return (
        f"it takes {bytes_text(size)} on each device, and outputs of its shape and type take "
        f"{', '.join(map(bytes_text, sizes))}"
    )
