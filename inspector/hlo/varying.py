"""Along which parts of the mesh the values of a program differ between devices, in each run of a computation.

A value that is the same on all devices along a mesh axis is computed once by each of them. `shard_map`,
`pmap` and a compiled program have the shapes of one device, so their work is that of all devices only where
values differ.

The answer is an upper bound: a value never differs along more parts than this says. An unknown value differs
along all parts: an argument without a sharding, a random number of the device, or the result of a callback.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from inspector.hlo import dataflow, entry, shardings, text
from inspector.hlo.analysis import Analysis
from inspector.hlo.asynchronous import begun
from inspector.hlo.collectives import positions_of
from inspector.hlo.dataflow import Forward, Tree, leaves
from inspector.hlo.module import Computation, Instruction, Module, StepLimit, TooLong
from inspector.hlo.opcodes import ANNOTATIONS, CALLS
from inspector.hlo.replica_groups import numbers_of_groups
from inspector.hlo.shardings import HloSharding, NamedMesh, PlaceDigit
from inspector.records.collectives import BY_OPCODE
from inspector.records.snapshot import Mesh, Spec
from inspector.sharding.meshes import primes_of
from inspector.text.errors import InvalidInput
from inspector.text.formatting import part_of

# The digits of a device's place along which a value differs. Each has a prime size.
Digits = frozenset[PlaceDigit]
Value: TypeAlias = "Tree[Digits]"

NOWHERE: Digits = frozenset()
TO_LOCAL, TO_GLOBAL = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"
_TO_LOCAL_GSPMD, _TO_GLOBAL_GSPMD = "SPMDFullToShardShape", "SPMDShardToFullShape"
_ENTERS = frozenset({TO_LOCAL, _TO_LOCAL_GSPMD})
_SDY_FIELD = r"xla\.sdy\.{}\s*+=\s*+(\"(?:[^\"\\]++|\\.)*+\")"
_IN_SHARDINGS = re.compile(_SDY_FIELD.format("in_shardings"), re.S)
_MANUAL_AXES = re.compile(_SDY_FIELD.format("manual_axes"), re.S)
_SHARDING = re.compile(r"<\s*+@(?:[\w.$-]++|\"[^\"]*+\")\s*+,\s*+\[(?:[^\[\]{}]++|\{[^{}]*+\})*+\][^<>]*+>")
_AXIS = re.compile(r'"((?:[^"\\]|\\.)*)"')
# Each device has its own.
_OF_THE_DEVICE = frozenset({"device", "random", "receive"})
_MOST_ROUNDS = 64  # of a loop, each of which adds a digit to an element of its state
_MIN_STEPS, _STEPS_PER_INSTRUCTION = 200_000, 60


@dataclass(frozen=True)
class Places:
    """The places of devices as digits of prime size, in row-major mesh order.

    names: the mesh axis of each digit, or None if the mesh is unknown.
    axes: the names of all mesh axes, also of those of size 1.
    """

    digits: tuple[PlaceDigit, ...]
    names: tuple[str | None, ...]
    axes: frozenset[str] = frozenset()

    @classmethod
    def of_axes(cls, axes: Iterable[tuple[str | None, int]]) -> Places:
        """Return the digits of these axes, major first."""
        axes = tuple(axes)
        named = [(name, prime) for name, size in axes for prime in primes_of(size)]
        stride = math.prod(prime for _, prime in named)
        digits = []
        for _, prime in named:
            stride //= prime
            digits.append(PlaceDigit(prime, stride))
        names = frozenset(name for name, _ in axes if name is not None)
        return cls(tuple(digits), tuple(name for name, _ in named), names)

    @functools.cached_property
    def everywhere(self) -> Digits:
        return frozenset(self.digits)

    @property
    def devices(self) -> int:
        return math.prod(digit.size for digit in self.digits)

    def ways(self, digits: Digits) -> int:
        """Return the number of devices along which a value can differ."""
        return min(math.prod(digit.size for digit in digits), self.devices)

    def of_parts(self, parts: Iterable[PlaceDigit]) -> Digits:
        """Return the digits that make up parts of a sharding; all digits if they do not fit."""
        digits: set[PlaceDigit] = set()
        for part in parts:
            inside = [d for d in self.digits if part.stride <= d.stride < part.stride * part.size]
            if math.prod(digit.size for digit in inside) != part.size:
                return self.everywhere
            digits.update(inside)
        return frozenset(digits)

    def of_axis_names(self, names: Iterable[str]) -> Digits:
        """Return the digits of mesh axes and of parts of them; all digits if one is unknown."""
        found: set[PlaceDigit] = set()
        for name in names:
            axis, before, size = part_of(name)
            own = [digit for digit, known in zip(self.digits, self.names, strict=True) if known == axis]
            stride = own[-1].stride * math.prod(digit.size for digit in own) // before if own else 1
            inside = [digit for digit in own if size is None or stride // size <= digit.stride < stride]
            if axis not in self.axes or (size or 1) != math.prod(d.size for d in inside if size):
                return self.everywhere
            found.update(inside)
        return frozenset(found)

    def of_groups(self, groups: Sequence[Sequence[int]] | None) -> Digits | None:
        """Return the digits that differ inside of groups; None if digits do not form them."""
        if groups is None:
            return None
        shape = tuple(digit.size for digit in self.digits)
        numbers = numbers_of_groups(tuple(map(tuple, groups)), shape)
        return None if numbers is None else frozenset(self.digits[number] for number in numbers)

    def axes_of(self, digits: Digits) -> tuple[str, ...] | None:
        """Return the mesh axes with any of these digits; None if a name is unknown."""
        names = [n for d, n in zip(self.digits, self.names, strict=True) if d in digits]
        if None in names:
            return None
        return tuple(dict.fromkeys(name for name in names if name is not None))


def places_of(mesh: Mesh | None, devices: int) -> Places:
    """Return the places of a compiled program, on a mesh if it has this number of devices."""
    if mesh is not None and mesh.size == devices:
        return Places.of_axes((axis.name, axis.size) for axis in mesh.axes)
    return Places.of_axes([(None, devices)])


@dataclass
class ComputationRun:
    """A computation with the values of one kind of call.

    operands: for each instruction, the digits along which one of its operands differs, or a condition that
      decides whether it runs.
    times: executions in one run of the program; None if unknown.
    """

    computation: Computation
    operands: dict[str, Digits] = field(default_factory=dict)
    times: int | None = 0


_Key = tuple[str, tuple[Value, ...], Digits]
_Calls = list[tuple[_Key, int | None]]


@dataclass
class _Evaluated:
    run: ComputationRun
    result: Value
    calls: _Calls


def arguments_of(
    module: Module, places: Places, specs: Sequence[Spec | None] | None = None
) -> tuple[Value, ...]:
    """Return the values of the arguments of a compiled program.

    Args:
      specs: the mesh axes of each argument, None for unknown ones. The text of some versions contains them.
    """
    values = entry.inputs(module) or ()
    if specs is None or len(specs) != len(values):
        specs = [None] * len(values)
    return tuple(
        _argument(value.sharding if value.problem is None else None, spec, places)
        for value, spec in zip(values, specs, strict=True)
    )


def _argument(sharding: HloSharding | None, spec: Spec | None, places: Places) -> Digits:
    if sharding is not None and sharding.problem is None and sharding.device is None:
        if sharding.order is None and sharding.devices in (None, places.devices):
            return places.of_parts(sharding.parts)
        return places.everywhere
    return (
        places.everywhere
        if spec is None
        else places.of_axis_names(axis for axes in spec for axis in axes or ())
    )


def runs_of_devices(
    module: Module, analysis: Analysis, places: Places, arguments: tuple[Value, ...]
) -> list[ComputationRun] | None:
    """Return the runs of all computations of a compiled program; None if it is too long or truncated."""
    return _Evaluation(module, analysis, places, arguments).runs()


def runs_before_partitioning(
    module: Module, analysis: Analysis
) -> tuple[Places, list[ComputationRun]] | None:
    """Return the runs of a program that is not partitioned, and the places of its devices.

    A value with the shape of all devices differs nowhere. Return None if every value has that shape, or if
    the program is too long or truncated.
    """
    replicas = module.replicas or 1
    if not any(i.target in _ENTERS for _, i in module.instructions if i.opcode == "custom-call"):
        if replicas == 1:
            return None
        # An old `pmap`: each replica has different arguments.
        places = Places.of_axes([(None, replicas)])
        arguments: tuple[Value, ...] = tuple(places.everywhere for _ in range(_parameters(module)))
    else:
        places = _written_places(module)
        arguments = tuple(NOWHERE for _ in range(_parameters(module)))
    runs = _Evaluation(module, analysis, places, arguments).runs()
    return None if runs is None else (places, runs)


def _parameters(module: Module) -> int:
    computation = module.by_name.get(module.entry or "")
    return 0 if computation is None else len(computation.parameters)


def _written_places(module: Module) -> Places:
    """Return the places of the first mesh, or the number of devices of a manual sharding without a mesh."""
    meshes = [mesh for mesh in entry.named_meshes(module).values() if mesh.axes]
    if meshes:
        return Places.of_axes(max(meshes, key=lambda mesh: mesh.size).axes)
    devices = 1
    for _, instruction in module.instructions:
        if instruction.opcode == "custom-call" and instruction.target in ANNOTATIONS:
            sharding = _own_sharding(instruction)
            devices = max(devices, (sharding and sharding.devices) or 1)
    return Places.of_axes([(None, devices)])


class _Evaluation(Forward[Digits]):
    """Evaluates each computation once for each kind of arguments."""

    def __init__(
        self, module: Module, analysis: Analysis, places: Places, arguments: tuple[Value, ...]
    ) -> None:
        super().__init__(module)
        self._analysis = analysis
        self._places = places
        self._meshes: Mapping[str, NamedMesh] = entry.named_meshes(module)
        self._arguments = arguments
        self._evaluated: dict[_Key, _Evaluated] = {}
        self._limit = StepLimit(module, _MIN_STEPS, _STEPS_PER_INSTRUCTION)
        # Of the computation that is followed: its instructions, its calls, and what decides whether it runs.
        self._operands: dict[str, Digits] = {}
        self._calls: _Calls = []
        self._under = NOWHERE

    def runs(self) -> list[ComputationRun] | None:
        computation = self._module.complete_entry()
        if computation is None:
            return None
        arguments = self._arguments
        if len(arguments) != len(computation.parameters):
            arguments = tuple(self._places.everywhere for _ in computation.parameters)
        first: _Key = (computation.name, arguments, NOWHERE)
        try:
            self._evaluate(first)
        except (TooLong, InvalidInput):
            return None
        self._evaluated[first].run.times = 1
        # A callee is complete before its caller.
        for evaluated in reversed(self._evaluated.values()):
            for key, times in evaluated.calls:
                run = self._evaluated[key].run
                run.times = _sum(run.times, evaluated.run.times, times)
        return [e.run for e in self._evaluated.values() if e.run.times != 0]

    def _evaluate(self, key: _Key) -> Value:
        known = self._evaluated.get(key)
        if known is not None:
            return known.result
        name, arguments, under = key
        computation = self._module.by_name.get(name)
        if computation is None or computation.root is None:
            raise TooLong
        self._limit.count(len(computation.instructions))
        caller = self._operands, self._calls, self._under
        self._operands, self._calls, self._under = {}, [], under
        result = self.result_of(computation, arguments)
        self._evaluated[key] = _Evaluated(ComputationRun(computation, self._operands), result, self._calls)
        self._operands, self._calls, self._under = caller
        return result

    def unknown(self, instruction: Instruction | None) -> Digits:
        if instruction is not None and instruction.does in CALLS:
            raise TooLong  # the text lacks the called computation
        return self._places.everywhere

    def join(self, value: Value, other: Value) -> Value:
        return _joined(value, other)

    def note(
        self, computation: Computation, instruction: Instruction, operands: list[Value], value: Value
    ) -> None:
        self._operands[instruction.name] = flat(operands) | self._under

    def element(self, instruction: Instruction, whole: Value) -> Value:
        # An asynchronous operation is followed as its result.
        return super().element(instruction, whole) if isinstance(whole, tuple) else whole

    def call(self, callee: Computation, instruction: Instruction, operands: list[Value]) -> Value:
        key: _Key = (callee.name, tuple(operands), self._under)
        result = self._evaluate(key)
        self._calls.append((key, 1))
        return result

    def transfer(self, computation: Computation, instruction: Instruction, operands: list[Value]) -> Value:
        does = instruction.does
        if does in _OF_THE_DEVICE:
            return self._places.everywhere
        if does in ("copy", "done"):
            return operands[0] if operands else NOWHERE
        if does == "collective":
            return self._collective(instruction, operands)
        if does == "custom":
            return self._custom_call(computation, instruction, operands)
        if instruction.opcode == "dynamic-slice" and len(operands) == 2:
            looked_up = self._looked_up(computation, instruction)
            if looked_up is not None:
                return looked_up
        return flat(operands)

    def loop(self, computation: Computation, loop: Instruction, state: Value) -> Value:
        body, condition = (self._module.callee(loop, role) for role in ("body", "condition"))
        if body is None or condition is None:
            raise TooLong
        for _ in range(_MOST_ROUNDS):
            # If devices run different numbers of iterations, what changes differs.
            within = self._under | flat([self._evaluate((condition.name, (state,), self._under))])
            joined = _joined(state, self._evaluate((body.name, (state,), within)))
            if isinstance(joined, tuple):
                joined = tuple(
                    part if number in body.unchanged else _with(part, within)
                    for number, part in enumerate(joined)
                )
            else:
                joined = _with(joined, within)
            if joined == state:
                break
            state = joined
        else:
            raise TooLong
        trips = self._analysis.loops.trip_count(computation, loop)
        self._calls.append(((body.name, (state,), within), trips))
        self._calls.append(((condition.name, (state,), self._under), None if trips is None else trips + 1))
        return state

    def branches(self, instruction: Instruction, operands: list[Value]) -> Value:
        chosen, under = flat(operands[:1]), self._under
        self._under = under | chosen
        result = super().branches(instruction, operands)
        self._under = under
        return _with(result, chosen)

    def _collective(self, written: Instruction, operands: list[Value]) -> Value:
        instruction = begun(written)
        operation = BY_OPCODE[instruction.opcode]
        together = self._places.of_groups(positions_of(self._module, written))
        several = len(operands) > 1 and (written.shape_text or "").startswith("(")

        def after(value: Value) -> Digits:
            digits = flat([value])
            if operation.result_is_equal:
                return digits | self._places.everywhere if together is None else digits - together
            if operation.route == "pairs" or together is None:
                return self._places.everywhere
            return digits | together

        if several and operation.route != "all-to-all":
            return tuple(after(operand) for operand in operands)
        return after(flat(operands))

    def _custom_call(
        self, computation: Computation, instruction: Instruction, operands: list[Value]
    ) -> Value:
        target = instruction.target
        if target == TO_LOCAL:
            values = self._local(instruction, operands)
            return values[0] if len(values) == 1 else tuple(values)
        if target == TO_GLOBAL:
            manual = self._manual_axes(instruction)
            values = [flat([operand]) - manual for operand in operands]
            return values[0] if len(values) == 1 else tuple(values)
        if target == _TO_LOCAL_GSPMD:
            manual, before = self._manual_parts(instruction), computation.operand(instruction)
            if before is None or before.opcode != "custom-call":
                return flat(operands) | manual
            given = _own_sharding(before)
            parts = [p for d in (given.dimensions if given else ()) for p in d]
            split = self._places.everywhere if given is None else self._places.of_parts(parts)
            return flat(operands) | (split & manual)
        if target == _TO_GLOBAL_GSPMD:
            return flat(operands) & self._manual_parts(instruction)
        if "callback" in target:
            return self._places.everywhere
        if target == "Sharding" and len(operands) == 1:
            return operands[0]
        return flat(operands)

    def _local(self, instruction: Instruction, operands: list[Value]) -> list[Digits]:
        manual = self._manual_axes(instruction)
        match = _IN_SHARDINGS.search(instruction.attributes.get("frontend_attributes", ""))
        written = _SHARDING.findall(text.unquoted(match[1])) if match else []
        if len(written) != len(operands):
            return [flat([operand]) | manual for operand in operands]
        return [
            flat([operand]) | (self._places.of_parts(self._sdy(one).parts) & manual)
            for operand, one in zip(operands, written, strict=True)
        ]

    def _sdy(self, written: str) -> HloSharding:
        sharding = shardings.parse_sdy(f"#sdy.sharding{written}", self._meshes)
        if sharding.mesh is not None and sharding.mesh.size not in (1, self._places.devices):
            raise InvalidInput(f"{written} is on another mesh")
        return sharding

    def _manual_axes(self, instruction: Instruction) -> Digits:
        match = _MANUAL_AXES.search(instruction.attributes.get("frontend_attributes", ""))
        names = _AXIS.findall(text.unquoted(match[1])) if match else []
        return self._places.of_axis_names(names)

    def _manual_parts(self, instruction: Instruction) -> Digits:
        """Return the digits along which each device has its own value, as GSPMD writes them."""
        sharding = _own_sharding(instruction)
        # `{manual}` are all devices.
        if sharding is None or sharding.problem is not None:
            return self._places.everywhere
        return self._places.of_parts(sharding.manual)

    def _looked_up(self, computation: Computation, instruction: Instruction) -> Digits | None:
        """Return the digits along which the entries of a table of all devices differ; None without one."""
        backward = self._analysis.backward
        operands = backward.operands(dataflow.Value(dataflow.CallFrame(computation), instruction))
        # Inside of a fusion they are its parameters.
        found = [[*backward.chain(operand, ())][-1].instruction for operand in operands]
        if [source.opcode for source in found] != ["constant", "partition-id"]:
            return None
        table = found[0]
        entries = text.items(table.operands_text[1:-1]) if "{" in table.operands_text else []
        if len(entries) != self._places.devices:
            return None
        differing = set()
        for digit in self._places.digits:
            for at, entry_ in enumerate(entries):
                below = at - at // digit.stride % digit.size * digit.stride
                if entries[below] != entry_:
                    differing.add(digit)
                    break
        return frozenset(differing)


def _own_sharding(instruction: Instruction) -> HloSharding | None:
    written = instruction.attributes.get("sharding")
    return None if written is None else shardings.parse(written)


def flat(values: Iterable[Value]) -> Digits:
    """Return the digits of all values together."""
    return NOWHERE.union(*leaves(*values))


def _joined(one: Value, other: Value) -> Value:
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(map(_joined, one, other))
    return flat([one, other])


def _with(value: Value, digits: Digits) -> Value:
    if isinstance(value, frozenset):
        return value | digits
    return tuple(_with(part, digits) for part in value)


def _sum(count: int | None, caller: int | None, times: int | None) -> int | None:
    if caller == 0 or times == 0:
        return count
    return None if count is None or caller is None or times is None else count + caller * times
