"""What is written in several pieces and happens once: operations that run beside others.

XLA writes an operation that it wraps in an asynchronous call in short: `dot-start`, `dot-done`. For TPUs it
takes a collective into the fusions that run meanwhile: one of them holds it with the custom call
AsyncCollectiveStart, one with AsyncCollectiveDone, and those between hold it again to carry it on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from inspector.compiled.hlo import text
from inspector.compiled.hlo.flops import target
from inspector.compiled.hlo.module import Instruction, Module
from inspector.core.collectives import BY_OPCODE

START = "AsyncCollectiveStart"
DONE = "AsyncCollectiveDone"

# A collective's computation and name.
Key = tuple[str, str]

# Starts that begin no operation that is written out: it is in a computation, or the start is all of it.
_NOT_SHORT = frozenset({"async-start", "copy-start"})
# What the pieces of one collective have in common; channels alone may be shared by collectives.
_CHAIN = re.compile(r'\bchain_id\s*+=\s*+"?([^\s",{}]++)')


@dataclass(frozen=True)
class Chains:
    """The collectives that fusions of a TPU share: where each starts, and what only carries one on.

    `carried_on` says of the latter where that starts. There may be several such places where the compiler
    made copies of a loop's body, and none in a text that ends too early.
    """

    started: frozenset[Key] = frozenset()
    carried_on: Mapping[Key, tuple[Key, ...]] = field(default_factory=dict)


def begun(instruction: Instruction) -> Instruction:
    """The operation that the start of an asynchronous one begins; any other instruction as it is."""
    opcode = instruction.opcode
    if not opcode.endswith("-start") or opcode in _NOT_SHORT:
        return instruction
    return instruction._replace(
        opcode=opcode.removesuffix("-start"), shape_text=_result(opcode, instruction.shape_text)
    )


def _result(opcode: str, written: str | None) -> str | None:
    """The shape of the result in that of a start, which is (operands, result, contexts …).

    An all-reduce's may be the result alone: so XLA wrote it until 2026, when it had no operands in it.
    """
    parts = text.items(written) if written is not None and written.startswith("(") else []
    operation = BY_OPCODE.get(opcode)
    result_alone = operation is not None and not operation.start_returns_operands
    if result_alone and not (parts and parts[0].startswith("(")):
        return written
    return parts[1] if len(parts) > 1 else None


def chains(module: Module) -> Chains:
    """The collectives of a module that are written in several pieces."""
    starts: set[Key] = set()
    ends: set[Key] = set()
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "custom-call" and target(instruction) in (START, DONE):
                named = starts if target(instruction) == START else ends
                named |= {(computation.name, one.name or "") for one in instruction.operands}
    if not starts and not ends:
        return Chains()
    begins: dict[tuple[str | None, ...], list[Key]] = {}
    pieces: dict[Key, tuple[str | None, ...]] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            key = (computation.name, instruction.name)
            if "replica_groups" not in instruction.attributes_text:
                continue
            attributes = instruction.attributes
            channel, marked = (
                attributes.get("channel_id"),
                _CHAIN.search(instruction.attributes_text),
            )
            chain = (
                instruction.opcode,
                channel,
                attributes.get("replica_groups"),
                marked[1] if marked else None,
            )
            if key in starts:
                begins.setdefault(chain, []).append(key)
            elif key in ends or channel is not None:
                pieces[key] = chain
    carried_on = {
        key: tuple(begins.get(chain, ()))
        for key, chain in pieces.items()
        if key in ends or chain in begins
    }
    return Chains(frozenset(starts), carried_on)
