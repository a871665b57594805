"""The use of each argument of a compiled program, from the flow of data in its HLO text.

The names of a user's arguments say little: parameters can be in `state`, `model` or `args/0`. Their use says
more. A weight is an operand of matrix products, and a train step returns it updated. A moment of an optimizer
is updated, is in no product, and the new weight is computed from it elementwise. A cache gets other data
at an index and is an operand of a matrix product, in a program without a backward pass. Data is multiplied
with a weight, and again in the backward pass for the gradient of that weight, or has the indices of rows of
a weight. Frozen weights and running statistics are not updated by gradients and have no use.

The text is read once, forwards. Each value has the arguments that it follows from elementwise, and whether it
contains anything else. A use is recorded only if the text proves it; all others are unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from inspector.hlo import opcodes
from inspector.hlo.analysis import Analysis
from inspector.hlo.dataflow import Forward, Tree, Value, as_tuple, leaves
from inspector.hlo.module import Computation, Instruction, Module, StepLimit, TooLong
from inspector.hlo.op_name import TRANSPOSED, parse_op_name
from inspector.hlo.opcodes import ELEMENTWISE, KEEPS_DATA, MOVES, NORMALIZES, SAME_DATA, WITHOUT_DATA
from inspector.hlo.shapes import Shape
from inspector.records.collectives import BY_OPCODE
from inspector.records.snapshot import ArgumentUse

# Parts of the targets of custom calls that are matrix products: cuBLAS, oneDNN and Triton.
_PRODUCT_TARGETS = ("gemm", "matmul", "$dot", "conv")
_FLOATING = ("f", "bf")
# Limits for hostile text.
_MIN_STEPS = 20_000
_STEPS_PER_INSTRUCTION = 40


@dataclass(frozen=True, slots=True)
class _Flow:
    """The sources of an array.

    follows: the arguments that it follows from through elementwise arithmetic and moves.
    alone: whether it has no other data than those and constants.
    wrote: the arguments of `follows` into which other data was written at an index.
    backward: whether it has data that the backward pass computed.
    repeats: the argument that it repeats along new dimensions.
    """

    follows: frozenset[int] = frozenset()
    alone: bool = True
    wrote: frozenset[int] = frozenset()
    backward: bool = False
    repeats: frozenset[int] = frozenset()


_CONSTANT = _Flow()
_COMPUTED = _Flow(alone=False)


class _Product(NamedTuple):
    """The operands of a matrix product, and whether it is in the backward pass."""

    left: _Flow
    right: _Flow
    backward: bool


class ArgumentUses(NamedTuple):
    """The facts in the text of a program about its arguments.

    by_path: the use of each argument that the text proves.
    first_used: the paths of the arguments that it computes with, in the order in which it first does.
    updated: the use of the weight or moment that each result is a new value of, by the path of the result.
    """

    by_path: Mapping[str, ArgumentUse] = MappingProxyType({})
    first_used: tuple[str, ...] = ()
    updated: Mapping[str, ArgumentUse] = MappingProxyType({})


NO_USES = ArgumentUses()


def argument_uses(analysis: Analysis, arguments: Sequence[str], results: Sequence[str]) -> ArgumentUses:
    """Return the uses of a program for its arguments.

    The result is empty if the paths do not match the program, or if the program is too large.

    Args:
      arguments: paths of the flattened arguments that the program uses, in order.
      results: paths of its flattened results, in order.
    """
    entry = analysis.module.complete_entry()
    if entry is None or entry.root is None:
        return NO_USES
    parameters = [instruction for instruction in entry.instructions if instruction.opcode == "parameter"]
    if sorted(parameter.number or 0 for parameter in parameters) != list(range(len(arguments))):
        return NO_USES
    reader = _Reader(analysis.module)
    try:
        returned = reader.result_of(entry, [_Flow(frozenset({n})) for n in range(len(arguments))])
    except TooLong:
        return NO_USES
    first_used = tuple(arguments[number] for number in reader.first_used)
    # A gradient is not a new value of an array that it follows from.
    gradients = gradient_results(analysis, results)
    ends = zip(as_tuple(returned), results, strict=False)
    flows = [_COMPUTED if isinstance(flow, tuple) or path in gradients else flow for flow, path in ends]
    if len(flows) != len(results):
        return ArgumentUses(first_used=first_used)
    shape = entry.root.shape
    shapes = [shape] if shape is None or shape.parts is None else list(shape.parts)
    given = {parameter.number or 0: parameter.shape for parameter in parameters}
    returned_gradients = [shape for shape, path in zip(shapes, results, strict=False) if path in gradients]
    decided = _Uses(reader, given, flows, shapes, arguments, returned_gradients)
    uses = decided.by_number()
    return ArgumentUses(
        {arguments[number]: use for number, use in uses.items()},
        first_used,
        {results[place]: use for place, use in decided.of_results(uses).items()},
    )


class _Uses:
    """Decides the use of each argument from products and results."""

    def __init__(
        self,
        reader: _Reader,
        given: Mapping[int, Shape | None],
        returned: Sequence[_Flow],
        shapes: Sequence[Shape | None],
        paths: Sequence[str],
        gradients: Sequence[Shape | None],
    ) -> None:
        # Each operand of a product with the other one, and whether it is in the backward pass.
        self._pairs = [
            (one, other, p.backward)
            for p in reader.products
            for one, other in ((p.left, p.right), (p.right, p.left))
        ]
        self._looked_up, self._statistics = reader.looked_up, reader.statistics
        self._given = given
        self._paths = paths
        self._gradients = {None if shape is None else shape.dimensions for shape in gradients}
        # Result number → arguments of the same type that it follows from.
        self._from = {
            place: frozenset(n for n in flow.follows if _alike(given.get(n), shapes[place]))
            for place, flow in enumerate(returned)
        }
        self._wrote = frozenset(
            n for place, flow in enumerate(returned) for n in flow.wrote & self._from[place]
        )
        self._renewed = _renewed(self._from)
        self._learns = frozenset(
            n for place, flow in enumerate(returned) if flow.backward for n in self._from[place]
        )
        self._trains = any(backward for _, _, backward in self._pairs)

    def by_number(self) -> dict[int, ArgumentUse]:
        """Return the uses by the number of the argument."""
        updated = frozenset[int]().union(*self._from.values()) - self._wrote
        trains, tables = self._trains, frozenset(table for table, _ in self._looked_up)
        # Arguments that are multiplied with computed values, and updated ones with arguments that are not.
        late = [(n, backward) for one, by, backward in self._pairs if not by.alone for n in _argument(one)]
        forward, any_pass = (
            frozenset(n for n, backward in late if not backward),
            frozenset(n for n, _ in late),
        )
        inputs = frozenset(
            n
            for one, by, _ in self._pairs
            if (partner := _argument(by)) and not partner & (updated | forward)
            for n in _argument(one)
        )
        read = frozenset(n for one, _, _ in self._pairs for n in one.follows)
        caches = frozenset(n for n in self._wrote & read if not trains and self._rank(n) >= 2)
        # No step returns a batch updated, and none adds a gradient to positions that move along a force.
        learnt = (any_pass | inputs | tables) & updated & self._learns
        weights = learnt if trains else frozenset()
        if not weights:
            weights = self._in_trees((forward | tables) - caches - updated)
        weights = frozenset(n for n in weights if self._is_floating(n)) - caches
        averages = self._averages(updated, weights)
        weights -= averages
        followers = Counter(n for followed in self._from.values() for n in followed)
        # A moment is in the new moment and weight, an average of weights in the new average alone.
        moments = frozenset(
            n
            for followed in self._from.values()
            if trains and followed & weights
            for n in followed & updated
            if followers[n] > 1
        )
        uses: dict[int, ArgumentUse] = dict.fromkeys(caches, "cache")
        uses |= dict.fromkeys(moments - weights, "moment")
        uses |= dict.fromkeys(weights, "weight")
        uses = self._with_neighbors(uses, updated, averages)
        return uses | self._data(uses, updated)

    def of_results(self, uses: Mapping[int, ArgumentUse]) -> dict[int, ArgumentUse]:
        """Return the uses of results that are new weights or moments. A weight follows from both."""
        found: dict[int, ArgumentUse] = {}
        averages = self._averages(
            frozenset[int]().union(*self._from.values()),
            frozenset(number for number, use in uses.items() if use == "weight"),
        )
        for place, followed in self._from.items():
            renewed = self._renewed.get(place)
            own = {uses.get(number) for number in (followed if renewed is None else (renewed,))}
            if own & {"weight", "moment"} and not followed & averages:
                found[place] = "weight" if "weight" in own else "moment"
        return found

    def _averages(self, updated: frozenset[int], weights: frozenset[int]) -> frozenset[int]:
        """Return the updated arrays that follow from a weight that does not follow from them."""
        places: dict[int, set[int]] = defaultdict(set)
        for place, own in self._from.items():
            for n in own:
                places[n].add(place)
        followed = self._from.values()
        return frozenset(
            n for own in followed for w in own & weights for n in own & updated if places[n] < places[w]
        )

    def _data(self, uses: dict[int, ArgumentUse], updated: frozenset[int]) -> dict[int, ArgumentUse]:
        """Return arrays that are multiplied with a weight or look up its rows, next to no state.

        An array whose gradient is returned can be the result of another stage.
        """
        weights = {number for number, use in uses.items() if use == "weight"}
        of_gradients = {n for one, _, backward in self._pairs if backward for n in _argument(one)}
        given = {n for one, by, _ in self._pairs if _argument(by) & weights for n in _argument(one)}
        given = given & of_gradients | {n for table, at in self._looked_up if table in weights for n in at}
        state = {self._root(number) for number in (*uses, *updated, *self._wrote)}
        given = {n for n in given if self._root(n) not in state and self._rank(n) > 0}
        return {n: "data" for n in sorted(given) if self._dimensions(n) not in self._gradients}

    def _in_trees(self, weights: frozenset[int]) -> frozenset[int]:
        """Return those that share an argument of the function with another one.

        A single array that is multiplied with computed values can also be data, such as a graph's matrix.
        """
        roots = Counter(map(self._root, weights))
        return frozenset(number for number in weights if roots[self._root(number)] > 1)

    def _with_neighbors(
        self, uses: dict[int, ArgumentUse], updated: frozenset[int], averages: frozenset[int]
    ) -> dict[int, ArgumentUse]:
        """Add arrays, such as biases, whose neighbors in the tree all have one use.

        A train step updates them with gradients. A running mean or variance is not updated so, and is
        subtracted or under a square root where it is used. A scalar needs a moment, too.
        """
        # Below the keys of a tree: each use, and whether an array of it is updated.
        below: dict[tuple[str, ...], set[tuple[ArgumentUse | None, bool]]] = {}
        for number, use in (*uses.items(), *((number, None) for number in averages)):
            keys = self._keys(number)
            for end in range(1, len(keys)):
                below.setdefault(keys[:end], set()).add((use, number in updated))
        with_others = {n for own in self._from.values() if len(own) > 1 for n in own}
        added: dict[int, ArgumentUse] = {}
        for number in range(len(self._paths)):
            if number in uses or number in averages or not self._is_floating(number):
                continue
            if number in self._statistics if not self._trains else number in updated - self._learns:
                continue
            if self._rank(number) < 1 and number not in with_others:
                continue
            keys = self._keys(number)
            for end in range(len(keys) - 1, 0, -1):
                if known := below.get(keys[:end]):
                    (use, changes), *others = known
                    if use in ("weight", "moment") and not others and changes == (number in updated):
                        added[number] = use
                    break
        return uses | added

    def _keys(self, number: int) -> tuple[str, ...]:
        """Return the keys of an argument's path, from the function's argument on."""
        keys = tuple(self._paths[number].split("/"))
        return keys[2:] if keys[1:2] == ("input",) else keys

    def _root(self, number: int) -> str:
        return self._keys(number)[0]

    def _rank(self, number: int) -> int:
        return len(self._dimensions(number))

    def _dimensions(self, number: int) -> tuple[int | None, ...]:
        shape = self._given.get(number)
        return () if shape is None else shape.dimensions

    def _is_floating(self, number: int) -> bool:
        shape = self._given.get(number)
        return shape is not None and shape.dtype.startswith(_FLOATING)


def _renewed(followed: Mapping[int, frozenset[int]]) -> dict[int, int]:
    """Return the argument that each result is the new value of, where no other assignment is possible."""
    left, renewed = dict(followed), dict[int, int]()
    while single := {place: min(own) for place, own in left.items() if len(own) == 1}:
        renewed |= single
        taken = frozenset(single.values())
        left = {place: own - taken for place, own in left.items() if place not in single}
    return renewed


def _argument(flow: _Flow) -> frozenset[int]:
    """Return the one argument that a value consists of, or nothing."""
    return flow.follows if flow.alone and len(flow.follows) == 1 else frozenset()


def _alike(given: Shape | None, returned: Shape | None) -> bool:
    """Return whether two shards can be those of one array. Shardings may differ."""
    if given is None or returned is None or given.dtype != returned.dtype:
        return False
    sizes, others = given.dimensions, returned.dimensions
    if len(sizes) != len(others) or None in (*sizes, *others):
        return False
    pairs = [sorted((size or 0, other or 0)) for size, other in zip(sizes, others, strict=True)]
    return all(low == high or (low > 0 and high % low == 0) for low, high in pairs)


class _Reader(Forward[_Flow]):
    """Follows data through a module, callers before callees."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self._limit = StepLimit(module, _MIN_STEPS, _STEPS_PER_INSTRUCTION)
        self.products: list[_Product] = []
        self.looked_up: list[tuple[int, frozenset[int]]] = []  # a table, and the indices of its rows
        self.statistics: set[int] = set()
        self.first_used: dict[int, None] = {}  # in this order

    def unknown(self, instruction: Instruction | None) -> _Flow:
        return _COMPUTED

    def note(
        self, computation: Computation, instruction: Instruction, operands: list[Tree[_Flow]], value: object
    ) -> None:
        self._limit.count(1 + len(operands), len(instruction.operands_text))

    def element(self, instruction: Instruction, whole: Tree[_Flow]) -> Tree[_Flow]:
        if isinstance(whole, _Flow):
            # An asynchronous collective is followed as its result.
            return whole if instruction.tuple_index in (0, 1) else _COMPUTED
        return super().element(instruction, whole)

    def transfer(
        self, computation: Computation, instruction: Instruction, operands: list[Tree[_Flow]]
    ) -> Tree[_Flow]:
        value, shape = self._computed(instruction, operands), instruction.shape
        if isinstance(value, tuple):
            return value
        # A comparison, such as whether gradients are finite, is no gradient.
        backward = any(flow.backward for flow in leaves(*operands)) or _is_backward(instruction)
        backward = backward and not (shape is not None and shape.dtype == "pred")
        return value if value.backward == backward else replace(value, backward=backward)

    def _computed(self, instruction: Instruction, operands: list[Tree[_Flow]]) -> Tree[_Flow]:
        row = opcodes.TABLE[instruction.opcode]
        does = row.does
        if does in WITHOUT_DATA:
            return _CONSTANT
        arrays = [operand if isinstance(operand, _Flow) else _COMPUTED for operand in operands]
        if does in ("update", "scatter") and arrays:
            return self._written(instruction, arrays)
        if does == "select":
            return _either(arrays[row.data])
        if does in MOVES or does in ELEMENTWISE:
            if does in ELEMENTWISE and not all(array.alone for array in arrays):
                self._use(arrays)
            if instruction.opcode in NORMALIZES:
                self.statistics.update(_argument(arrays[-1]) | arrays[-1].repeats)
            return _together(arrays[row.data])
        if does == "collective":
            return self._collective(instruction, operands)
        if does == "done" or (does == "custom" and instruction.target in KEEPS_DATA):
            return operands[0] if operands else _COMPUTED
        if does == "product" or (does == "custom" and _is_product(instruction.target)):
            self._use(arrays)
            if len(arrays) >= 2:
                self.products.append(_Product(arrays[0], arrays[1], _is_backward(instruction)))
        elif does == "gather" and not _are_constant(arrays[1:2]):
            self._use(arrays[:1])
            self.looked_up += [(table, arrays[1].follows) for table in _argument(arrays[0])]
        elif does == "broadcast":
            if not _adds_a_dimension(instruction):
                return arrays[0]
            self._use(arrays)
            return _CONSTANT if _are_constant(arrays) else replace(_COMPUTED, repeats=_argument(arrays[0]))
        return _CONSTANT if _are_constant(arrays) else _COMPUTED

    def _use(self, operands: Sequence[_Flow]) -> None:
        """Note that the program computes with these operands, if they are arguments."""
        for operand in operands:
            for number in _argument(operand):
                self.first_used.setdefault(number)

    def _written(self, instruction: Instruction, operands: list[_Flow]) -> _Flow:
        """Return the flow of an array into which other data is written at an index."""
        array, rest = operands[0], operands[1:]
        if instruction.does == "scatter" and not self._overwrites(instruction):
            return _together([array, _COMPUTED])
        if _are_constant([array]) and rest and rest[0].wrote:
            return rest[0]  # a stack of the parts of a cache, as a loop over layers returns it
        follows = array.follows
        new, index = (rest[-1:], rest[:1]) if instruction.does == "scatter" else (rest[:1], rest[1:])
        # A cache gets no part that is made from itself, such as a sum, and none at a fixed place, such as a
        # block of a matrix.
        same = _are_constant(index) or any(part.follows & follows for part in new)
        wrote = array.wrote if same else array.wrote | follows
        return _Flow(follows, not follows and _are_constant(rest[:1]), wrote)

    def _overwrites(self, instruction: Instruction) -> bool:
        """Return whether a scatter replaces elements, instead of adding to them, for example."""
        computation = self._module.callee(instruction)
        root = None if computation is None else computation.root
        return root is not None and root.does == "parameter"

    def _collective(self, instruction: Instruction, operands: list[Tree[_Flow]]) -> Tree[_Flow]:
        if len(operands) == 1:
            return operands[0]
        if BY_OPCODE[instruction.opcode].name == "all-to-all":
            operands = [_together(leaves(*operands))] * len(operands)
        return tuple(operands)

    def join(self, value: Tree[_Flow], other: Tree[_Flow]) -> Tree[_Flow]:
        if value == other:
            return value
        if isinstance(value, _Flow) and isinstance(other, _Flow):
            return _together((value, other))
        if isinstance(value, tuple) and isinstance(other, tuple) and len(value) == len(other):
            return tuple(map(self.join, value, other))
        return _COMPUTED


