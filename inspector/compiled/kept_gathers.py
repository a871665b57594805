"""Gathered values that a device keeps from the forward pass until the backward pass reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inspector.compiled.hlo.live_values import DEVICE, Buffer, LiveValues
from inspector.compiled.hlo.module import (
    SAME_DATA,
    Computation,
    Instruction,
    Module,
    operand_names,
)
from inspector.compiled.op_name import parse_op_name
from inspector.core.snapshot import Collective, KeptGather

# Instructions with the data of their first operand.
_SAME_DATA = SAME_DATA | {
    "get-tuple-element", "copy-start", "copy-done", "all-gather-done", "async-done",
}  # fmt: skip
_CONTROL = frozenset({"while", "conditional", "call", "tuple", "optimization-barrier"})
_MOST_STEPS = 12  # from a value to the copy of it that is kept
_MOST = 100  # in a record
_BACKWARD = frozenset({"backward", "rematerialised"})


def kept_gathers(
    module: Module, live: LiveValues | None, collectives: Sequence[Collective]
) -> tuple[KeptGather, ...] | None:
    """Return the all-gathers of the forward pass whose result the backward pass reads, the largest first.

    XLA writes the result of one in a loop into an array with the results of all iterations. Phases are those
    of the operations' names.

    Args:
      live: the values of the module. None if they are unknown, as then is the result.
      collectives: those of the module.
    """
    if live is None:
        return None
    gathers = {
        (collective.computation, collective.name): collective
        for collective in collectives
        if collective.op == "all-gather" and _phases(collective.op_name) == {"forward"}
    }
    if not gathers:
        return ()
    return tuple(sorted(_Reader(module, live).read(gathers), key=lambda kept: -kept.bytes)[:_MOST])


class _Reader:
    """Follows gathered values through the buffers of a program."""

    def __init__(self, module: Module, live: LiveValues) -> None:
        self._module = module
        self._instructions = live.instructions
        self._written: dict[int, list[Buffer]] = {}
        for buffer in live.buffers:
            for position in buffer.writers:
                self._written.setdefault(position, []).append(buffer)

    def read(self, gathers: dict[tuple[str, str], Collective]) -> Iterator[KeptGather]:
        counted: set[int] = set()
        for position, (computation, instruction) in enumerate(self._instructions):
            gather = gathers.get((computation, instruction.name))
            if gather is None:
                continue
            results = [value for value in self._written.get(position, ()) if position not in value.readers]
            kept = {id(buffer): buffer for result in results for buffer in self._kept(result)}
            size = sum(buffer.bytes for key, buffer in kept.items() if key not in counted)
            counted |= kept.keys()
            if size:
                paths, source = gather.arrays or (), gather.source
                yield KeptGather(gather.name, size, gather.payload_bytes, paths, source)

    def _kept(self, result: Buffer) -> list[Buffer]:
        """Return the buffers with this value, or with copies of it, that the backward pass reads."""
        kept, seen, waiting = [], {id(result)}, [(result, 0)]
        while waiting:
            buffer, steps = waiting.pop()
            takes_memory = buffer.space == DEVICE and not buffer.whole_program
            if takes_memory and any(map(self._uses, buffer.readers)):
                kept.append(buffer)
                continue  # a copy of it is another value
            for position in buffer.readers if steps < _MOST_STEPS else ():
                copies = self._written.get(position, ()) if self._copies(buffer, position) else ()
                for copy in copies:
                    if id(copy) not in seen:
                        seen.add(id(copy))
                        waiting.append((copy, steps + 1))
        return kept

    def _uses(self, position: int) -> bool:
        """Return whether the instruction there computes a part of the backward pass."""
        _, instruction = self._instructions[position]
        if instruction.opcode in _CONTROL:
            return False
        phases = _phases(instruction.metadata.get("op_name"))
        return bool(phases) and phases <= _BACKWARD

    def _copies(self, buffer: Buffer, position: int) -> bool:
        """Return whether the instruction there writes the data of a buffer into another one."""
        name, instruction = self._instructions[position]
        if instruction.opcode in _SAME_DATA:
            return True
        computation = self._module.by_name.get(name)
        if computation is None:
            return False
        if instruction.opcode == "dynamic-update-slice":
            return _is_update(computation, instruction, buffer)
        for called in instruction.called if instruction.opcode == "fusion" else ():
            fused = self._module.by_name.get(called.computation)
            if fused is not None and fused.root is not None:
                return _passes_on(fused, fused.root, buffer.value, instruction)
        return False


def _is_update(computation: Computation, instruction: Instruction, buffer: Buffer) -> bool:
    """Return whether a buffer is what a dynamic-update-slice writes."""
    at = computation.operand(instruction, 1)
    for _ in range(_MOST_STEPS):
        if at is None or at.name == buffer.value:
            break
        at = computation.operand(at) if at.opcode in _SAME_DATA else None
    return at is not None and at.name == buffer.value


def _passes_on(fused: Computation, at: Instruction, value: str, fusion: Instruction) -> bool:
    """Return whether a fusion returns the data of one operand, whole, or writes it into another array."""
    given = operand_names(fusion)
    for _ in range(_MOST_STEPS):
        names = operand_names(at)
        if at.opcode == "parameter":
            number = at.number
            return number is not None and number < len(given) and given[number] == value
        place = 1 if at.opcode == "dynamic-update-slice" else 0
        if at.opcode not in (*_SAME_DATA, "dynamic-update-slice") or len(names) <= place:
            return False
        following = fused.by_name.get(names[place] or "")
        if following is None:
            return False
        at = following
    return False


def _phases(op_name: str | None) -> set[str]:
    return {operation.phase for operation in parse_op_name(op_name)}
