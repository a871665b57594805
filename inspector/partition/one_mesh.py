"""Write all shardings of a module over the axes of its first mesh, as XLA does before propagation.

An axis of another mesh is a part of an axis of the first one, such as `"model":(1)2`, or several axes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from inspector.hlo import shardings
from inspector.hlo.shardings import NamedMesh, PlaceDigit
from inspector.partition.shardings import MANUAL, manual_axes
from inspector.partition.shardy import redirect
from inspector.text.errors import InvalidInput
from inspector.tracing.mlir.walk import named_attributes, operations, symbols, text_of

# The manual computations of `shard_map`: their operation after a round trip through HLO, and values in them.
#
# HLO has no manual computation. XLA writes a call of its body between two custom calls, the first from global
# to local shapes and the last back.


_FRONTEND = "mhlo.frontend_attributes"
_TO_LOCAL, _TO_GLOBAL = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"
_BODY = "xla.sdy.manual_computation_body"
_IN, _OUT, _AXES = "xla.sdy.in_shardings", "xla.sdy.out_shardings", "xla.sdy.manual_axes"
_NO_SHARDINGS = "#sdy.sharding_per_value<[]>"


def restore_manual(module: ir.Module) -> None:
    """Replace the calls that HLO has for a `shard_map` by its `sdy.manual_computation`.

    Raises:
      InvalidInput: a `shard_map` has another form, so that its manual axes are unknown.
    """
    functions = symbols(module.operation, "func.func")
    calls: list[tuple[Any, str]] = []
    for operation in operations(module.operation, inner_first=True):
        if operation.name == "func.call":
            callee = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
            if callee.startswith(_BODY):
                calls.append((operation, callee))
    for call, callee in calls:
        _restore(call, functions[callee])
    for name in dict.fromkeys(callee for _, callee in calls):
        functions[name].erase()


def _restore(call: ir.Operation, function: ir.Operation) -> None:
    before, named = _edge(call.operands, _TO_LOCAL)
    users = [use.owner for result in call.results for use in result.uses]
    after = next((user.operation for user in users if _target(user.operation) == _TO_GLOBAL), None)
    outer = _attributes(after)
    axes = named.get(_AXES) or outer.get(_AXES)
    if axes is None:
        raise InvalidInput("not propagated, because the manual axes of a shard_map are unknown")
    edges = before is not None or not list(call.operands), after is not None or not call.results
    if not all(edges):
        raise InvalidInput("not propagated, because the global shapes of a shard_map are unknown")
    results = [] if after is None else list(after.results)
    block = function.regions[0].blocks[0]
    with ir.InsertionPoint(call), call.location:
        manual = sdy.ManualComputationOp(
            [result.type for result in results],
            [] if before is None else list(before.operands),
            ir.Attribute.parse(named.get(_IN, _NO_SHARDINGS)),
            ir.Attribute.parse(outer.get(_OUT, _NO_SHARDINGS)),
            ir.Attribute.parse(axes),
        )
    types = [argument.type for argument in block.arguments]
    region = manual.operation.regions[0]
    inside = ir.Block.create_at_start(region, types, [call.location] * len(types))
    _copy(block, inside, call.location)
    for old, new in zip(results, manual.operation.results, strict=True):
        old.replace_all_uses_with(new)
    if after is not None:
        after.erase()
    call.erase()
    if before is not None:
        before.erase()


def _edge(values: Iterable[ir.Value], target: str) -> tuple[ir.Operation | None, dict[str, str]]:
    """Return the custom call that makes these values, and its attributes."""
    for value in values:
        owner = value.owner
        if not isinstance(owner, ir.Block) and _target(owner.operation) == target:
            return owner.operation, _attributes(owner.operation)
    return None, {}


def _target(operation: ir.Operation) -> str | None:
    if operation.name != "stablehlo.custom_call":
        return None
    return str(ir.StringAttr(operation.attributes["call_target_name"]).value)


def _attributes(operation: ir.Operation | None) -> dict[str, str]:
    if operation is None or _FRONTEND not in operation.attributes:
        return {}
    named = named_attributes(operation.attributes[_FRONTEND])
    return {name: ir.StringAttr(attribute).value for name, attribute in named.items()}


def _copy(block: ir.Block, inside: ir.Block, caller: ir.Location) -> None:
    """Copy the operations of a function's body into the block of a manual computation."""
    values: dict[ir.Value, ir.Value] = dict(zip(block.arguments, inside.arguments, strict=True))
    for view in block.operations:
        operation = view.operation
        if operation.name == "func.return":
            with ir.InsertionPoint(inside), operation.location:
                sdy.ReturnOp([values.get(operand, operand) for operand in operation.operands])
            return
        copy = operation.clone(ip=ir.InsertionPoint(inside)).operation
        redirect(copy, values, caller)
        values.update(zip(operation.results, copy.results, strict=True))


