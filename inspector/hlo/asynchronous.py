"""Asynchronous operations, which the text contains in several pieces.

XLA abbreviates an operation in an asynchronous call: `dot-start`, `dot-done`. For TPUs it fuses a collective
with the operations that overlap it. One fusion contains it with the custom call AsyncCollectiveStart, one
with AsyncCollectiveDone, and the fusions between contain it again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from inspector.hlo import text
from inspector.hlo.module import Instruction, Module
from inspector.records.collectives import BY_OPCODE

START = "AsyncCollectiveStart"
DONE = "AsyncCollectiveDone"

# Computation and name of a collective.
Key = tuple[str, str]

# Starts that do not abbreviate an operation.
_NOT_ABBREVIATED = frozenset({"async-start", "copy-start"})
# In the backend_config of a collective, as JSON or as a string of JSON.
_SYNCHRONOUS = re.compile(r'\\?"is_sync\\?":\s*+true')
# The pieces of one collective share the chain_id. Different collectives can share a channel_id.
_CHAIN = re.compile(r'\bchain_id\s*+=\s*+"?([^\s",{}]++)')


@dataclass(frozen=True)
class Chains:
    """Collectives that several fusions of a TPU program contain.

    started: the piece with which each begins.
    carried_on: each other piece → the starts. There are several if the compiler copied a loop body, and none
      in a truncated text.
    """

    started: frozenset[Key] = frozenset()
    carried_on: Mapping[Key, tuple[Key, ...]] = field(default_factory=dict)


def waits_at_once(instruction: Instruction) -> bool:
    """Return whether a pair of start and done of a GPU program runs as one synchronous operation.

    XLA for GPUs marks pairs between which nothing is scheduled, and those that an option makes synchronous.
    """
    return _SYNCHRONOUS.search(instruction.attributes_text) is not None


def begun(instruction: Instruction) -> Instruction:
    """Return the operation that a `-start` begins; return any other instruction unchanged."""
    opcode = instruction.opcode
    if not opcode.endswith("-start") or opcode in _NOT_ABBREVIATED:
        return instruction
    return instruction._replace(
        opcode=opcode.removesuffix("-start"), shape_text=_result(opcode, instruction.shape_text)
    )


def _result(opcode: str, written: str | None) -> str | None:
    """Return the result in the shape of a start, (operands, result, contexts …).

    XLA before 2026 wrote the result alone for an all-reduce.
    """
    parts = text.items(written) if written is not None and written.startswith("(") else []
    operation = BY_OPCODE.get(opcode)
    result_alone = operation is not None and not operation.start_returns_operands
    if result_alone and not (parts and parts[0].startswith("(")):
        return written
    return parts[1] if len(parts) > 1 else None


def chains(module: Module) -> Chains:
    """Find the collectives of a module that several fusions contain."""
    starts: set[Key] = set()
    ends: set[Key] = set()
    for computation, instruction in module.instructions:
        if instruction.opcode == "custom-call" and instruction.target in (START, DONE):
            named = starts if instruction.target == START else ends
            named |= {(computation.name, operand.name or "") for operand in instruction.operands}
    if not starts and not ends:
        return Chains()
    begins: dict[tuple[str | None, ...], list[Key]] = {}
    pieces: dict[Key, tuple[str | None, ...]] = {}
    for computation, instruction in module.instructions:
        if "replica_groups" not in instruction.attributes_text:
            continue
        attributes = instruction.attributes
        channel, groups = attributes.get("channel_id"), attributes.get("replica_groups")
        marked = _CHAIN.search(instruction.attributes_text)
        chain = (instruction.opcode, channel, groups, marked[1] if marked else None)
        key = (computation.name, instruction.name)
        if key in starts:
            begins.setdefault(chain, []).append(key)
        elif key in ends or channel is not None:
            pieces[key] = chain
    carried_on = {
        key: tuple(begins.get(chain, ())) for key, chain in pieces.items() if key in ends or chain in begins
    }
    return Chains(frozenset(starts), carried_on)
