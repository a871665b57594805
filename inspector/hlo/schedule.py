"""The compiler's schedule: which instructions run in which order, how long each takes, and which ones wait.

XLA prints the instructions of a scheduled module in the order of their execution. The compiler for TPUs
adds its own estimate in clock cycles to most of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from inspector.hlo.accesses import moves_nothing
from inspector.hlo.analysis import Analysis
from inspector.hlo.asynchronous import DONE, Key, waits_at_once
from inspector.hlo.attention_kernels import head_width
from inspector.hlo.dataflow import CallFrame, Forward, Tree, Value, leaves, tree_of
from inspector.hlo.module import Computation, Instruction, operand_names, operand_shapes, result_sizes
from inspector.hlo.opcodes import ANNOTATIONS
from inspector.hlo.shapes import elements_of
from inspector.hlo.slice_transfers import rendezvous
from inspector.hlo.work import WorkCount
from inspector.records.collectives import BY_OPCODE
from inspector.records.snapshot import Collective, Schedule, ScheduledComputation, ScheduledOperation
from inspector.records.typed_json import LARGEST

# The operations that a value is made from: their positions, and the elements of the state of a loop as
# negative numbers.
Sources = frozenset[int]
Reads = tuple[tuple[int, ...], tuple[int, ...]]

_NOTHING: Sources = frozenset()


class ScheduledReads(Forward[Sources]):
    """Finds the operations whose results each operation of a computation reads.

    Instructions that take no time pass on their operands. So does a loop with the elements of its
    state that it does not change.
    """

    enters = frozenset()

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis.module)
        self._sites = analysis.call_sites
        self._places: Mapping[str, int] = {}
        self._reads: dict[str, Sources] = {}

    def of(self, computation: Computation, places: Mapping[str, int]) -> dict[str, Reads]:
        """Return by name the positions that an operation reads, in this and in the previous iteration.

        Args:
          places: the position of each operation of the computation by its name.
        """
        self._places, self._reads = places, {}
        state = computation.parameters.get(0)
        given: list[Tree[Sources]] = []
        if state is not None and any(site.role == "body" for site in self._sites.get(computation.name, ())):
            numbers = itertools.count(1)
            given = [tree_of(state.shape, lambda shape: frozenset({-next(numbers)}))]
        before = _carried(given, self.result_of(computation, given))
        reads = {}
        for name, sources in self._reads.items():
            carried = frozenset[int]().union(*(before.get(source, _NOTHING) for source in sources))
            reads[name] = _positions(sources), _positions(carried)
        return reads

    def unknown(self, instruction: Instruction | None) -> Tree[Sources]:
        return _NOTHING

    def join(self, value: Tree[Sources], other: Tree[Sources]) -> Tree[Sources]:
        return _NOTHING.union(*leaves(value, other))

    def transfer(
        self, computation: Computation, instruction: Instruction, operands: list[Tree[Sources]]
    ) -> Tree[Sources]:
        place = self._places.get(instruction.name)
        return _NOTHING.union(*leaves(*operands)) if place is None else frozenset({place})

    def element(self, instruction: Instruction, whole: Tree[Sources]) -> Tree[Sources]:
        return super().element(instruction, whole) if isinstance(whole, tuple) else whole

    def loop(self, computation: Computation, instruction: Instruction, state: Tree[Sources]) -> Tree[Sources]:
        own = self.transfer(computation, instruction, [state])
        body = self._module.callee(instruction, "body")
        if not isinstance(state, tuple):
            return own
        kept = () if body is None else body.unchanged
        return tuple(part if number in kept else own for number, part in enumerate(state))

    def branches(self, instruction: Instruction, operands: list[Tree[Sources]]) -> Tree[Sources]:
        place = self._places.get(instruction.name)
        return _NOTHING if place is None else frozenset({place})

    def note(
        self,
        computation: Computation,
        instruction: Instruction,
        operands: list[Tree[Sources]],
        value: Tree[Sources],
    ) -> None:
        if instruction.name in self._places:
            self._reads[instruction.name] = _NOTHING.union(*leaves(*operands))


def _carried(given: Sequence[Tree[Sources]], result: Tree[Sources]) -> dict[int, Sources]:
    """Return of each element of a loop's state the operations that made it in the previous iteration."""
    waiting = [(state, result) for state in given]
    carried: dict[int, Sources] = {}
    while waiting:
        state, after = waiting.pop()
        if isinstance(state, tuple):
            parts = after if isinstance(after, tuple) else (after,) * len(state)
            waiting += zip(state, parts, strict=False)
            continue
        for element in state:
            carried[element] = _NOTHING.union(*leaves(after))
    return carried


