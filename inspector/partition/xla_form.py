"""A lowered module in the form in which XLA propagates shardings.

A compile first turns StableHLO into HLO and back. This splits degenerate broadcasts, legalizes CHLO and
renames nothing, but Shardy breaks ties by the order and form of operations. Propagating on the same form
gives the same shardings as a compile.
"""

from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy
from jax.interpreters import mlir as jax_mlir

from inspector.hlo.ragged_rows import EXPECTED_ROWS
from inspector.jax_private import hlo_conversion
from inspector.model.built_in.watching import MARK, mark_value
from inspector.partition.one_mesh import restore_manual
from inspector.partition.outlined import add_shardings, without_shardings
from inspector.partition.shardings import SHARDING
from inspector.text.errors import InvalidInput
from inspector.tracing.mlir.walk import (
    function_type,
    operations,
    set_signature_attributes,
    signature_attributes,
    symbols,
    text_of,
)

_FRONTEND = "mhlo.frontend_attributes"
_IN_FRONTEND = "xla.sdy.sharding"
_RULE = "xla.sdy.sharding_rule"
_CONSTRAINT = "Sharding"
_RESULT = "xla.sdy.FuncResultSharding"
# Operations that must stay even if nothing uses their results.
_EFFECTS = frozenset({
    "stablehlo.custom_call", "stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv",
})  # fmt: skip


def xla_form(module: ir.Module) -> ir.Module:
    """Return a module after a round trip through HLO, with its `sdy` shardings as before.

    Args:
      module: an `ir.Module` as JAX lowers it, with `sdy` shardings. It is not changed.

    Raises:
      InvalidInput: the module has no mesh, or HLO has no form of it, as for dynamic shapes.
    """
    meshes = _meshes(module)
    if not meshes:
        raise InvalidInput("the lowered program has no mesh, so nothing in it is sharded")
    with without_shardings(module.operation) as signature:
        text = text_of(module)
    try:
        computation = hlo_conversion.to_hlo(text)
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise InvalidInput(f"the lowered program has no HLO form: {reason}") from None
    written = hlo_conversion.to_stablehlo(computation)
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        copy = ir.Module.parse(written)
        restore_shardings(copy, meshes)
        add_shardings(copy.operation, signature)
    return copy


def _meshes(module: ir.Module) -> dict[str, str]:
    meshes = symbols(module.operation, "sdy.mesh")
    return {name: str(operation.attributes["mesh"]) for name, operation in meshes.items()}


def restore_shardings(module: ir.Module, meshes: dict[str, str]) -> None:
    """Put the meshes and the shardings back, which HLO carries as text in frontend attributes."""
    if _FRONTEND in module.operation.attributes:
        del module.operation.attributes[_FRONTEND]
    # Collectives of a `shard_map` can name a mesh, which HLO then keeps (JAX 0.12).
    kept = _meshes(module)
    with ir.InsertionPoint.at_block_begin(module.body):
        for name, written in meshes.items():
            if kept.get(name) != written:
                sdy.MeshOp(name, sdy.MeshAttr(ir.Attribute.parse(written)))
    for function in symbols(module.operation, "func.func").values():
        _restore_function(function)
    restore_manual(module)


def _restore_function(function: ir.Operation) -> None:
    if "arg_attrs" in function.attributes:
        listed = signature_attributes(function, "arg_attrs")
        for attributes in listed:
            sharding = _sharding(attributes.pop(_FRONTEND, None))
            attributes.pop("mhlo.sharding", None)
            if sharding is not None:
                attributes[SHARDING] = sharding
        set_signature_attributes(function, "arg_attrs", listed)
    _flatten_calls(function)
    calls: list[Any] = []
    for operation in (*operations(function, inner_first=True), function):
        if operation.name == "stablehlo.custom_call":
            calls.append(operation)
        if _FRONTEND in operation.attributes:
            named = ir.DictAttr(operation.attributes[_FRONTEND])
            if _RULE in named:
                operation.attributes["sdy.sharding_rule"] = parsed_attribute(named[_RULE])
        if operation.name != "stablehlo.custom_call" and _FRONTEND in operation.attributes:
            written = ir.DictAttr(operation.attributes[_FRONTEND])
            sharding = _sharding(written)
            del operation.attributes[_FRONTEND]
            if EXPECTED_ROWS in written:
                stated = {EXPECTED_ROWS: written[EXPECTED_ROWS]}
                operation.attributes[_FRONTEND] = ir.DictAttr.get(stated)
            if sharding is not None and operation.name != "func.func":
                operation.attributes[SHARDING] = sharding
    results: dict[int, Any] = {}
    for call in calls:
        _restore_call(call, results)
    if results:
        listed = [{} for _ in function_type(function).results]
        for number, sharding in results.items():
            listed[number][SHARDING] = sharding
        set_signature_attributes(function, "res_attrs", listed)


