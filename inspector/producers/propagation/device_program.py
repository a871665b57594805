"""Write a propagated StableHLO module as the HLO program of one device.

After propagation every value has an `sdy.sharding`, and every transfer between devices is an explicit `sdy`
operation. Dividing each global shape by its sharding gives the program of one device. Written as the
instructions of an HLO module, it is read by the same code as a compiled program (`inspector.compiled`), so
that collectives, loops, FLOPs and moved arrays have one definition.

The module is for these readers, not for a compiler: attributes that they do not need are left out.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from inspector.compiled.hlo.module import Computation, Instruction, Module
from inspector.core.errors import InvalidInput
from inspector.producers.propagation.locations import described
from inspector.producers.propagation.loops import comparison_direction, trip_count
from inspector.producers.propagation.shardings import (
    Axis,
    argument_sharding,
    axes_of_dimensions,
    collective_axes,
    result_shardings,
    sharding_of,
    ways_of_dimensions,
)

# StableHLO operations whose HLO opcode is not their name with dashes.
_OPCODES = {
    "broadcast_in_dim": "broadcast",
    "dot_general": "dot",
    "cbrt": "cbrt",
    "log_plus_one": "log-plus-one",
    "optimization_barrier": "opt-barrier",
    "case": "conditional",
    "if": "conditional",
    "all_slice": "slice",
    "named_computation": "call",
    "square": "multiply",
}
# Operations that name a computation which the instruction runs on scalars.
_APPLIES = frozenset({"reduce", "reduce_window", "scatter", "sort", "map", "select_and_scatter"})
_COLLECTIVES = {
    "stablehlo.all_reduce": "all-reduce",
    "stablehlo.all_gather": "all-gather",
    "stablehlo.reduce_scatter": "reduce-scatter",
    "stablehlo.all_to_all": "all-to-all",
    "stablehlo.collective_permute": "collective-permute",
    "stablehlo.collective_broadcast": "collective-broadcast",
    "sdy.all_reduce": "all-reduce",
    "sdy.all_gather": "all-gather",
    "sdy.reduce_scatter": "reduce-scatter",
    "sdy.all_to_all": "all-to-all",
    "sdy.collective_permute": "collective-permute",
    "sdy.sharded_to_unreduced": "all-reduce",
}
# The same data under another name; the value of the operand is used in their place.
_SAME_VALUE = frozenset({
    "sdy.sharding_constraint", "sdy.propagation_barrier", "sdy.data_flow_edge",
    "sdy.func_data_flow_edge", "sdy.replicated_to_unreduced",
})  # fmt: skip
# Groups of a collective as axes of a mesh: `#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = […]>`.
_MESH_AXES = "replica_group_mesh_axes"
_AXIS_NAME = re.compile(r'axis_ref<name = "((?:[^"\\]|\\.)*)"')
_DIALECTS = frozenset({"stablehlo", "chlo", "sdy", "mhlo"})
_DTYPES = {"i1": "pred", "index": "s64"}


@dataclass(frozen=True)
class DeviceProgram:
    """One program of one device.

    Attributes:
      module: its instructions.
      operations: for each collective by its instruction name, the operation of the propagated module. They
        are valid as long as the module is.
      products: the same for each matrix product.
      values: for each instruction with one result, its value in the propagated module.
      not_partitioned: names of operations that Shardy left without explicit collectives.
    """

    module: Module
    operations: dict[str, Any]
    products: dict[str, Any]
    values: dict[str, Any]
    not_partitioned: tuple[str, ...]


@dataclass
class _Scope:
    """One HLO computation while it is written: its instructions, and the names of the values in it."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    names: dict[Any, str] = field(default_factory=dict)
    shapes: dict[str, str] = field(default_factory=dict)


