"""Large constants of a program, and values that are gathered because their parts are uneven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inspector.compiled.hlo.module import (
    SAME_DATA,
    Computation,
    Instruction,
    Module,
    operand_names,
)
from inspector.core.snapshot import LargeConstant, UnevenGather

# Smaller constants are those of the code, such as tables of random number generators.
LEAST_BYTES = 64 * 2**10
_MOST = 100  # of each kind in a record
_GATHERS = frozenset({"all-gather", "all-gather-start", "all-gather-done"})


def large_constants(module: Module) -> tuple[LargeConstant, ...]:
    """Return the constants of at least `LEAST_BYTES`, the largest first. Every device holds each of them.

    JAX embeds arrays that a jitted function uses without having them as arguments.
    """
    constants = []
    for _, instruction in module.instructions:
        shape = instruction.shape
        if instruction.opcode != "constant" or shape is None or (shape.bytes or 0) < LEAST_BYTES:
            continue
        source = module.source(instruction.metadata)
        constants.append(LargeConstant(instruction.name, str(shape), shape.bytes or 0, source))
    return tuple(sorted(constants, key=lambda constant: -constant.bytes)[:_MOST])


def uneven_gathers(module: Module, results: Sequence[str]) -> tuple[UnevenGather, ...]:
    """Return the results that were computed in uneven parts, and that every device gets whole.

    XLA pads a dimension that mesh axes do not divide. A result cannot be sharded unevenly, so the padded
    parts are gathered and the padding is cut off.

    Args:
      results: paths of the flattened results of the program, in order.
    """
    entry = module.by_name.get(module.entry or "")
    if entry is None or entry.root is None or module.truncated:
        return ()
    root = entry.root
    names = operand_names(root) if root.opcode == "tuple" else [root.name]
    if len(names) != len(results):
        return ()
    gathers: list[UnevenGather] = []
    for path, name in zip(results, names, strict=True):
        gathers += _of_result(module, entry, path, entry.by_name.get(name or ""))
    return tuple(gathers[:_MOST])


def _of_result(
    module: Module, entry: Computation, path: str, result: Instruction | None
) -> Iterator[UnevenGather]:
    cut = _before(module, entry, result, "slice")
    if cut is None:
        return
    within, slicing = cut
    gather = _gathered(module, entry, within, slicing, result)
    if gather is None or slicing.shape is None or gather.shape is None:
        return
    sizes, padded = slicing.shape.dimensions, gather.shape.dimensions
    if len(sizes) != len(padded):
        return
    differing = [n for n in range(len(sizes)) if sizes[n] != padded[n]]
    if len(differing) != 1:
        return
    (dimension,) = differing
    size, whole = sizes[dimension], padded[dimension]
    written = gather.attributes.get("dimensions", "").strip("{}")
    if size is None or whole is None or written != str(dimension):
        return
    operand = entry.operand(gather)
    part = operand.shape if operand is not None else None
    length = part.dimensions[dimension] if part is not None else None
    # The padding is less than one element per part.
    if length and whole % length == 0 and size > whole - whole // length:
        metadata = gather.metadata or slicing.metadata
        yield UnevenGather(
            path, gather.name, dimension, size, whole // length, gather.shape.bytes,
            module.source(metadata),
        )  # fmt: skip


def _before(
    module: Module, entry: Computation, at: Instruction | None, opcode: str
) -> tuple[Computation, Instruction] | None:
    """Return the first instruction of this kind behind a value, and its computation."""
    computation = entry
    for _ in range(12):
        if at is None:
            return None
        if at.opcode == opcode:
            return computation, at
        if at.opcode == "fusion" and computation is entry:
            inside = next((module.by_name.get(call.computation) for call in at.called), None)
            if inside is None or inside.root is None:
                return None
            computation, at = inside, inside.root
            continue
        if at.opcode not in SAME_DATA:
            return None
        at = computation.operand(at)
    return None


def _gathered(
    module: Module,
    entry: Computation,
    within: Computation,
    slicing: Instruction,
    result: Instruction | None,
) -> Instruction | None:
    """Return the all-gather whose result is cut."""
    computation: Computation = within
    at: Instruction | None = slicing
    for _ in range(12):
        if at is None:
            return None
        if at.opcode in _GATHERS and at.opcode != "all-gather-done":
            return at
        if at.opcode == "parameter" and computation is not entry and result is not None:
            if at.number is None:
                return None
            computation, at = entry, entry.operand(_call(entry, within, result), at.number)
            continue
        if at is not slicing and at.opcode not in (*SAME_DATA, *_GATHERS):
            return None
        at = computation.operand(at)
    return None


def _call(entry: Computation, within: Computation, result: Instruction) -> Instruction:
    """Return the fusion of the entry that calls a computation."""
    for instruction in entry.instructions:
        if any(called.computation == within.name for called in instruction.called):
            return instruction
    return result