def _positions(sources: Sources) -> tuple[int, ...]:
    return tuple(sorted(source for source in sources if source >= 0))


# The largest schedule that is kept. A transformer with 32 unrolled layers has about 20,000 operations.
MOST_OPERATIONS = 60_000

_CYCLES = re.compile(r'"estimated_cycles":"(\d{1,18})"')
# The memory space of the host in the layout of an array. Source: texts for TPUs.
_HOST = "S(5)"
_RUNS = {"while": ("body",), "conditional": ("branch",), "call": ("call",)}
_PASS_ON = frozenset({"bitcast", "copy"})
# Operations that copy data when they are asynchronous.
_COPIES = frozenset({"copy", "slice", "dynamic-slice", "dynamic-update-slice"})


def schedule(analysis: Analysis, collectives: Iterable[Collective]) -> Schedule | None:
    """Return the schedule of a module; None if its text is truncated, not scheduled or too large.

    collectives: those of the module, to which the operations refer by position.
    """
    entry = analysis.module.complete_entry(scheduled=True)
    if entry is None:
        return None
    positions = {
        (collective.computation, collective.name): number for number, collective in enumerate(collectives)
    }
    reader = _Reader(analysis, positions)
    computations: dict[str, ScheduledComputation] = {}
    waiting, total = [entry.name], 0
    while waiting:
        name = waiting.pop()
        computation = analysis.module.by_name.get(name)
        if name in computations or computation is None:
            continue
        operations = tuple(reader.operations(computation))
        computations[name] = ScheduledComputation(name, operations)
        total += len(operations)
        if total > MOST_OPERATIONS:
            return None
        waiting += [called for operation in operations for called in operation.runs or ()]
    return Schedule(entry.name, tuple(computations.values()))