def _flatten_calls(function: ir.Operation) -> None:
    """Give custom calls several results instead of a tuple, which Shardy refuses."""
    ops = operations(function, inner_first=True)
    for call in [operation for operation in ops if operation.name == "stablehlo.custom_call"]:
        if len(call.results) != 1 or not str(call.results[0].type).startswith("tuple<"):
            continue
        kinds = ir.TupleType(call.results[0].type)
        types = [kinds.get_type(number) for number in range(kinds.num_types)]
        kept = {
            name: call.attributes[name]
            for name in call.attributes
            if name not in ("result_layout", "result_layouts", "operand_layouts", "xla_shape")
        }
        if any(str(kind).startswith("tuple<") for kind in types):
            continue
        flat = ir.Operation.create(
            call.name,
            results=types,
            operands=list(call.operands),
            attributes=kept,
            loc=call.location,
            ip=ir.InsertionPoint(call),
        )
        for use in list(call.results[0].uses):
            element = use.owner
            if element.name == "stablehlo.get_tuple_element":
                number = ir.IntegerAttr(element.attributes["index"]).value
                element.results[0].replace_all_uses_with(flat.results[number])
                element.erase()
        if not _is_used(call.results[0]):
            call.erase()


def _restore_call(call: ir.Operation, results: dict[int, Any]) -> None:
    """Replace the custom call that HLO has for a sharding constraint, or for the sharding of a result."""
    target = ir.StringAttr(call.attributes["call_target_name"]).value
    if target == MARK:
        # HLO gives it an empty tuple as its result, which Shardy refuses.
        with ir.InsertionPoint(call), call.location:
            text = ir.StringAttr(call.attributes["backend_config"]).value
            mark_value(call.operands[0], text)
        call.erase()
        return
    if target not in (_CONSTRAINT, _RESULT) or _FRONTEND not in call.attributes:
        return
    per_value = _sharding(call.attributes[_FRONTEND])
    if per_value is None:
        return
    sharding = sdy.TensorShardingPerValueAttr(per_value).shardings[0]
    value = call.operands[0]
    if target == _CONSTRAINT:
        with ir.InsertionPoint(call), call.location:
            value = sdy.ShardingConstraintOp(value, sharding).result
    else:
        for use in call.results[0].uses:
            if use.owner.name == "func.return":
                results[use.operand_number] = sharding
    call.results[0].replace_all_uses_with(value)
    call.erase()


def _sharding(frontend: ir.Attribute | None) -> ir.Attribute | None:
    if frontend is None or _IN_FRONTEND not in (named := ir.DictAttr(frontend)):
        return None
    return parsed_attribute(named[_IN_FRONTEND])


def parsed_attribute(text: ir.Attribute) -> ir.Attribute:
    """Return an attribute that a StringAttr has as text. Some front ends escape its quotes twice."""
    return ir.Attribute.parse(ir.StringAttr(text).value.replace('\\"', '"'))


def remove_dead_code(operation: ir.Operation) -> None:
    """Remove operations whose results nothing uses, such as the forward pass of an initialization."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in reversed([view.operation for view in block.operations]):
                if inner.regions:
                    remove_dead_code(inner)
                dialect = inner.name.partition(".")[0]
                removable = dialect in ("stablehlo", "sdy", "chlo") and inner.name not in _EFFECTS
                if removable and inner.results and not any(map(_is_used, inner.results)):
                    inner.erase()


def _is_used(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None