class Writer:
    """Writes one module.

    Args:
      mesh: the sizes of the mesh axes by name, in mesh order.
      locations: whether to write the name stack and the source line of each operation.
    """

    def __init__(self, module: Any, mesh: dict[str, int], locations: bool = True) -> None:
        self._mesh = mesh
        self._locations = locations
        self._functions = {
            ir.StringAttr(operation.attributes["sym_name"]).value: operation
            for operation in module.body.operations
            if operation.operation.name == "func.func"
        }
        self._devices = math.prod(mesh.values())
        self._computations: list[Computation] = []
        self._caller: tuple[str, str, int] = ("", "", 0)
        self._count = 0
        self._operations: dict[str, Any] = {}
        self._products: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._not_partitioned: list[str] = []
        self._groups: dict[tuple, str] = {}
        self._shapes: dict[tuple[Any, Any], str] = {}
        # Many operations have the same location.
        self._written_metadata: dict[tuple[Any, tuple[str, str, int]], str] = {}

    def write(self) -> DeviceProgram:
        """Return the program of one device."""
        main = self._functions["main"]
        block = main.regions[0].blocks[0]
        scope = _Scope("main")
        for number, argument in enumerate(block.arguments):
            shape = self._shape(argument.type, argument_sharding(main, number))
            self._parameter(scope, argument, number, shape)
        self._block(scope, block)
        header = f", num_partitions={self._devices}, replica_count=1"
        self._close(scope, entry=True)
        return DeviceProgram(
            Module("main", header, tuple(self._computations), scope.name),
            self._operations,
            self._products,
            self._values,
            tuple(self._not_partitioned),
        )

    # --- Computations -----------------------------------------------------------------------------

    def _parameter(self, scope: _Scope, value: Any, number: int, shape: str) -> None:
        scope.names[value] = self._new_parameter(scope, number, shape)

    def _new_parameter(self, scope: _Scope, number: int, shape: str) -> str:
        name = self._new("p")
        scope.shapes[name] = shape
        scope.instructions.append(
            Instruction(name, "parameter", shape, f"({number})", "", root=False)
        )
        return name

    def _close(self, scope: _Scope, *, entry: bool = False) -> None:
        for value, name in scope.names.items():
            self._values.setdefault(name, value)  # later ones are the same data
        self._computations.append(Computation(scope.name, entry, tuple(scope.instructions)))

    def _block(self, scope: _Scope, block: Any) -> None:
        """Write the operations of a block; its terminator becomes the root."""
        for operation in block.operations:
            self._operation(scope, operation.operation)

    def _new(self, stem: str) -> str:
        self._count += 1
        return f"{stem}.{self._count}"

    def _emit(
        self,
        scope: _Scope,
        opcode: str,
        shape: str,
        operands: Sequence[str],
        attributes: Sequence[str] = (),
        operation: Any = None,
        root: bool = False,
    ) -> str:
        name = self._new(opcode)
        scope.shapes[name] = shape
        listed = f"(%{', %'.join(operands)})" if operands else "()"
        written = f", {', '.join(attributes)}" if attributes else ""
        if operation is not None and self._locations:
            written += self._metadata(operation.location)
        scope.instructions.append(Instruction(name, opcode, shape, listed, written, root))
        return name

    # --- Operations -------------------------------------------------------------------------------

    def _operation(self, scope: _Scope, operation: Any) -> None:
        kind = operation.name
        write = _WRITTEN_BY.get(kind)
        if write is not None:
            write(self, scope, operation)
        elif kind in _COLLECTIVES:
            self._collective(scope, operation, _COLLECTIVES[kind])
        else:
            dialect, _, short = kind.partition(".")
            if dialect in _DIALECTS:
                opcode = _OPCODES.get(short) or short.replace("_", "-")
                self._plain(scope, operation, opcode, _attributes(operation, kind), short)
            else:
                target = f'custom_call_target="{kind}"'
                self._plain(scope, operation, "custom-call", [target], short)

    def _same(self, scope: _Scope, operation: Any) -> None:
        scope.names[operation.results[0]] = self._name(scope, operation.operands[0])

    def _reshard(self, scope: _Scope, operation: Any) -> None:
        self._not_partitioned.append(self._described(operation.location)[0] or operation.name)
        self._plain(scope, operation, "custom-call", ['custom_call_target="reshard"'])

    def _return(self, scope: _Scope, operation: Any) -> None:
        names = [self._name(scope, value) for value in operation.operands]
        shape = _tuple([scope.shapes[name] for name in names])
        self._emit(scope, "tuple", shape, names, root=True)

    def _plain(
        self,
        scope: _Scope,
        operation: Any,
        opcode: str,
        attributes: Sequence[str],
        short: str = "",
    ) -> None:
        """Write an operation as one instruction. `short` is its name without the dialect."""
        if short in _APPLIES and len(operation.regions):
            attributes = [*attributes, f"to_apply=%{self._applied(operation)}"]
        names = scope.names
        operands = [names[value] for value in operation.operands]
        results = operation.results
        if len(results) == 1:
            result = results[0]
            shape = self._shape(result.type, result_shardings(operation)[0])
            name = self._emit(scope, opcode, shape, operands, attributes, operation)
            names[result] = name
            if opcode == "dot":
                self._products[name] = operation
            return
        shapes = self._result_shapes(operation)
        name = self._emit(scope, opcode, _tuple(shapes), operands, attributes, operation)
        self._take_apart(scope, name, results, shapes)

    def _take_apart(
        self, scope: _Scope, name: str, results: Sequence[Any], shapes: Sequence[str]
    ) -> None:
        for index, (result, shape) in enumerate(zip(results, shapes, strict=True)):
            scope.names[result] = self._emit(
                scope, "get-tuple-element", shape, [name], [f"index={index}"]
            )

    def _applied(self, operation: Any) -> str:
        """Write the region of a reduction as a computation on scalars, and return its name."""
        block = operation.regions[0].blocks[0]
        scope = _Scope(self._new("region"))
        for number, argument in enumerate(block.arguments):
            self._parameter(scope, argument, number, self._shape(argument.type, None))
        for value in _captured([operation.regions[0]]):
            scope.names[value] = self._emit(scope, "constant", self._shape(value.type, None), [])
        for inner in block.operations:
            if inner.operation.name == "stablehlo.return":
                values = inner.operation.operands
                names = [self._name(scope, value) for value in values]
                if len(names) == 1:
                    shape = scope.shapes[names[0]]
                    self._emit(scope, "copy", shape, names, root=True)
                else:
                    self._return(scope, inner.operation)
            else:
                self._operation(scope, inner.operation)
        self._close(scope)
        return scope.name

    def _while(self, scope: _Scope, operation: Any) -> None:
        condition, body = (region.blocks[0] for region in operation.regions)
        captured = _captured(operation.regions)
        carried = [*operation.operands, *captured]
        names = [self._name(scope, value) for value in carried]
        shapes = [
            *self._result_shapes(operation),
            *(scope.shapes[self._name(scope, value)] for value in captured),
        ]
        whole = _tuple(shapes)
        parts = []
        for block, stem in ((condition, "condition"), (body, "body")):
            inner = _Scope(self._new(stem))
            parameter = self._new_parameter(inner, 0, whole)
            self._take_apart(inner, parameter, [*block.arguments, *captured], shapes)
            for each in block.operations:
                if each.operation.name != "stablehlo.return":
                    self._operation(inner, each.operation)
                    continue
                results = [self._name(inner, value) for value in each.operation.operands]
                if stem == "condition":
                    self._emit(inner, "copy", "pred[]", results, root=True)
                else:
                    kept = [inner.names[value] for value in captured]
                    self._emit(inner, "tuple", whole, [*results, *kept], root=True)
            self._close(inner)
            parts.append(f"{stem}=%{inner.name}")
        start = self._emit(scope, "tuple", whole, names)
        trips = trip_count(operation)
        if trips is not None:
            config = json.dumps({"known_trip_count": {"n": str(trips)}})
            parts.append(f"backend_config={config}")
        name = self._emit(scope, "while", whole, [start], parts, operation)
        self._take_apart(scope, name, operation.results, shapes[: len(operation.results)])

    def _conditional(self, scope: _Scope, operation: Any) -> None:
        captured = _captured(operation.regions)
        shapes = [scope.shapes[self._name(scope, value)] for value in captured]
        whole = _tuple(shapes)
        argument = self._emit(
            scope, "tuple", whole, [self._name(scope, value) for value in captured]
        )
        branches = []
        for region in operation.regions:
            inner = _Scope(self._new("branch"))
            parameter = self._new_parameter(inner, 0, whole)
            self._take_apart(inner, parameter, captured, shapes)
            self._block(inner, region.blocks[0])
            self._close(inner)
            branches.append(f"%{inner.name}")
        selector = self._name(scope, operation.operands[0])
        results = self._result_shapes(operation)
        name = self._emit(
            scope,
            "conditional",
            _tuple(results),
            [selector, *[argument] * len(branches)],
            [f"branch_computations={{{', '.join(branches)}}}"],
            operation,
        )
        self._take_apart(scope, name, operation.results, results)

    def _call(self, scope: _Scope, operation: Any) -> None:
        """Write the called function in place, so that its operations get the caller's name stack."""
        callee = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
        before = self._caller
        self._caller = self._described(operation.location)
        self._inline(scope, operation, self._functions[callee].regions[0].blocks[0])
        self._caller = before

    def _body(self, scope: _Scope, operation: Any) -> None:
        """Write a body in place. In that of a `shard_map`, shapes are local along the manual axes."""
        self._inline(scope, operation, operation.regions[0].blocks[0])

    def _inline(self, scope: _Scope, operation: Any, block: Any) -> None:
        for argument, value in zip(block.arguments, operation.operands, strict=True):
            scope.names[argument] = self._name(scope, value)
        for inner in block.operations:
            if inner.operation.name in ("sdy.return", "func.return"):
                values = inner.operation.operands
                for result, value in zip(operation.results, values, strict=True):
                    scope.names[result] = self._name(scope, value)
            else:
                self._operation(scope, inner.operation)

    # --- Collectives ------------------------------------------------------------------------------

    def _collective(self, scope: _Scope, operation: Any, opcode: str) -> None:
        operands = [self._name(scope, value) for value in operation.operands]
        shapes = self._result_shapes(operation)
        for attributes in self._group_attributes(operation, opcode):
            shape = shapes[0] if len(shapes) == 1 else _tuple(shapes)
            name = self._emit(scope, opcode, shape, operands, attributes, operation)
            self._operations[name] = operation
            self._values[name] = operation.results[0]
            operands = [name]
        if len(shapes) == 1:
            scope.names[operation.results[0]] = operands[0]
        else:
            self._take_apart(scope, operands[0], operation.results, shapes)

    def _group_attributes(self, operation: Any, opcode: str) -> Iterator[list[str]]:
        """Yield the attributes of each collective of the operation."""
        channel = "channel_id=1"
        flag = "use_global_device_ids=true"
        if operation.name.startswith("stablehlo."):
            attributes = operation.attributes
            if opcode == "collective-permute":
                pairs = np.array(ir.DenseIntElementsAttr(attributes["source_target_pairs"]))
                listed = ",".join(f"{{{a},{b}}}" for a, b in pairs)
                yield [channel, f"source_target_pairs={{{listed}}}"]
                return
            written = attributes["replica_groups"]
            if _MESH_AXES in str(written):  # JAX 0.12
                yield [channel, f"replica_groups={self._groups_along(str(written))}", flag]
                return
            groups = np.array(ir.DenseIntElementsAttr(written))
            listed = ",".join("{" + ",".join(map(str, group)) + "}" for group in groups)
            yield [channel, f"replica_groups={{{listed}}}", flag]
            return
        if opcode == "collective-permute":
            pairs = self._moves(operation)
            listed = ",".join(f"{{{a},{b}}}" for a, b in pairs)
            yield [channel, f"source_target_pairs={{{listed}}}"]
            return
        for axes in collective_axes(operation):
            yield [channel, f"replica_groups={self._replica_groups(axes)}", flag]

    def _groups_along(self, written: str) -> str:
        """Return the groups of a collective that names axes of a mesh, as `shard_map` writes them.

        Raises:
          InvalidInput: it names a part of an axis, or an axis of another mesh.
        """
        names = _AXIS_NAME.findall(written)
        if "sub_axis" in written or not set(names) <= self._mesh.keys():
            raise InvalidInput("it has a collective on parts of mesh axes, or on another mesh")
        return self._replica_groups(tuple((name, None) for name in names))

    def _replica_groups(self, axes: tuple[Axis, ...]) -> str:
        """Return groups along these axes as an iota list; a sub-axis has (pre-size, size)."""
        known = self._groups.get(axes)
        if known is not None:
            return known
        dimensions: list[int] = []
        inside: dict[int, int] = {}
        order = {axis: place for place, axis in enumerate(axes)}
        for name, size in self._mesh.items():
            part = next((sub for axis, sub in axes if axis == name and sub), None)
            whole = (name, None) in order
            if part is None:
                if whole:
                    inside[len(dimensions)] = order[(name, None)]
                dimensions.append(size)
                continue
            before, length = part
            dimensions.append(before)
            inside[len(dimensions)] = order[(name, part)]
            dimensions += [length, size // (before * length)]
        outside = [place for place in range(len(dimensions)) if place not in inside]
        grouped = sorted(inside, key=inside.__getitem__)
        length = math.prod(dimensions[place] for place in grouped)
        text = (
            f"[{self._devices // length},{length}]<=[{','.join(map(str, dimensions))}]"
            f"T({','.join(map(str, [*outside, *grouped]))})"
        )
        self._groups[axes] = text
        return text

    def _moves(self, operation: Any) -> list[tuple[int, int]]:
        """Return (source, target) positions of a permute, from the shardings before and after it."""
        before = self._shard_numbers(sharding_of(operation.operands[0]))
        after = self._shard_numbers(result_shardings(operation)[0])
        holders: dict[int, list[int]] = {}
        for position, shard in enumerate(before):
            holders.setdefault(int(shard), []).append(position)
        taken: dict[int, int] = {}
        pairs = []
        for position, shard in enumerate(after):
            sources = holders.get(int(shard), [])
            if not sources:
                continue
            if before[position] == shard:
                pairs.append((position, position))
                continue
            number = taken.get(int(shard), 0)
            taken[int(shard)] = number + 1
            pairs.append((sources[number % len(sources)], position))
        return [pair for pair in pairs if pair[0] != pair[1]] or pairs

    def _shard_numbers(self, sharding: Any) -> np.ndarray:
        """Return for each device, in mesh order, the number of the shard that it holds."""
        shape = tuple(self._mesh.values())
        places = dict(zip(self._mesh, np.indices(shape), strict=True))
        number = np.zeros(shape, dtype=np.int64)
        if sharding is not None:
            for dimension in axes_of_dimensions(sharding):
                for name, part in dimension:
                    place, size = places[name], self._mesh[name]
                    if part is not None:
                        before, size = part
                        place = place // (self._mesh[name] // (before * size)) % size
                    number = number * size + place
        return number.reshape(-1)

    # --- Values -----------------------------------------------------------------------------------

    def _name(self, scope: _Scope, value: Any) -> str:
        return scope.names[value]

    def _described(self, location: Any) -> tuple[str, str, int]:
        """Return the name stack, file and line of an operation.

        Inside a called function, the name stack begins with that of the caller. An operation without a file
        has the file and line of the caller.
        """
        name, file, line = described(location)
        outer, outer_file, outer_line = self._caller
        if outer and not name.startswith(("jit(", "pjit(")):
            name = f"{outer}/{name}" if name else outer
        return (name, file, line) if file else (name, outer_file, outer_line)

    def _metadata(self, location: Any) -> str:
        """Return the metadata of an instruction after its attributes."""
        key = location.attr, self._caller
        if key not in self._written_metadata:
            self._written_metadata[key] = _metadata(*self._described(location))
        return self._written_metadata[key]

    def _result_shapes(self, operation: Any) -> list[str]:
        shardings = result_shardings(operation)
        return [
            self._shape(result.type, sharding)
            for result, sharding in zip(operation.results, shardings, strict=True)
        ]

    def _shape(self, kind: Any, sharding: Any) -> str:
        """Return the shape of one device's part of a value, such as `f32[4,256]`."""
        key = (kind, sharding)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._local_shape(kind, sharding)
        return shape

    def _local_shape(self, kind: Any, sharding: Any) -> str:
        try:
            tensor = ir.RankedTensorType(kind)
        except ValueError:
            return "token[]"
        ways = (
            ways_of_dimensions(sharding, tuple(self._mesh.items())) if sharding is not None else ()
        )
        sizes = [
            tensor.get_dim_size(place) if not tensor.is_dynamic_dim(place) else None
            for place in range(tensor.rank)
        ]
        local = [
            "?" if size is None else str(-(-size // (ways[place] if place < len(ways) else 1)))
            for place, size in enumerate(sizes)
        ]
        return f"{_dtype(str(tensor.element_type))}[{','.join(local)}]"


_WRITTEN_BY: dict[str, Callable[[Writer, _Scope, Any], None]] = {
    **dict.fromkeys(("stablehlo.return", "func.return", "sdy.return"), Writer._return),
    **dict.fromkeys(_SAME_VALUE, Writer._same),
    "stablehlo.while": Writer._while,
    "stablehlo.case": Writer._conditional,
    "stablehlo.if": Writer._conditional,
    "func.call": Writer._call,
    "sdy.manual_computation": Writer._body,
    "sdy.named_computation": Writer._body,
    "sdy.reshard": Writer._reshard,
}


def _attributes(operation: Any, name: str) -> Sequence[str]:
    """Return the attributes that the readers of HLO text use."""
    if name == "stablehlo.dot_general":
        return _contraction(str(operation.attributes["dot_dimension_numbers"]))
    if name == "stablehlo.dot":  # a product of two matrices, or of a matrix and a vector
        last = ir.RankedTensorType(operation.operands[0].type).rank - 1
        return [f"lhs_contracting_dims={{{last}}}", "rhs_contracting_dims={0}"]
    if name == "stablehlo.compare":
        return [f"direction={comparison_direction(operation)}"]
    if name == "stablehlo.custom_call":
        target = ir.StringAttr(operation.attributes["call_target_name"]).value
        return [f"custom_call_target={json.dumps(target)}"]
    return ()


@functools.lru_cache(maxsize=1024)
def _contraction(text: str) -> list[str]:
    parts = []
    for key, word in (
        ("lhs_contracting_dimensions", "lhs_contracting_dims"),
        ("rhs_contracting_dimensions", "rhs_contracting_dims"),
        ("lhs_batching_dimensions", "lhs_batch_dims"),
        ("rhs_batching_dimensions", "rhs_batch_dims"),
    ):
        _, found, rest = text.partition(f"{key} = [")
        if found:
            numbers = rest.partition("]")[0].replace(" ", "")
            if numbers:
                parts.append(f"{word}={{{numbers}}}")
    return parts


@functools.lru_cache(maxsize=64)
def _dtype(text: str) -> str:
    if text in _DTYPES:
        return _DTYPES[text]
    if text.startswith("ui"):
        return f"u{text[2:]}"
    if text.startswith("i"):
        return f"s{text[1:]}"
    if text.startswith("complex<"):
        return f"c{2 * int(text[9:-1])}"
    return text.lower()


@functools.lru_cache(maxsize=8192)
def _metadata(name: str, file: str, line: int) -> str:
    parts = []
    if name:
        parts.append(f"op_name={json.dumps(name)}")
    if file:
        parts.append(f"source_file={json.dumps(file)} source_line={line}")
    return f", metadata={{{' '.join(parts)}}}" if parts else ""


def _captured(regions: Iterable[Any]) -> list[Any]:
    """Return the values from outside that the regions use, each once, in order of use."""
    found: dict[Any, None] = {}
    inside: set[Any] = set()  # a value is used only after it is made

    def visit(region: Any) -> None:
        for block in region.blocks:
            inside.update(block.arguments)
            for each in block.operations:
                operation = each.operation
                for value in operation.operands:
                    if value not in inside:
                        found.setdefault(value)
                for inner in operation.regions:
                    visit(inner)
                inside.update(operation.results)

    for region in regions:
        visit(region)
    return list(found)


def _tuple(shapes: Sequence[str]) -> str:
    return f"({', '.join(shapes)})"
