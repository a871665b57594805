"""Pipelines: loops in which each device computes one stage, and hands its result to the next device.

GPipe (Huang et al. 2019, arXiv:1811.06965): s stages run m microbatches in m + s − 1 iterations. Each device
computes in every iteration, but s − 1 results of it are not used: the bubble. In a circular pipeline each
device has r stages, and the loop r·m + s − 1 iterations. If a result waits for one iteration before it is
sent, the bubble is twice as long.

A loop is a pipeline if the data that it carries from one iteration to the next goes this way:

1. A matrix product reads it, and all that comes from it crosses to the next device. Rings send operands
   (attention, all-gather and product) or sums (product and reduce-scatter), which no product reads. An
   exchange with neighbors, or attention inside of a layer, also keeps data on the device.
2. The loop reads microbatches of the same shape from a stack, or writes them into one, by its counter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from inspector.hlo.analysis import Analysis
from inspector.hlo.asynchronous import begun
from inspector.hlo.dataflow import Forward, Tree, leaves, tree_of
from inspector.hlo.flops import product
from inspector.hlo.module import Computation, Instruction, Module, StepLimit, TooLong
from inspector.hlo.op_name import phases_of
from inspector.hlo.opcodes import RUNS, WITHOUT_DATA
from inspector.hlo.shapes import Shape
from inspector.hlo.work import WorkCount
from inspector.records.snapshot import Collective, Pipeline

_Key = tuple[str, str]  # names of a computation and of an instruction
_Pairs = frozenset[tuple[int, int]]
_Sizes = tuple[int, ...]

# Of each array that a loop carries, the facts about a value have a bit for each number of sends and for
# "a product has read it": 2·sends + read. Two more bits are for values that no product has read, also slices
# of a stack: the value is of this array, and it was sent.
_MOST_SENDS = 8  # in one iteration, as those of an unrolled loop
_WAYS = 2 * (_MOST_SENDS + 1)
_OF_IT, _SENT, _BITS = _WAYS, _WAYS + 1, _WAYS + 2
_COUNTER = 1  # the value depends on the counter of the loop
_LEAST_STEPS, _STEPS_PER_INSTRUCTION = 10_000, 50
_MOVES_ROWS = frozenset({"slice", "pad", "concatenate", "dynamic-slice", "dynamic-update-slice"})


def pipelines(analysis: Analysis, collectives: Iterable[Collective]) -> tuple[Pipeline, ...] | None:
    """Return the loops that are pipelines, in the order of the text; None if it is too long to analyze.

    The number of microbatches is None if no array of the program shows it. Loops are left out if it is 1, or
    if they have a trip count and the program has no stack of microbatches.
    """
    sends = {(c.computation, c.name): c for c in collectives if c.op == "collective-permute"}
    chains = {key: size for key, send in sends.items() if (size := _chain(send, analysis.module))}
    if not chains:
        return ()
    limit = StepLimit(analysis.module, _LEAST_STEPS, _STEPS_PER_INSTRUCTION)
    found: list[tuple[Pipeline, _Pairs]] = []
    for computation, loop in analysis.module.instructions:
        body = analysis.module.callee(loop, "body") if loop.opcode == "while" else None
        if body is None:
            continue
        # What one iteration runs, without inner loops.
        once = {computation.name for computation in analysis.module.executed(body, RUNS - {"while"})}
        inside = {key for key in chains if key[0] in once}
        for pairs in dict.fromkeys(_pairs(sends[key]) for key in sorted(inside)):
            own = {key for key in inside if _pairs(sends[key]) == pairs}
            # The last device can send to the first one in another collective.
            crosses = own | {key for key in sends if key not in chains}
            try:
                pipeline = _pipeline(
                    analysis,
                    computation,
                    loop=loop,
                    body=body,
                    own=own,
                    crosses=crosses,
                    sends=sends,
                    chains=chains,
                    limit=limit,
                )
            except TooLong:
                return None
            if pipeline is not None:
                # Its operations can lack the name of the function that JAX transposed.
                against = {(target, source) for source, target in pairs}
                backward = pipeline.backward or any(against & others for _, others in found)
                found.append((replace(pipeline, backward=backward), pairs))
                break
    return tuple(pipeline for pipeline, _ in found)


def _pipeline(
    analysis: Analysis,
    computation: Computation,
    loop: Instruction,
    body: Computation,
    own: set[_Key],
    crosses: set[_Key],
    sends: dict[_Key, Collective],
    chains: dict[_Key, int],
    limit: StepLimit,
) -> Pipeline | None:
    flow = _Flow(analysis.module, body, crosses, limit)
    edges = flow.edges()
    for key, (sent, facts) in flow.sent.items():
        if key not in own or not sent:
            continue
        for part, sizes in enumerate(flow.sizes):
            if sizes != sent or not facts:
                continue
            cycle = _cycle(edges, part)
            if cycle is None:
                continue
            hops, sent_times = cycle
            send, stages = sends[key], chains[key]
            trips = analysis.loops.trip_count(computation, loop)
            delay = max(hops // sent_times, 1)
            unrolled = max(sent_times // hops, 1)
            iterations = None if trips is None else trips * unrolled
            stacks = set(_stacks(flow, sent, flow.rotated - {part}, stages))
            bare = Pipeline(
                stages,
                None,
                send.name,
                send.mesh_axes,
                send.source,
                loop=loop.name,
                delay=delay,
                backward="backward" in phases_of(send.op_name),
            )
            if iterations is None:
                return replace(bare, stack=min(stacks)) if stacks else None
            useful = iterations - delay * (stages - 1)
            if useful < 2:
                continue
            if _cut(analysis.module, sent, iterations, useful):
                stacks.add(useful)
            microbatches = _microbatches(stacks, useful, unrolled)
            others = stacks - {iterations}
            if microbatches is None and (not others or max(others) > useful):
                continue
            return replace(
                bare,
                microbatches=microbatches,
                repeats=1 if microbatches is None else max(useful // microbatches, 1),
                trips=iterations if microbatches is None else None,
                flops=WorkCount(analysis).of(body).flops,
            )
    return None


def _microbatches(stacks: Collection[int], useful: int, unrolled: int) -> int | None:
    """Return the number of microbatches: without repeats if the text shows that, else with the fewest.

    Args:
      stacks: sizes of dimensions that can be those of the microbatches.
      useful: iterations in which a stage computes something.
      unrolled: iterations of the program in one of the loop.
    """
    microbatches = max((size for size in stacks if size > 1 and useful % size == 0), default=None)
    if microbatches is not None:
        return microbatches
    # An unrolled loop can leave iterations outside of it, and code can begin before it.
    left = range(useful + 1, useful + max(unrolled, 2))
    return next((size for size in left if size in stacks), None)


def _chain(send: Collective, module: Module) -> int | None:
    """Return the length of the chains or rings in which all devices send; None if there are none.

    The devices of each chain are along one mesh axis, if the axes are known.
    """
    pairs = _pairs(send)
    devices = (module.partitions or 1) * (module.replicas or 1)
    after, before = dict(pairs), {target: source for source, target in pairs}
    if not pairs or len(after) < len(pairs) or len(before) < len(pairs) or (send.mesh_axes or ("",))[1:]:
        return None
    left, lengths = set(after) | set(before), set()
    if len(left) != devices:
        return None
    while left:
        start = min(left - set(before), default=None)
        device = start = min(left) if start is None else start
        length = 0
        while device in left:
            left.remove(device)
            length += 1
            device = after.get(device, -1)
        lengths.add(length)
    length = lengths.pop()
    return length if not lengths and length > 1 else None


def _pairs(send: Collective) -> _Pairs:
    return frozenset(send.source_target_pairs or ())


def _cycle(edges: list[tuple[int, int, int, bool]], part: int) -> tuple[int, int] | None:
    """Return the iterations and sends after which a part of the state comes back, read by a product.

    None if it does not, or if some of it comes back without being sent.
    """
    onward: dict[int, list[tuple[int, int, bool]]] = {}
    for at, to, sent, read in edges:
        onward.setdefault(at, []).append((to, sent, read))
    kept, waiting = {part}, [part]
    while waiting:
        for to, sent, _ in onward.get(waiting.pop(), ()):
            if not sent and to == part:
                return None
            if not sent and to not in kept:
                kept.add(to)
                waiting.append(to)
    states, hops = {(part, 0, False)}, 0
    seen = set(states)
    while states:
        hops += 1
        states = {
            (to, min(sends + sent, _MOST_SENDS), was or read)
            for at, sends, was in states
            for to, sent, read in onward.get(at, ())
        } - seen
        back = [sends for at, sends, was in states if at == part and was and sends]
        if back:
            return hops, min(back)
        seen |= states
    return None


def _stacks(flow: _Flow, sent: _Sizes, rotated: set[int], stages: int) -> Iterator[int]:
    """Yield the microbatches in each stack of the loop; a rotated one has only its share on each device."""
    for whole, part, facts in flow.sliced:
        if part == sent and (size := _rows(whole, sent)):
            yield size * (stages if any(_bit(facts, at, _OF_IT) for at in rotated) else 1)
    for at in rotated:
        if size := _rows(flow.sizes[at], sent):
            yield size * stages


def _rows(stack: _Sizes, sent: _Sizes) -> int | None:
    """Return the number of values in a stack; None if it has values of another shape."""
    count = len(stack) - len(sent)
    if count < 0 or stack[count:] != sent:
        return None
    return math.prod(stack[:count])


def _cut(module: Module, sent: _Sizes, iterations: int, useful: int) -> bool:
    """Return whether a stack of all iterations is filled from the microbatches, or cut to them."""
    for computation, instruction in module.instructions:
        if instruction.opcode in _MOVES_ROWS:
            after, operand = _sizes(instruction.shape), computation.operand(instruction)
            before = _sizes(operand.shape) if operand is not None else ()
            if {after, before} == {(iterations, *sent), (useful, *sent)}:
                return True
    return False


def _sizes(shape: Shape | None) -> _Sizes:
    """Return the sizes of the dimensions of an array, without those of 1."""
    return () if shape is None else tuple(size or 0 for size in shape.dimensions if size != 1)


class _Flow(Forward[int]):
    """Follows the state of a loop through one iteration. A fact has a bit for each way to a value.

    sizes: those of each part of the state.
    sent: what each collective that crosses sends: its sizes, and the facts about it.
    rotated: the parts of the state that are sent on as they are, whole or slice by slice.
    sliced: the sizes of each array that is read or written by the counter of the loop, those of the slice,
      and the facts about the array.
    """

    def __init__(self, module: Module, body: Computation, crosses: set[_Key], limit: StepLimit) -> None:
        super().__init__(module)
        self._body, self._crosses, self._limit = body, crosses, limit
        parameter = body.parameters.get(0)
        shape = None if parameter is None else parameter.shape
        self._state: Tree[Shape | None] = tree_of(shape, lambda part: part)
        shapes = leaves(self._state)
        self.sizes = [_sizes(part) for part in shapes]
        self._counters = [
            part is not None and not part.dimensions and part.dtype[:1] in "su" for part in shapes
        ]
        self.sent: dict[_Key, tuple[_Sizes, int]] = {}
        self.sliced: list[tuple[_Sizes, _Sizes, int]] = []
        self.rotated: set[int] = set()
        everywhere: int = sum(1 << _BITS * at for at in range(len(shapes))) << 1
        self._unread = everywhere * sum(1 << 2 * sends for sends in range(_MOST_SENDS + 1))
        self._last = everywhere * (3 << _WAYS - 2)
        self._ways: int = everywhere * (2**_WAYS - 1)
        self._of_it: int = everywhere << _OF_IT
        self._marks: int = self._of_it | everywhere << _SENT

    def edges(self) -> list[tuple[int, int, int, bool]]:
        """Return which parts of the state depend on which: from, to, sends, and if a product read it."""
        given: list[int] = []
        for at, counts in enumerate(self._counters):
            is_counter = counts and at not in self._body.unchanged
            given.append((1 | 1 << _OF_IT) << 1 + _BITS * at | (_COUNTER if is_counter else 0))
        state = _filled(self._state, iter(given))
        after = leaves(self.result_of(self._body, [state]))
        if len(after) != len(given):
            return []
        self.rotated = {at for at, facts in enumerate(after) if _bit(facts, at, _SENT)}
        return [
            (at, to, bit // 2, bool(bit % 2))
            for to, facts in enumerate(after)
            for at, bit in _bits(facts & self._ways)
        ]

    def unknown(self, instruction: Instruction | None) -> int:
        return 0

    def join(self, value: Tree[int], other: Tree[int]) -> Tree[int]:
        if isinstance(value, tuple) and isinstance(other, tuple) and len(value) == len(other):
            return tuple(map(self.join, value, other))
        return _any(value, other)

    def element(self, instruction: Instruction, whole: Tree[int]) -> Tree[int]:
        return super().element(instruction, whole) if isinstance(whole, tuple) else whole

    def call(self, callee: Computation, instruction: Instruction, operands: list[Tree[int]]) -> Tree[int]:
        self._limit.count(len(callee.instructions))
        return super().call(callee, instruction, operands)

    def transfer(
        self, computation: Computation, written: Instruction, operands: list[Tree[int]]
    ) -> Tree[int]:
        instruction = begun(written) if written.opcode.endswith("-start") else written
        does = instruction.does
        if does in WITHOUT_DATA or not operands:
            return 0
        facts: int = _any(*operands)
        if does in ("slice", "gather") and (index := _any(*operands[1:])) & _COUNTER:
            self._slice(computation, instruction, instruction, _any(operands[0]))
            return index & _COUNTER | facts & self._marks
        if instruction.opcode == "dynamic-update-slice":
            if _any(*operands[2:]) & _COUNTER:
                self._slice(computation, instruction, computation.operand(instruction, 1), _any(operands[0]))
            return _any(*operands[:2])
        if does == "product" or (does == "custom" and product(computation, instruction)):
            facts &= ~self._marks
            return (facts & self._unread) << 1 | facts & ~self._unread
        if instruction.opcode == "select" and _any(operands[0]) & _COUNTER:
            # XLA for GPUs sends at the beginning of the next iteration, in all but the first one.
            one, other = (_any(operand) & self._ways for operand in operands[1:3])
            first = one if self._crossed(one) == other else other if self._crossed(other) == one else 0
            return facts & ~first if first else facts
        if not instruction.opcode.startswith("collective-permute"):
            return facts
        key = computation.name, written.name
        marked = facts & ~self._ways | (facts & self._of_it) << 1
        if key not in self._crosses:
            return marked | facts
        source = computation.operand(written)
        self.sent[key] = _sizes(None if source is None else source.shape), facts & self._ways
        return marked | self._crossed(facts & self._ways)

    def _crossed(self, facts: int) -> int:
        """Return the facts about the ways to a value after one more send."""
        return (facts & ~self._last) << 2 | facts & self._last

    def _slice(
        self, computation: Computation, instruction: Instruction, part: Instruction | None, facts: int
    ) -> None:
        whole = computation.operand(instruction)
        if whole is not None and part is not None:
            self.sliced.append((_sizes(whole.shape), _sizes(part.shape), facts))


def _bit(facts: int, part: int, number: int) -> int:
    return facts >> 1 + _BITS * part + number & 1


def _bits(facts: int) -> Iterator[tuple[int, int]]:
    """Yield the part and the number of each bit that is set, without trying all of them."""
    digits = bin(facts >> 1)[:1:-1]
    place = digits.find("1")
    while place >= 0:
        yield divmod(place, _BITS)
        place = digits.find("1", place + 1)


def _any(*values: Tree[int]) -> int:
    facts = 0
    for value in leaves(*values):
        facts |= value
    return facts


def _filled(tree: Tree[Shape | None], values: Iterator[int]) -> Tree[int]:
    return tuple(_filled(part, values) for part in tree) if isinstance(tree, tuple) else next(values)
