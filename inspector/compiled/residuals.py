"""The values that the backward pass of a program reads from the forward pass or computes again.

JAX names the operations that the backward pass runs again `rematted_computation`. A value is kept if an
operation of the forward pass computes it, and one of the backward pass reads it. Values that are made from
arguments without arithmetic, such as gathered weights, are not activations.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from inspector.hlo import collective_requests
from inspector.hlo.accesses import updates_in_place
from inspector.hlo.analysis import Analysis
from inspector.hlo.asynchronous import begun
from inspector.hlo.dataflow import CallFrame, Value
from inspector.hlo.fused_values import FusedTraffic
from inspector.hlo.live_values import DEVICE, HOST, Buffer, LiveValues
from inspector.hlo.module import Computation, Instruction, TooLong, reach
from inspector.hlo.op_name import BACKWARD, OpName, parse_op_name, phases_of, without_layer_numbers
from inspector.hlo.opcodes import ANNOTATIONS, KEEPS_DATA, MOVES, RUNS, SAME_DATA, WITHOUT_DATA, WRITES, Does
from inspector.hlo.shapes import Shape
from inspector.hlo.work import WorkCount
from inspector.records.snapshot import (
    CARRY,
    Collective,
    KeptActivation,
    KeptGather,
    RecomputedOperation,
    Residuals,
)

_REPLACES = frozenset({"custom", "solve", "product", "reduce"})
_CONTROL = frozenset({"while", "conditional", "call", "tuple", "pass"})
_MOST_STEPS_TO_COPY = 12  # from a value to the copy of it that is kept
_MOST_KEPT_GATHERS = 100  # in a record


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
    return tuple(
        sorted(_KeptGathers(analysis, live).read(gathers), key=lambda kept: -kept.bytes)[:_MOST_KEPT_GATHERS]
    )


class _KeptGathers:
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
            kept = {id(buffer): buffer for result in results for buffer in self._kept(result, position)}
            size = sum(buffer.bytes for key, buffer in kept.items() if key not in counted)
            counted |= kept.keys()
            if size:
                paths, source = gather.arrays or (), gather.source
                yield KeptGather(gather.name, size, paths, source, gather.payload_bytes)

    def _kept(self, result: Buffer, at: int) -> list[Buffer]:
        """Return the buffers with this value, or with copies of it, that the backward pass reads.

        at: the position of what writes the value.
        """
        kept, seen, waiting = [], {id(result)}, [(result, at, 0)]
        while waiting:
            buffer, written, steps = waiting.pop()
            takes_memory = buffer.space == DEVICE and not buffer.whole_program
            end = min(filter(self._replaces, (at for at in buffer.writers if at > written)), default=math.inf)
            readers = [position for position in buffer.readers if position <= end]
            if takes_memory and any(map(self._uses, readers)):
                kept.append(buffer)
                continue  # a copy of it is another value
            for position in readers if steps < _MOST_STEPS_TO_COPY else ():
                copies = self._written.get(position, ()) if self._copies(buffer, position) else ()
                for copy in copies:
                    if id(copy) not in seen:
                        seen.add(id(copy))
                        waiting.append((copy, position, steps + 1))
        return kept

    def _replaces(self, position: int) -> bool:
        """Return whether the instruction there writes a result that is no copy of an operand."""
        _, instruction = self._instructions[position]
        return instruction.does in _REPLACES and instruction.target not in KEEPS_DATA

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
        whole = Value(CallFrame(computation, open=False), instruction)
        data = itertools.islice(self._backward.chain(whole, WRITES), 1, None)
        # Values of the same computation, not those inside of the fusion.
        return any(value.frame.depth == 0 and value.instruction.name == buffer.value for value in data)


_SAME: frozenset[Does] = frozenset({
    "bitcast", "copy", "reorder", "parameter", "element", "tuple", "pass", "done", "copy-start", "start",
    "while", "call", "conditional",
})  # fmt: skip
_THROUGH = _SAME | {"slice"}
_FROM_ARGUMENTS = MOVES | _SAME | WITHOUT_DATA | {"collective", "broadcast", "custom", "fusion"}
_NOT_SHOWN = WITHOUT_DATA | {"fusion", "collective", "broadcast", "slice", "pad", "cast"}
# XLA's pass `HloRematerialization` names the copies of an instruction that it makes.
_BY_COMPILER = re.compile(r"\.remat\d*(?:\.|\Z)")
_MARK = "reduce_precision"
_UNNAMED = parse_op_name(None)[0]
# Operations that have the name of their users if they have none, and those that such a name comes from.
_WORK = frozenset({"fusion", "product", "custom", "bitcast", "copy", "reorder", "tuple", "element"})
_MOST_USERS = 8
_MOST_STEPS = 64
_MOST = 60  # rows of operations in a record


def residuals(analysis: Analysis, live: LiveValues | None = None) -> Residuals | None:
    """Return what the backward pass reads and runs again; None if the text is truncated or has no names.

    Without a backward pass, nothing is kept.

    Args:
      live: the buffers of a compiled program, if they are known. Several values can be in one.
    """
    entry = analysis.module.complete_entry()
    if entry is None or not any("op_name" in op.attributes_text for _, op in analysis.module.instructions):
        return None
    try:
        return _Reader(analysis, live).read(entry)
    except TooLong:
        return None


@dataclass
class _Kept:
    """An array that the backward pass reads, with the operation and the shape of one value in it."""

    name: OpName
    shape: Shape
    bytes: int
    host: bool
    source: str | None


class _Reader:
    def __init__(self, analysis: Analysis, live: LiveValues | None) -> None:
        self._analysis = analysis
        self._module = analysis.module
        self._backward = analysis.backward
        self._names: dict[tuple[str, str], OpName] = {}
        self._buffers: dict[tuple[str, str], list[Buffer]] = {}
        for buffer in live.buffers if live is not None else ():
            for position in buffer.writers:
                assert live is not None
                computation, instruction = live.instructions[position]
                self._buffers.setdefault((computation, instruction.name), []).append(buffer)

    def read(self, entry: Computation) -> Residuals:
        again = self._recomputed(entry)
        kept: dict[tuple[object, ...], KeptActivation] = {}
        in_buffers: dict[int, _Kept] = {}
        for number, (buffer, value) in enumerate(self._kept(entry)):
            key = -1 - number if buffer is None else id(buffer)
            before = in_buffers.get(key)
            # Of an array with the values of a loop, some iterations can be apart from the others.
            if before is None or (value.shape.bytes or 0) < (before.shape.bytes or 0):
                in_buffers[key] = value
        for value in in_buffers.values():
            shape, module = str(value.shape), without_layer_numbers(value.name.module)
            size = value.shape.bytes or 1
            activation = KeptActivation(
                module,
                value.name.primitive,
                shape=shape,
                count=max(round(value.bytes / size), 1),
                bytes=value.bytes,
                host=value.host,
                source=value.source,
            )
            alike = (module, activation.primitive, shape, value.host, value.source)
            if (more := kept.get(alike)) is not None:
                count, total = more.count + activation.count, more.bytes + activation.bytes
                activation = replace(activation, count=count, bytes=total)
            kept[alike] = activation
        ranked = sorted(kept.values(), key=lambda activation: -activation.bytes)
        return replace(again, kept=tuple(ranked))

    def _name(self, computation: Computation, instruction: Instruction, steps: int = _MOST_USERS) -> OpName:
        """Return the operation of the model; of merged operations the first.

        Compilers lose the names of products that they rewrite. These have the phase and the module of what
        uses them, in the forward pass if anything does there.
        """
        key = computation.name, instruction.name
        if key not in self._names:
            name = parse_op_name(instruction.metadata.get("op_name"))[0]
            if name == _UNNAMED and instruction.does == "fusion":
                named = (
                    self._name(inside, op, 0)
                    for inside in self._fused(instruction)
                    for op in reversed(inside.instructions)
                )
                name = next((inner for inner in named if inner.phase != "unknown"), name)
            if name == _UNNAMED and instruction.does in _WORK and steps:
                users = (
                    self._name(of, user, steps - 1) for of, user in self._users(computation, instruction)
                )
                known = [user for user in users if user != _UNNAMED]
                if known:
                    first = next((user for user in known if user.phase == "forward"), known[0])
                    name = replace(first, primitive=instruction.opcode)
            self._names[key] = name
        return self._names[key]

    def _name_of(self, value: Value) -> OpName:
        """Return the operation of the model that computes a value, also if it is one result of several."""
        part = collective_requests.part_of(self._analysis, value)
        if part is not None:
            return parse_op_name(part.op_name)[0]
        return self._name(value.frame.computation, value.instruction)

    def _fused(self, instruction: Instruction) -> list[Computation]:
        """Return the computation of a fusion."""
        return self._module.callees(instruction) if instruction.does == "fusion" else []

    def _users(
        self, computation: Computation, instruction: Instruction
    ) -> Iterator[tuple[Computation, Instruction]]:
        for user in self._analysis.users(computation).get(instruction.name, ()):
            yield computation, user
        if instruction.root:
            for site in self._analysis.call_sites.get(computation.name, ()):
                if site.instruction.does == "fusion":
                    yield site.caller, site.instruction

    def _kept(self, entry: Computation) -> Iterator[tuple[Buffer | None, _Kept]]:
        """Yield the buffer, if it is known, and its content."""
        waiting = [
            operand
            for computation in self._module.executed(entry, ("while", "call", "conditional"))
            for instruction in computation.instructions
            if begun(instruction).does not in _SAME and self._name(computation, instruction).phase in BACKWARD
            for operand in self._backward.operands(Value(CallFrame(computation), instruction))
        ]
        seen: set[tuple[str, str, tuple[int, ...]]] = set()
        while waiting:
            value = self._begun(waiting.pop())
            instruction = value.instruction
            key = value.key()
            if key in seen or instruction.does in WITHOUT_DATA:
                continue
            seen.add(key)
            if self._passes_on(instruction):
                waiting += self._sources(value)
                continue
            phase = self._name_of(value).phase
            if phase in ("forward", "unknown") and not self._from_arguments(value):
                kept = self._array(value)
                if kept is not None and kept.name.phase == "forward":
                    yield self._buffer(value, kept), kept
                elif phase == "unknown" and instruction.does not in ("fusion", "update"):
                    waiting += self._backward.operands(value)

    def _begun(self, value: Value) -> Value:
        """Return the operation that an asynchronous one begins, other values as they are."""
        instruction = begun(value.instruction)
        return value if instruction is value.instruction else Value(value.frame, instruction, value.path[1:])

    def _buffer(self, value: Value, kept: _Kept) -> Buffer | None:
        name, shape = value.instruction.name, value.instruction.shape
        written = self._buffers.get((value.frame.computation.name, name), ())
        large = [buffer for buffer in written if buffer.bytes >= kept.bytes]
        if shape is not None and shape.parts and len(value.path) == 1:  # a start has its operands first
            large = [b for b in large if b.value != name or b.part % len(shape.parts) == value.path[0]]
        return max(large, key=lambda buffer: buffer.value == name, default=None)

    def _sources(self, value: Value) -> list[Value]:
        """Return the values that this one is, or has the elements of."""
        if value.instruction.does in ("custom", "convert"):
            return self._backward.operands(value)
        sources = self._backward.sources(value, _THROUGH | {"fusion"})
        # A loop returns what its body does.
        return sources[:1] if value.instruction.does == "while" else sources

    def _passes_on(self, instruction: Instruction) -> bool:
        """Return whether the result is an operand, or the same elements of it in another form."""
        if instruction.does == "custom":
            return instruction.target in ANNOTATIONS or instruction.target in KEEPS_DATA
        # JAX marks a value that it saves with a reduction to its own precision. XLA for CPUs adds casts.
        if instruction.does in ("convert", "fusion") and "op_name" not in instruction.attributes_text:
            inside = [op for fused in self._fused(instruction) for op in fused.instructions]
            return all(self._passes_on(op) for op in inside)
        return instruction.does in _SAME or instruction.does == "broadcast"

    def _from_arguments(self, value: Value) -> bool:
        """Return whether a value is made from arguments and constants without arithmetic."""

        def sources(at: Value) -> list[Value]:
            does = at.instruction.does
            if does in WITHOUT_DATA:
                return []
            return (
                self._backward.operands(at)
                if does == "custom"
                else self._backward.sources(at, _FROM_ARGUMENTS)
            )

        for steps, at in enumerate(reach([value], sources, Value.key)):
            does = at.instruction.does
            if does not in _FROM_ARGUMENTS or steps == _MOST_STEPS:
                return False
            if does == "custom" and not self._passes_on(at.instruction):
                return False
            if does == "parameter" and not at.frame.computation.entry and not sources(at):
                return False  # of several calls
        return True

    def _array(self, value: Value) -> _Kept | None:
        """Return the array of a value. A loop writes the values of its iterations into one array."""
        shape = _part(value)
        if shape is None or not shape.bytes or not shape.dimensions:
            return None
        item, one, source = self._written(value)
        one = shape if one is None else replace(shape, dimensions=one.dimensions)  # the array's element type
        part = self._in_fusion(item)
        name = self._name_of(part)
        if item.instruction.does == "parameter":
            name = OpName("forward", "", CARRY)
        elif item is not value and self._from_arguments(item):
            return None
        host = HOST in (shape.memory_space, one.memory_space)
        return _Kept(name, one, shape.bytes, host, source)

    def _in_fusion(self, value: Value) -> Value:
        """Return the operation inside of a fusion that computes one of its several results."""
        for root in self._backward.sources(value, {"fusion"}) if value.path else ():
            for part in self._backward.sources(root, ()) if root.instruction.does == "tuple" else ():
                if self._name(part.frame.computation, part.instruction).phase == "forward":
                    return part
        return value

    def _written(self, value: Value) -> tuple[Value, Shape | None, str | None]:
        """Return the value that is written into a part of an array, its shape there, and its line.

        The shape is None for another value, which is returned itself.
        """
        line: str | None = None
        shape: Shape | None = None
        for _ in range(_MOST_STEPS):
            instruction = value.instruction
            # JAX marks a value that it saves, on the line that names it. The mark can be a collective.
            marks = self._name(value.frame.computation, instruction).primitive == _MARK
            if marks and line is None:
                line = self._module.source(instruction.metadata)
            if instruction.does == "update":
                sources = self._backward.operands(value, slice(1, 2))
                part = _part(sources[0]) if sources else None
                if part is not None and part.dimensions[:1] == (1,):
                    shape = replace(part, dimensions=part.dimensions[1:])
            elif instruction.does == "fusion" and not self._passes_on(instruction):
                sources = [
                    replaced
                    for root in self._backward.sources(value, {"fusion"})
                    if (replaced := self._update_in(root)) is not None
                ]
            elif marks:
                sources = self._backward.operands(value, slice(1))
            else:
                sources = self._sources(value) if self._passes_on(instruction) else []
            if not sources or (instruction.does == "parameter" and len(sources) > 1):
                break  # of a loop: the value of the previous iteration
            value = self._begun(sources[0])
        sent = collective_requests.part_of(self._analysis, value)
        own = self._module.source(value.instruction.metadata) if sent is None else sent.source
        return value, shape, line or own

    def _update_in(self, root: Value) -> Value | None:
        """Return the update by which a fusion writes into a part of an array; None if it does not."""
        fused = root.frame.computation
        output = root.instruction
        if output.does == "tuple":
            operands = (
                self._backward.operands(root, slice(root.path[0], root.path[0] + 1)) if root.path else []
            )
            output = operands[0].instruction if operands else output
        while output.does == "convert" and (operands := self._backward.operands(Value(root.frame, output))):
            output = operands[0].instruction
        updates = [*itertools.islice(updates_in_place(fused, output), 2)]
        if len(updates) != 1 or updates[0].does != "update":
            return None
        return Value(root.frame, updates[0])

    def _recomputed(self, entry: Computation) -> Residuals:
        """Return the operations that the backward pass runs again, without the kept values."""
        rows: dict[tuple[object, ...], RecomputedOperation] = {}
        matmul: dict[str, float] = {}
        total: float | None = 0.0
        by_compiler, unnamed = 0, False
        count = WorkCount(self._analysis)
        for computation in self._module.executed(entry, RUNS):
            times = self._analysis.runs[computation.name].count
            cloned = self._analysis.clones.get(computation.name, ())
            for instruction in computation.instructions:
                by_compiler += _BY_COMPILER.search(instruction.name) is not None
                if instruction.does in _SAME or instruction.name in cloned:
                    continue
                named = parse_op_name(instruction.metadata.get("op_name"))[0] != _UNNAMED
                unnamed = unnamed or (not named and bool(count.alone(computation, instruction).products))
                if self._name(computation, instruction).phase != "rematerialised":
                    continue
                work = count.alone(computation, instruction)
                if times is None or work.flops.value is None:
                    total = None
                    continue
                flops = times * work.flops.value
                total = None if total is None else total + flops
                for dtype, product in work.products.items():
                    if dtype is not None:
                        matmul[dtype] = matmul.get(dtype, 0.0) + times * (product.value or 0)
                shape = instruction.shape
                if shape is None or shape.parts is not None or instruction.does in _NOT_SHOWN:
                    continue
                name = self._name(computation, instruction)
                source = self._module.source(instruction.metadata)
                key = (without_layer_numbers(name.module), name.primitive, str(shape), source)
                before = rows.get(key) or RecomputedOperation(*key[:3], 0, 0, 0.0, source)
                size = (
                    None
                    if before.bytes is None or shape.bytes is None
                    else before.bytes + times * shape.bytes
                )
                again = before.count + times
                rows[key] = replace(before, count=again, bytes=size, flops=before.flops + flops)
        ranked = sorted(rows.values(), key=lambda row: (-row.flops, -(row.bytes or 0)))
        total = None if unnamed and rows else total
        return Residuals((), tuple(ranked[:_MOST]), total, matmul, by_compiler=by_compiler)


def with_traffic(residuals: Residuals, analysis: Analysis, traffic: FusedTraffic) -> Residuals:
    """Return the record with the HBM traffic of values that are computed again.

    traffic: that of the program before its compile.
    """
    again = sum(
        traffic.bytes[instruction.name]
        for _, instruction in analysis.module.instructions
        if instruction.name in traffic.bytes
        and parse_op_name(instruction.metadata.get("op_name"))[0].phase == "rematerialised"
    )
    return replace(residuals, fused_bytes=again)


def _part(value: Value) -> Shape | None:
    """Return the shape of a value; None if it is a tuple or unknown."""
    shape = value.instruction.shape
    for number in value.path:
        parts = None if shape is None else shape.parts
        shape = parts[number] if parts is not None and number < len(parts) else None
    return None if shape is None or shape.parts is not None else shape