def _is_backward(instruction: Instruction) -> bool:
    return TRANSPOSED.search(instruction.metadata.get("op_name", "")) is not None


def _adds_a_dimension(broadcast: Instruction) -> bool:
    shape = broadcast.shape
    kept = broadcast.attributes.get("dimensions", "{}").strip("{}").split(",")
    return shape is None or len(shape.dimensions) != sum(bool(dimension.strip()) for dimension in kept)


def _is_product(target: str) -> bool:
    return any(part in target.lower() for part in _PRODUCT_TARGETS)


def _are_constant(flows: Sequence[_Flow]) -> bool:
    return all(flow.alone and not flow.follows for flow in flows)


def _together(flows: Sequence[_Flow]) -> _Flow:
    """Return the flow of a value that is computed from several elementwise."""
    if len(flows) == 1:
        return flows[0]
    follows = frozenset[int]().union(*(flow.follows for flow in flows))
    alone = all(flow.alone for flow in flows) and len(follows) <= 1
    wrote = frozenset[int]().union(*(flow.wrote for flow in flows))
    return _Flow(follows, alone, wrote, any(flow.backward for flow in flows))


def _either(flows: Sequence[_Flow]) -> _Flow:
    """Return the flow of a value that is one of several in each element: what all follow from."""
    variable = [flow for flow in flows if not _are_constant([flow])]
    if len(variable) < 2:
        return _together(variable)
    common = frozenset.intersection(*(flow.follows for flow in variable))
    return replace(_together(flows), follows=common, alone=False)


# They hold the data of an operand, another shard of it, or the sum of all shards.
_SAME_VALUE = SAME_DATA | {"collective", "slice", "fusion"}
_MOST_STEPS = 32


def gradient_results(analysis: Analysis, results: Sequence[str]) -> frozenset[str]:
    """Return the paths of the results that an operation of the backward pass computes.

    An optimizer computes its results from gradients outside of the backward pass, so they are not gradients.

    Args:
      results: paths of the flattened results of the program, in order.
    """
    values = analysis.backward.results(len(results)) or ()
    return frozenset(
        path for path, value in zip(results, values, strict=False) if _of_backward(analysis, value)
    )


def _of_backward(analysis: Analysis, value: Value) -> bool:
    """Return whether the operation that computes a value is one of the backward pass."""
    *_, computed = analysis.backward.chain(value, _SAME_VALUE, _MOST_STEPS)
    names = parse_op_name(computed.instruction.metadata.get("op_name"))
    return all(name.phase == "backward" for name in names)
