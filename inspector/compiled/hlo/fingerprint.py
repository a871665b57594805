"""A digest of the computation of a program, without the names of its instructions and computations.

Two programs with equal digests have the same instructions with the same operands, so they take the same time
and memory on any machine, whatever their source looks like.
"""

import hashlib
from collections.abc import Mapping

from inspector.compiled.hlo.module import Computation, Instruction, Module, operand_names

# Attributes with the source or number of an instruction, which do not change its result.
_NAMES = frozenset({
    "metadata", "channel_id", "frontend_attributes", "origin", "sharding", "backend_config", "calls",
    "to_apply", "called_computations", "async_computation", "body", "condition", "branch_computations",
    "true_computation", "false_computation", "control-predecessors", "statistics",
})  # fmt: skip


def fingerprint(module: Module) -> str | None:
    """Return a digest of the instructions of a program; None if its text is truncated.

    >>> from inspector.compiled import hlo
    >>> def program(name):
    ...     return f'''HloModule m
    ... ENTRY main {{
    ...   {name} = f32[8] parameter(0)
    ...   ROOT twice = f32[8] add({name}, {name})
    ... }}'''
    >>> first, second = (hlo.parse(program(name))[0] for name in ("x", "y"))
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
