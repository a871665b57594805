"""What identifies a program, its large constants, and values gathered for their uneven parts."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from inspector.hlo.analysis import Analysis
from inspector.hlo.dataflow import Value
from inspector.hlo.module import Computation, Instruction, Module, operand_names
from inspector.hlo.opcodes import SAME_DATA
from inspector.records.snapshot import LargeConstant, UnevenGather

# A digest of the computation of a program, without the names of its instructions and computations.
#
# Two programs with equal digests have the same instructions with the same operands, so they take the same
# time and memory on any machine, whatever their source looks like.


# Attributes with the source or number of an instruction, which do not change its result.
_NAMES = frozenset({
    "metadata", "channel_id", "frontend_attributes", "origin", "sharding", "backend_config", "calls",
    "to_apply", "called_computations", "async_computation", "body", "condition", "branch_computations",
    "true_computation", "false_computation", "control-predecessors", "statistics",
})  # fmt: skip


def fingerprint(module: Module) -> str | None:
    """Return a digest of the instructions of a program; None if its text is truncated.

    >>> from inspector import hlo
    >>> def program(name):
    ...     return f'''HloModule m
    ... ENTRY main {{
    ...   {name} = f32[8] parameter(0)
    ...   ROOT twice = f32[8] add({name}, {name})
    ... }}'''
    >>> first, second = (hlo.parser.parse(program(name))[0] for name in ("x", "y"))
    >>> fingerprint(first) == fingerprint(second) != None
    True
    """
    entry = module.complete_entry()
    if entry is None:
        return None
    digests: dict[str, str] = {}
    # A computation is written before those that call it.
    for computation in module.computations:
        digests[computation.name] = _of_computation(computation, digests)
    return digests[entry.name]


def _of_computation(computation: Computation, called: Mapping[str, str]) -> str:
    """Return a digest of the result of a computation, and of all instructions that no other one uses."""
    digests: dict[str | None, str] = {}
    unused: set[str | None] = set()
    for instruction in computation.instructions:
        names = operand_names(instruction)
        unused -= set(names)
        unused.add(instruction.name)
        digests[instruction.name] = _of_instruction(instruction, [digests.get(n, "") for n in names], called)
    root = computation.root
    last = "" if root is None else digests[root.name]
    return _digest(last, *sorted(digests[name] for name in unused))


def _of_instruction(instruction: Instruction, operands: list[str], called: Mapping[str, str]) -> str:
    attributes = instruction.attributes
    return _digest(
        instruction.opcode,
        instruction.shape_text or "",
        "" if operands else instruction.operands_text,  # the number of a parameter, or a constant
        *operands,
        *(f"{key}={value}" for key, value in sorted(attributes.items()) if key not in _NAMES),
        *(called.get(other.computation, "") for other in instruction.called),
    )


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


# Smaller constants are those of the code, such as tables of random number generators.
LEAST_BYTES = 64 * 2**10
_MOST = 100  # of each kind in a record
_GATHERS = frozenset({"all-gather", "all-gather-start"})
_FOLLOWED = SAME_DATA | {"fusion"}


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


def uneven_gathers(analysis: Analysis, results: Sequence[str]) -> tuple[UnevenGather, ...]:
    """Return the results that were computed in uneven parts, and that every device gets whole.

    XLA pads a dimension that mesh axes do not divide. A result cannot be sharded unevenly, so the padded
    parts are gathered and the padding is cut off.

    Args:
      results: paths of the flattened results of the program, in order.
    """
    values = analysis.backward.results(len(results)) or ()
    gathers: list[UnevenGather] = []
    for path, value in zip(results, values, strict=False):
        gathers += _of_result(analysis, path, value)
    return tuple(gathers[:_MOST])


def _of_result(analysis: Analysis, path: str, result: Value) -> Iterator[UnevenGather]:
    backward = analysis.backward
    chain = backward.chain(result, _FOLLOWED)
    cut = next((value for value in chain if value.instruction.opcode == "slice"), None)
    if cut is None:
        return
    (padded_value,) = backward.operands(cut) or [cut]
    chain = backward.chain(padded_value, _FOLLOWED)
    gathered = next((value for value in chain if value.instruction.opcode in _GATHERS), None)
    if gathered is None:
        return
    slicing, gather = cut.instruction, gathered.instruction
    operand = backward.operands(gathered)[0].instruction if backward.operands(gathered) else None
    if slicing.shape is None or gather.shape is None or operand is None or operand.shape is None:
        return
    sizes, padded = slicing.shape.dimensions, gather.shape.dimensions
    if len(sizes) != len(padded):
        return
    differing = [n for n in range(len(sizes)) if sizes[n] != padded[n]]
    if len(differing) != 1:
        return
    (dimension,) = differing
    size, whole, length = sizes[dimension], padded[dimension], operand.shape.dimensions[dimension]
    written = gather.attributes.get("dimensions", "").strip("{}")
    if size is None or whole is None or written != str(dimension):
        return
    # The padding is less than one element per part.
    if length and whole % length == 0 and size > whole - whole // length:
        metadata = gather.metadata or slicing.metadata
        yield UnevenGather(
            path,
            gather.name,
            dimension=dimension,
            size=size,
            parts=whole // length,
            bytes=gather.shape.bytes,
            source=analysis.module.source(metadata),
        )
