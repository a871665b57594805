"""The memory of one device while a program runs, from the live values of its schedule."""

import functools
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from inspector.hlo import collective_requests
from inspector.hlo.analysis import Analysis
from inspector.hlo.attention_kernels import PlannedKernel
from inspector.hlo.dataflow import CallFrame, Value
from inspector.hlo.fused_values import fused_values
from inspector.hlo.live_values import DEVICE, HOST, Buffer, LiveValues, live_values
from inspector.hlo.module import Instruction, operand_shapes
from inspector.hlo.op_name import BACKWARD, parse_op_name, phases_of
from inspector.hlo.opcodes import WRITES
from inspector.hlo.shapes import Shape
from inspector.records.snapshot import (
    ArgumentUse,
    GroupUse,
    LiveValue,
    MemoryUse,
    Phase,
    UseGroup,
)
from inspector.records.typed_json import LARGEST
from inspector.sharding.array_groups import USE_GROUPS, group_of_input

_KEY = re.compile(
    r"""\.(?P<name>[A-Za-z_]\w*+)"""
    r"""|\[(?P<quoted>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")\]"""
    r"""|\[(?:<flat\ index\ )?(?P<other>[^\[\]<>]*+)>?\]""",
    re.X | re.S,
)
_FIRST = re.compile(r"[A-Za-z_]\w*+")
_ESCAPE = re.compile(r"\\(.)", re.S)
_MOST_KEYS = 100


@functools.lru_cache(maxsize=4096)
def keys_of(name: str) -> tuple[str, ...] | None:
    """Return the argument's name and its keys, or None if the text is something else.

    The keys equal those of `jax.tree_util.keystr(…, simple=True)`.
    """
    first = _FIRST.match(name)
    if first is None:
        return None
    keys, at = [first[0]], first.end()
    while at < len(name):
        match = _KEY.match(name, at)
        if match is None or len(keys) == _MOST_KEYS:
            return None
        quoted = match["quoted"]
        keys.append(_ESCAPE.sub(r"\1", quoted[1:-1]) if quoted else match["name"] or match["other"] or "")
        at = match.end()
    return tuple(keys)


def path_of(name: str) -> str | None:
    """Return the keys joined by "/", or None if the text is not the name of an argument."""
    keys = keys_of(name)
    return None if keys is None else "/".join(keys)


# Points of a curve. A figure is about twice as many pixels wide as it has points.
MOST_POINTS = 240
# Values at the peak are kept until they have this share of it, and at most this many.
_SHARE_OF_VALUES = 0.99
_MOST_VALUES = 400
# Peaks that differ by this share are equal: the text has no tables of tuples.
_EQUAL = 0.01
# Values below this share of the largest are temporaries, without looking at their use.
_SMALL = 1e-5
_NAMED_PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer")
# Instructions whose phases count. Others, such as constants and copies, are scheduled far from their use.
_WORK = frozenset({"fusion", "product", "custom", "reduce", "scatter", "gather", "collective"})

_UPDATED = frozenset({"params", "opt_state"})  # by gradients


def memory_use(
    analysis: Analysis,
    arguments: Sequence[str] = (),
    results: Sequence[str] = (),
    peak: int | None = None,
    uses: Mapping[str, ArgumentUse] | None = None,
    live: LiveValues | None = None,
) -> MemoryUse | None:
    """Return the memory of a program; None if its text is truncated, not scheduled, too large, or empty.

    Args:
      arguments: paths of the flattened arguments that the program uses, in order.
      results: paths of its flattened results, in order.
      peak: the compiler's own peak in bytes, if it is known. The text does not say whether the memory of
        results holds other values before; if not holding them is nearer to this peak, they do not.
      uses: the known use of arguments by path.
      live: its values, if they are known.
    """
    use = _record(analysis, live or live_values(analysis), arguments, results, uses)
    if use is None or peak is None or abs(use.peak_bytes - peak) <= _EQUAL * peak:
        return use
    other = _record(analysis, live_values(analysis, reuse=False), arguments, results, uses)
    if other is None or abs(use.peak_bytes - peak) <= abs(other.peak_bytes - peak):
        return use
    return other


def estimated_use(
    analysis: Analysis,
    arguments: Sequence[str],
    results: Sequence[str],
    donated: Mapping[int, int],
    kernel: PlannedKernel | None = None,
    uses: Mapping[str, ArgumentUse] | None = None,
) -> MemoryUse | None:
    """Return an estimate of the memory of a partitioned program; None if its text is too large.

    Args:
      arguments, results: as for `memory_use`.
      donated, kernel: as for `fused_values`.
    """
    live = fused_values(analysis, donated, kernel)
    return _record(analysis, live, arguments, results, uses=uses)