def manual_axes_around(value: ir.Value) -> tuple[str, ...]:
    """Return the mesh axes over which each device has its own value; empty outside a `shard_map`."""
    owner = value.owner
    operation = owner.owner.operation if isinstance(owner, ir.Block) else owner.operation.parent
    axes: list[str] = []
    while operation is not None and operation.name != "builtin.module":
        if operation.name == MANUAL:
            axes += manual_axes(operation)
        operation = operation.parent
    return tuple(dict.fromkeys(axes))


_SHARDING = re.compile(r"<@([\w.$-]+), \[((?:[^\[\]{}]|\{[^{}]*\})*)\]((?:, \w+=\{[^{}]*\})*)>")
_ENTRY = re.compile(r"\{([^{}]*)\}(p\d+)?")
_EXTRA = re.compile(r", (\w+)=\{([^{}]*)\}")
_MESH = r'^\s*sdy\.mesh @"?{}"? = .*$\n'

OTHER_MESHES = "other-mesh"


def meshes_of(module: ir.Operation) -> dict[str, NamedMesh]:
    """Return the meshes of a module's operation by name."""
    meshes = {}
    for name, operation in symbols(module, "sdy.mesh").items():
        mesh = shardings.sdy_mesh(str(sdy.MeshAttr(operation.attributes["mesh"])))
        if mesh is not None:
            meshes[name] = mesh
    return meshes


def on_first_mesh(module: ir.Module, meshes: Mapping[str, NamedMesh]) -> ir.Module:
    """Return the module with one mesh.

    Raises:
      InvalidInput: a mesh has other devices than the first one, or manual axes.
    """
    if len(meshes) < 2:
        return module
    first, main = next(item for item in meshes.items() if item[1].axes)
    text = text_of(module)
    for name, mesh in meshes.items():
        if name == first:
            continue
        text = re.sub(_MESH.format(re.escape(name)), "", text, flags=re.M)
        if mesh == main:  # JAX 0.12 writes another one for the groups of collectives in a shard_map
            text = re.sub(rf"@{re.escape(name)}(?![\w.$-])", f"@{first}", text)

    def replaced(match: re.Match[str]) -> str:
        mesh = meshes.get(match[1])
        if mesh is None or match[1] == first:
            return match[0]
        if not mesh.axes:
            return f"<@{first}, [{match[2]}]>"
        if mesh.order is not None or main.order is not None or mesh.size != main.size:
            raise InvalidInput("it has meshes with different devices")
        sharding = shardings.parse_sdy(f"#sdy.sharding<@m, [{match[2]}]{match[3]}>", {"m": mesh})
        entries = [
            "{"
            + ", ".join([*axes_of_parts(parts, main), *(["?"] if "?" in entry[1] else [])])
            + "}"
            + (entry[2] or "")
            for parts, entry in zip(sharding.dimensions, _ENTRY.finditer(match[2]), strict=True)
        ]
        more = "".join(
            f", {kind}={{{', '.join(axes_of_parts(sharding.unreduced, main))}}}"
            for kind, _ in _EXTRA.findall(match[3])
            if kind == "unreduced"
        )
        return f"<@{first}, [{', '.join(entries)}]{more}>"

    try:
        return ir.Module.parse(_SHARDING.sub(replaced, text))
    except ir.MLIRError:
        raise InvalidInput("it has manual axes on several meshes") from None


def axes_of_parts(parts: tuple[PlaceDigit, ...], mesh: NamedMesh) -> Iterator[str]:
    """Yield the axes of the mesh, or parts of them, that a dimension's parts are, major first.

    Raise InvalidInput if the parts do not divide the axes.
    """
    strides = mesh.strides
    for part in parts:
        size, top = part.size, part.size * part.stride
        for name, length in mesh.axes:  # major first
            start, end = strides[name], strides[name] * length
            low, high = max(part.stride, start), min(top, end)
            if low >= high:
                continue
            if high % low or end % high or low % start:
                raise InvalidInput("it has meshes whose axes do not fit together")
            taken, before = high // low, end // high
            size //= taken
            yield f'"{name}"' if taken == length else f'"{name}":({before}){taken}'
        if size != 1:
            raise InvalidInput("it has meshes whose axes do not fit together")
