"""Modules whose shardings are not in Shardy's dialect: those of JAX before Shardy, and of other front ends.

They have `mhlo.sharding` at arguments, results and custom calls, or Shardy's shardings as text in
`mhlo.frontend_attributes`. Both are rewritten to `sdy.sharding` on one mesh.
"""

from collections.abc import Iterator

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from inspector.hlo import shardings
from inspector.hlo.shardings import HloSharding, NamedMesh
from inspector.partition.one_mesh import axes_of_parts
from inspector.partition.shardings import SHARDING, rank_of
from inspector.partition.shardy import reason
from inspector.partition.xla_form import parsed_attribute, restore_shardings
from inspector.text.errors import InvalidInput
from inspector.text.formatting import counted
from inspector.tracing.mlir.walk import (
    function_type,
    named_attributes,
    operations,
    set_signature_attributes,
    signature_attributes,
    text_of,
)

_FRONTEND, _MESHES = "mhlo.frontend_attributes", "xla.sdy.meshes"
_OLD = "mhlo.sharding"
_CONSTRAINT = "Sharding"
_KEYS = ("arg_attrs", "res_attrs")
_MESH = "mesh"


def with_sdy(module: ir.Module, given: NamedMesh | None = None) -> ir.Module | None:
    """Return a copy with `sdy` shardings; None if the module has none of another form.

    Args:
      given: the mesh that the user names, for shardings without names of axes.

    Raises:
      InvalidInput: the given mesh has another number of devices, no mesh expresses the shardings, or one of
        them is not valid.
    """
    try:
        return _with_sdy(module, given)
    except InvalidInput:
        raise
    # Attributes of other kinds, text that MLIR cannot parse, and shardings of more dimensions than the value.
    except (ir.MLIRError, ValueError, TypeError, IndexError, RuntimeError) as error:
        raise InvalidInput(f"the shardings of the program cannot be read: {reason(str(error))}") from None


def _with_sdy(module: ir.Module, given: NamedMesh | None) -> ir.Module | None:
    copy = ir.Module.parse(text_of(module))
    meshes = _meshes_in_text(copy)
    if meshes:
        with copy.context, ir.Location.unknown():
            restore_shardings(copy, meshes)
        return copy
    written = dict.fromkeys(_old_shardings(copy))
    devices = _devices(copy)
    if not written or devices < 2:
        return None
    parsed = {text: shardings.parse(text) for text in written}
    for sharding in parsed.values():
        if sharding.devices not in (None, devices):
            raise InvalidInput(
                f"a sharding of the program is on {counted(sharding.devices or 0, 'device')}, but the "
                f"program runs on {devices:,}"
            )
    mesh = given or shardings.derived_mesh([*parsed.values()], devices)
    if mesh is None:
        raise InvalidInput("no mesh expresses the shardings of the program; give it with --mesh")
    if mesh.size != devices:
        raise InvalidInput(f"--mesh has {counted(mesh.size, 'device')}, but the program runs on {devices:,}")
    known = {text: _attribute(sharding, mesh) for text, sharding in parsed.items()}
    with copy.context, ir.Location.unknown():
        with ir.InsertionPoint.at_block_begin(copy.body):
            axes = [sdy.MeshAxisAttr.get(name, size) for name, size in mesh.axes]
            sdy.MeshOp(_MESH, sdy.MeshAttr.get(axes))
        _rewrite(copy, known)
    return copy


def _meshes_in_text(module: ir.Module) -> dict[str, str]:
    """Return the text of each mesh in the attributes of a module, by its name."""
    attributes = module.operation.attributes
    if _FRONTEND not in attributes:
        return {}
    named = ir.DictAttr(attributes[_FRONTEND])
    if _MESHES not in named:
        return {}
    with module.context:
        meshes = named_attributes(parsed_attribute(named[_MESHES]))
        return {name: str(mesh) for name, mesh in meshes.items()}


def _devices(module: ir.Module) -> int:
    attributes = module.operation.attributes
    counts = [
        ir.IntegerAttr(attributes[key]).value
        for key in ("mhlo.num_partitions", "mhlo.num_replicas")
        if key in attributes
    ]
    return counts[0] if counts else 1


def _old_shardings(module: ir.Module) -> Iterator[str]:
    for operation in operations(module.operation):
        if operation.name == "func.func":
            for key in _KEYS:
                for named in signature_attributes(operation, key):
                    if _OLD in named:
                        yield ir.StringAttr(named[_OLD]).value
        elif _OLD in operation.attributes:
            yield ir.StringAttr(operation.attributes[_OLD]).value


def _attribute(sharding: HloSharding, mesh: NamedMesh) -> str | None:
    """Return a sharding as Shardy writes it; None if it says nothing about tiles."""
    if sharding.device is not None or sharding.problem is not None or sharding.manual:
        return None
    dimensions = [f"{{{', '.join(axes_of_parts(parts, mesh))}}}" for parts in sharding.dimensions]
    return f"#sdy.sharding<@{_MESH}, [{', '.join(dimensions)}]>"


def _rewrite(module: ir.Module, known: dict[str, str | None]) -> None:
    def of(written: ir.Attribute | None, rank: int) -> sdy.TensorShardingAttr | None:
        text = None if written is None else known[ir.StringAttr(written).value]
        if text is None:
            return None
        attribute = sdy.TensorShardingAttr(ir.Attribute.parse(text))
        missing = rank - len(attribute.dimension_shardings)
        if missing <= 0:
            return attribute
        more = [sdy.DimensionShardingAttr.get([], is_closed=True)] * missing
        return sdy.TensorShardingAttr.get(_MESH, [*attribute.dimension_shardings, *more])

    for operation in operations(module.operation):
        if operation.name == "func.func":
            kind = function_type(operation)
            for key, types in zip(_KEYS, (kind.inputs, kind.results), strict=True):
                if key in operation.attributes:
                    listed = signature_attributes(operation, key)
                    for named, tensor in zip(listed, types, strict=True):
                        sharding = of(named.pop(_OLD, None), rank_of(tensor) or 0)
                        if sharding is not None:
                            named[SHARDING] = sharding
                    set_signature_attributes(operation, key, listed)
        elif _OLD in operation.attributes:
            written = operation.attributes[_OLD]
            del operation.attributes[_OLD]
            if operation.name != "stablehlo.custom_call" or len(operation.results) != 1:
                continue
            sharding = of(written, rank_of(operation.results[0].type) or 0)
            target = ir.StringAttr(operation.attributes["call_target_name"]).value
            if sharding is not None and target == _CONSTRAINT:
                with ir.InsertionPoint(operation), operation.location:
                    value = sdy.ShardingConstraintOp(operation.operands[0], sharding).result
                operation.results[0].replace_all_uses_with(value)
                operation.erase()