def counted(live: LiveValues) -> list[Buffer]:
    """Return the buffers in the device's memory that no other buffer contains."""
    return [
        buffer
        for buffer in live.buffers
        if buffer.space == DEVICE and buffer.bytes and buffer.first >= 0 and not buffer.inside
    ]


def estimated_peak(live: LiveValues) -> int | None:
    """Return the peak of the memory that `estimated_use` would return for these buffers, and nothing else."""
    buffers = counted(live)
    if not live.instructions or not buffers or sum(buffer.bytes for buffer in buffers) > LARGEST:
        return None
    return _peak(buffers)


def _record(
    analysis: Analysis,
    live: LiveValues | None,
    arguments: Sequence[str],
    results: Sequence[str],
    uses: Mapping[str, ArgumentUse] | None = None,
) -> MemoryUse | None:
    if live is None or not live.instructions:
        return None
    buffers = counted(live)
    if not buffers or sum(buffer.bytes for buffer in buffers) > LARGEST:
        return None
    return _Use(analysis, live, buffers, arguments, results, uses or {}).record()


class _Use:
    """Computes the record of one program."""

    def __init__(
        self,
        analysis: Analysis,
        live: LiveValues,
        buffers: Sequence[Buffer],
        arguments: Sequence[str],
        results: Sequence[str],
        uses: Mapping[str, ArgumentUse],
    ) -> None:
        self._analysis = analysis
        self._module = analysis.module
        self._uses = uses
        self._instructions = live.instructions
        self._all = live.buffers
        self._buffers = buffers
        parameters = {buffer.parameter for buffer in live.buffers if buffer.parameter is not None}
        outputs = {buffer.result for buffer in live.buffers if buffer.result is not None}
        # Other lists do not belong to this text.
        self._arguments = arguments if max(parameters, default=-1) + 1 == len(arguments) else ()
        self._results = results if max(outputs, default=-1) + 1 == len(results) else ()
        self._phases: dict[int, Phase] = {}
        self._computations: dict[str, Phase] = {}
        largest = max((buffer.bytes for buffer in buffers), default=0)
        self._read: dict[int, list[Buffer]] = defaultdict(list)
        self._written: dict[int, list[Buffer]] = defaultdict(list)
        for buffer in live.buffers:
            if buffer.bytes >= _SMALL * largest and not buffer.whole_program:
                for position in buffer.readers:
                    self._read[position].append(buffer)
                for position in buffer.writers:
                    self._written[position].append(buffer)
        # Layers have arrays of the same dimensions.
        self._updated = {
            _sorted_sizes(buffer.shape)
            for buffer in live.buffers
            if buffer.parameter is not None and buffer.shape and self._group_of_input(buffer) in _UPDATED
        }
        self._groups = [self._group(buffer, buffer.bytes < _SMALL * largest) for buffer in buffers]

    def record(self) -> MemoryUse:
        count = len(self._instructions)
        changes: dict[int, dict[UseGroup, int]] = defaultdict(lambda: defaultdict(int))
        for buffer, group in zip(self._buffers, self._groups, strict=True):
            whole = buffer.whole_program
            changes[0 if whole else buffer.first][group] += buffer.bytes
            changes[count if whole else buffer.last + 1][group] -= buffer.bytes
        bins = min(count, MOST_POINTS)
        current: dict[UseGroup, int] = defaultdict(int)
        best: list[tuple[int, int, dict[UseGroup, int]] | None] = [None] * bins
        total = 0
        for position in range(count):
            for group, change in changes.get(position, {}).items():
                current[group] += change
                total += change
            at = position * bins // count
            known = best[at]
            if known is None or total > known[1]:
                best[at] = (position, total, dict(current))
        points = [point for point in best if point is not None]
        order = [name for name in USE_GROUPS if any(point[2].get(name) for point in points)]
        peak = max(range(len(points)), key=lambda at: points[at][1])
        return MemoryUse(
            instructions=count,
            points=tuple(position for position, _, _ in points),
            phases=self._phases_at([position for position, _, _ in points]),
            groups=tuple(GroupUse(name, tuple(point[2].get(name, 0) for point in points)) for name in order),
            peak=peak,
            values=tuple(self._values(*points[peak][:2])),
            on_chip=max(map(_peak, self._on_chip().values()), default=None),
        )

    def _on_chip(self) -> dict[int, list[Buffer]]:
        """Return the buffers inside of the chip by memory, such as VMEM, or CMEM of a TPU v4."""
        buffers: dict[int, list[Buffer]] = defaultdict(list)
        for buffer in self._all:
            if buffer.space not in (DEVICE, HOST) and buffer.first >= 0:
                buffers[buffer.space].append(buffer)
        return buffers

    def _phases_at(self, positions: Sequence[int]) -> tuple[Phase, ...]:
        """Return the phase at each position: that of most instructions with work around it."""
        count = len(self._instructions)
        every: list[Phase] = []
        for position, (_, instruction) in enumerate(self._instructions):
            phase = self._phase(position) if instruction.does in _WORK else "unknown"
            every.append("backward" if phase in BACKWARD else phase)
        ahead = {name: [0, *itertools.accumulate(phase == name for phase in every)] for name in _NAMED_PHASES}
        phases: list[Phase] = []
        for position in positions:
            low, high = max(position - count // 24, 0), min(position + count // 24 + 1, count)
            most = max(_NAMED_PHASES, key=lambda name: ahead[name][high] - ahead[name][low])
            known = ahead[most][high] > ahead[most][low]
            phases.append(most if known else phases[-1] if phases else "unknown")
        return tuple(phases)

    def _phase(self, position: int) -> Phase:
        if position not in self._phases:
            name, instruction = self._instructions[position]
            place = parse_op_name(instruction.metadata.get("op_name"))[0]
            phase = self._phase_of(name) if place.phase == "unknown" else place.phase
            # Only what follows on a backward pass can be an optimizer.
            if phase == "unknown" and place.primitive and position > self._first_backward:
                phase = "optimizer"
            self._phases[position] = phase
        return self._phases[position]

    @functools.cached_property
    def _first_backward(self) -> float:
        names = (instruction.metadata.get("op_name") for _, instruction in self._instructions)
        return next((at for at, name in enumerate(names) if phases_of(name) & BACKWARD), math.inf)

    def _phase_of(self, computation: str) -> Phase:
        """Return the phase that all operations of a loop body have, for those without a name."""
        if computation not in self._computations:
            instructions = self._module.by_name[computation].instructions
            names = (instruction.metadata.get("op_name") for instruction in instructions)
            phases = {parse_op_name(name)[0].phase for name in names} - {"unknown"}
            self._computations[computation] = phases.pop() if len(phases) == 1 else "unknown"
        return self._computations[computation]

    def _group(self, buffer: Buffer, small: bool) -> UseGroup:
        """Return the group of a buffer."""
        if buffer.parameter is not None:
            return self._group_of_input(buffer)
        if buffer.result is not None:
            return "output"
        if buffer.constant:
            return "constant"
        if small:
            return "temporary"
        if any(self._communicates(self._instructions[writer][1]) for writer in buffer.writers[:1]):
            return "collective"
        written = self._phases_of_work(buffer.writers, before=True)
        read = self._phases_of_work(buffer.readers, before=False)
        # The backward pass writes no activation: sums that it fills can begin with zeros of the forward pass.
        if "forward" in written and not written & BACKWARD and read & BACKWARD:
            return "activation"
        updates = written & BACKWARD and "optimizer" in read and self._is_like_updated(buffer.shape)
        return "gradient" if updates else "temporary"

    def _group_of_input(self, buffer: Buffer) -> UseGroup:
        """Return the group of an argument."""
        path = self._path(buffer) or ""
        program, between, own = path.partition("/input/")
        # The name of a program says nothing about its inputs.
        named = own if between and "/" not in program else path
        group = group_of_input(named, self._uses.get(path))
        return group or ("batch" if named.startswith("batch/") else "other")

    def _is_like_updated(self, shape: Shape | None) -> bool:
        """Return whether a value has the dimensions of a parameter or of its shards, as a gradient has."""
        if shape is None or shape.dtype.startswith(("s", "u", "pred")):
            return False
        own = _sorted_sizes(shape)
        return any(
            len(own) == len(shard) and all(b and a % b == 0 for a, b in zip(own, shard, strict=True))
            for shard in self._updated
        )

    def _phases_of_work(self, positions: Sequence[int], before: bool) -> set[Phase]:
        """Return the phases of instructions. A loop only passes a value on: its body reads and writes it."""
        work = (at for at in positions if self._instructions[at][1].does != "while")
        return {phase for at in work for phase in self._phases_around(at, before)}

    def _phases_around(self, position: int, before: bool) -> set[Phase]:
        """Return the phase of an instruction, or else those of its operands or of the users of its result.

        Of an operand, the writers before it count: later values can take the same memory.
        """
        own = self._phase(position)
        if own != "unknown":
            return {own}
        if before:
            every = [at for buf in self._read.get(position, ()) for at in buf.writers]
            return set(map(self._phase, [at for at in every if at < position] or every))
        return {self._phase(at) for buf in self._written.get(position, ()) for at in buf.readers}

    def _communicates(self, instruction: Instruction) -> bool:
        if instruction.does == "collective":
            return True
        called = self._module.callees(instruction) if instruction.does in ("fusion", "start") else ()
        return any(inner.does == "collective" for callee in called for inner in callee.instructions)

    def _path(self, buffer: Buffer) -> str | None:
        if buffer.parameter is not None:
            if self._arguments:
                return self._arguments[buffer.parameter]
            name = self._instructions[buffer.first][1].metadata.get("op_name", "")
            return path_of(name)
        if buffer.result is not None and self._results:
            return self._results[buffer.result]
        return None

    def _values(self, position: int, total: int) -> list[LiveValue]:
        """Return the values at a position, the largest first."""
        alive = [
            (buffer, group)
            for buffer, group in zip(self._buffers, self._groups, strict=True)
            if buffer.whole_program or buffer.first <= position <= buffer.last
        ]
        alive.sort(key=lambda pair: -pair[0].bytes)
        kept, bytes_kept = [], 0
        for buffer, group in alive[:_MOST_VALUES]:
            if bytes_kept >= _SHARE_OF_VALUES * total:
                break
            bytes_kept += buffer.bytes
            kept.append(self._value(buffer, group))
        return kept

    def _opcode(self, position: int) -> str:
        return self._instructions[position][1].opcode

    def _named(self, position: int) -> tuple[str | None, str | None]:
        """Return the `op_name` and the line of an instruction, or of what it writes into a larger array."""
        name, instruction = self._instructions[position]
        written = Value(CallFrame(self._module.by_name[name], open=False), instruction)
        updates = False
        for value in self._analysis.backward.chain(written, WRITES):
            written = value
            # The fusion that makes an operand is another operation.
            if value.instruction.does == "fusion" and value.instruction is not instruction:
                break
            if value.instruction.does == "update":
                if not _stacks(value):
                    break
                updates = True
        if updates and "/" in written.instruction.metadata.get("op_name", ""):
            if (part := collective_requests.part_of(self._analysis, written)) is not None:
                return part.op_name, part.source
            instruction = written.instruction
        return instruction.metadata.get("op_name"), self._module.source(instruction.metadata)

    def _value(self, buffer: Buffer, group: UseGroup) -> LiveValue:
        instructions = [self._instructions[writer][1] for writer in buffer.writers]
        # The first writer of an array that a loop fills only allocates it, and the loop itself says nothing.
        writers = [writer for writer in buffer.writers[1:] if self._opcode(writer) != "while"]
        named = (self._named(writer) for writer in (*writers, *buffer.writers))
        op_name, source = next((pair for pair in named if "/" in (pair[0] or "")), (None, None))
        name, first = self._instructions[buffer.first]
        own = Value(CallFrame(self._module.by_name[name], open=False), first, (buffer.part,))
        part = collective_requests.part_of(self._analysis, own) if first.name == buffer.value else None
        if part is not None:
            op_name, source = part.op_name, part.source
        argument = buffer.parameter is not None
        shape = buffer.shape
        data = shape.bytes if shape is not None else None
        return LiveValue(
            instructions[0].name,
            group,
            bytes=buffer.bytes,
            padding=max(buffer.bytes - (data or 0), 0),
            shape="" if shape is None else str(shape),
            path=self._path(buffer),
            op_name=None if argument else op_name,
            source=None if argument else source,
        )


def _sorted_sizes(shape: Shape) -> tuple[int, ...]:
    return tuple(sorted(size or 0 for size in shape.dimensions))


def _stacks(update: Value) -> bool:
    """Return whether an update writes an item of the first dimension, as a scan does with its results."""
    _, part, *_ = operand_shapes(update.frame.computation, update.instruction)
    whole = update.instruction.shape
    return part is not None and whole is not None and part.dimensions == (1, *whole.dimensions[1:])


def _peak(buffers: Sequence[Buffer]) -> int:
    """Return the most bytes of these buffers that are in use at one time."""
    always = 0
    changes: dict[int, int] = defaultdict(int)
    for buffer in buffers:
        if buffer.whole_program:
            always += buffer.bytes
        else:
            changes[buffer.first] += buffer.bytes
            changes[buffer.last + 1] -= buffer.bytes
    return always + max(itertools.accumulate(changes[position] for position in sorted(changes)), default=0)
