"""Gathered values that a device keeps from the forward pass until the backward pass reads them."""

import itertools
from collections.abc import Iterator, Sequence

from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.dataflow import Frame, Value
from inspector.compiled.hlo.live_values import DEVICE, Buffer, LiveValues
from inspector.compiled.hlo.opcodes import SAME_DATA, WRITES
from inspector.compiled.op_name import BACKWARD, phases_of
from inspector.core.snapshot import Collective, KeptGather

_CONTROL = frozenset({"while", "conditional", "call", "tuple", "pass"})
_MOST_STEPS = 12  # from a value to the copy of it that is kept
_MOST = 100  # in a record


def kept_gathers(
    analysis: Analysis, live: LiveValues | None, collectives: Sequence[Collective]
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
        if collective.op == "all-gather" and phases_of(collective.op_name) == {"forward"}
    }
    if not gathers:
        return ()
    return tuple(sorted(_Reader(analysis, live).read(gathers), key=lambda kept: -kept.bytes)[:_MOST])


class _Reader:
    """Follows gathered values through the buffers of a program."""

    def __init__(self, analysis: Analysis, live: LiveValues) -> None:
        self._module = analysis.module
        self._backward = analysis.backward
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
        if instruction.does in _CONTROL:
            return False
        phases = phases_of(instruction.metadata.get("op_name"))
        return bool(phases) and phases <= BACKWARD

    def _copies(self, buffer: Buffer, position: int) -> bool:
        """Return whether the instruction there writes the data of a buffer into another one."""
        name, instruction = self._instructions[position]
        if instruction.does in SAME_DATA or instruction.does in ("element", "copy-start", "done"):
            return True
        computation = self._module.by_name.get(name)
        if computation is None or instruction.does not in ("update", "fusion"):
            return False
        whole = Value(Frame(computation, open=False), instruction)
        data = itertools.islice(self._backward.chain(whole, WRITES), 1, None)
        # Values of the same computation, not those inside of the fusion.
        return any(value.frame.depth == 0 and value.instruction.name == buffer.value for value in data)