class _Reader:
    """Makes the operations of each computation of a module."""

    def __init__(self, analysis: Analysis, collectives: Mapping[Key, int]) -> None:
        self._analysis = analysis
        self._module = analysis.module
        self._count = WorkCount(analysis)
        self._reads = ScheduledReads(analysis)
        self._collectives = collectives
        self._by_computation: dict[str, list[Key]] = {}
        for key in (*collectives, *analysis.chains.carried_on):
            self._by_computation.setdefault(key[0], []).append(key)

    def operations(self, computation: Computation) -> Iterator[ScheduledOperation]:
        """Yield the operations of a computation that take time or wait, in order."""
        results = result_sizes(computation)
        kept = [op for op in computation.instructions if not self._takes_no_time(op)]
        places = {op.name: number for number, op in enumerate(kept)}
        # A transfer between slices is begun by its send, and both its ends wait for it.
        sends = {rendezvous(op): places[op.name] for op in kept if op.opcode == "send"}
        for end in computation.instructions:
            if end.opcode in ("send", "recv") and (name := rendezvous(end)) in sends:
                places[end.name] = sends[name]
        # The computations that contain the first piece of a collective, by the collective.
        begun = {
            key: places[op.name]
            for op in kept
            for key in self._inside(op)
            if key in self._analysis.chains.started
        }
        reads = self._reads.of(computation, places)
        for instruction in kept:
            yield self._operation(computation, instruction, results, places, begun, reads)

    def _operation(
        self,
        computation: Computation,
        instruction: Instruction,
        results: Mapping[str, int | None],
        places: Mapping[str, int],
        begun: Mapping[Key, int],
        reads: Mapping[str, Reads],
    ) -> ScheduledOperation:
        opcode = instruction.opcode
        metadata = instruction.metadata
        cycles = _CYCLES.search(instruction.attributes_text)
        inside = self._inside(instruction)
        own = (computation.name, instruction.name)
        collective = next(
            (self._collectives[key] for key in (own, *inside) if key in self._collectives), None
        )
        starts = opcode.endswith(("-start", "send")) and not waits_at_once(instruction)
        starts |= any(key in self._analysis.chains.started for key in inside)
        awaits = None
        if opcode.endswith("-done"):
            awaits = _beginning(self._analysis, computation, instruction, places)
        elif ends := self._ended(instruction, inside):
            awaits = next((begun[key] for key in ends if key in begun), None)
        roles = _RUNS.get(opcode, ())
        runs = tuple(call.computation for call in instruction.called if call.role in roles)
        times: int | None = None
        if opcode == "while":
            times = self._analysis.loops.trip_count(computation, instruction)
        elif runs:
            times = 1
        products, touched, kernel = None, None, None
        if not runs and not opcode.endswith("-done"):
            products, touched, kernel = self._count.amounts(computation, instruction, results)
        operands, carried = reads[instruction.name]
        return ScheduledOperation(
            instruction.name,
            opcode,
            cycles=int(cycles[1]) if cycles else None,
            flops=None if products is None else products.flops,
            dtype=(products.dtype or None) if products is not None else None,
            bytes=touched,
            kernel=kernel,
            head=head_width(instruction, operand_shapes(computation, instruction)),
            collective=collective,
            host=True if self._crosses_to_host(computation, instruction) else None,
            begins=True if starts else None,
            awaits=awaits,
            operands=operands,
            carried=carried or None,
            runs=runs or None,
            times=times if times is None or times <= LARGEST else None,
            op_name=metadata.get("op_name") or None,
            source=self._module.source(metadata),
        )

    def _crosses_to_host(self, computation: Computation, instruction: Instruction) -> bool:
        """Return whether an asynchronous copy is between HBM and the memory of the host."""
        if instruction.opcode.removesuffix("-start") not in _COPIES:
            return False
        shapes = [instruction.shape_text or ""]
        sources = [computation.by_name.get(name or "") for name in operand_names(instruction)]
        shapes += [source.shape_text or "" for source in sources if source is not None]
        return any(_HOST in shape for shape in shapes)

    def _takes_no_time(self, instruction: Instruction) -> bool:
        opcode = instruction.opcode
        if opcode in _RUNS or opcode == "async-start" or opcode.endswith("-done"):
            return False
        if moves_nothing(opcode) or instruction.does == "device":
            return True
        if opcode == "recv" and rendezvous(instruction):
            return True  # its send is kept
        if opcode == "custom-call" and instruction.target in ANNOTATIONS:
            return True
        # Counters and indices.
        plain = opcode not in BY_OPCODE and opcode != "fusion" and not opcode.endswith("-start")
        scalar = elements_of(instruction.shape_text) == 1 if instruction.shape_text else False
        return plain and scalar and "estimated_cycles" not in instruction.attributes_text

    def _inside(self, instruction: Instruction) -> list[Key]:
        """Return the pieces of collectives in the computation that a fusion or `async-start` runs."""
        if instruction.opcode not in ("fusion", "async-start"):
            return []
        return [
            key for called in instruction.called for key in self._by_computation.get(called.computation, ())
        ]

    def _ended(self, instruction: Instruction, inside: list[Key]) -> list[Key]:
        """Return the first pieces of the collective that a fusion with AsyncCollectiveDone awaits."""
        for computation in self._module.callees(instruction) if inside else ():
            for inner in computation.instructions:
                if inner.opcode == "custom-call" and inner.target == DONE:
                    carried_on = self._analysis.chains.carried_on
                    return [start for key in inside for start in carried_on.get(key, ())]
        return []


def _beginning(
    analysis: Analysis, computation: Computation, instruction: Instruction, places: Mapping[str, int]
) -> int | None:
    """Return the place of the `-start` of a `-done`; None if it is in another computation."""
    end = Value(CallFrame(computation, open=False), instruction)
    for value in analysis.backward.chain(end, _PASS_ON):
        opcode = value.instruction.opcode
        if opcode.endswith("-start") or opcode in ("send", "recv"):
            return places.get(value.instruction.name)
    return None
