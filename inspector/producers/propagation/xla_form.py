"""A lowered module in the form in which XLA propagates shardings.

A compile first turns StableHLO into HLO and back. This splits degenerate broadcasts, legalizes CHLO and
renames nothing, but Shardy breaks ties by the order and form of operations. Propagating on the same form
gives the same shardings as a compile.
"""

from __future__ import annotations

from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy
from jax.interpreters import mlir as jax_mlir

from inspector.core.errors import InvalidInput
from inspector.model.built_in.watching import MARK, mark_value
from inspector.producers.jax_internals import hlo_conversion
from inspector.producers.propagation.manual import restore_manual
from inspector.producers.propagation.outlined import add_shardings, without_shardings
from inspector.producers.propagation.shardings import SHARDING
from inspector.producers.propagation.walk import named_attributes, text_of

_FRONTEND = "mhlo.frontend_attributes"
_IN_FRONTEND = "xla.sdy.sharding"
_RULE = "xla.sdy.sharding_rule"
_CONSTRAINT = "Sharding"
_RESULT = "xla.sdy.FuncResultSharding"
# Operations that must stay even if nothing uses their results.
_EFFECTS = frozenset({
    "stablehlo.custom_call", "stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv",
})  # fmt: skip


def xla_form(module: Any) -> Any:
    """Return a module after a round trip through HLO, with its `sdy` shardings as before.

    Args:
      module: an `ir.Module` as JAX lowers it, with `sdy` shardings. It is not changed.

    Raises:
      InvalidInput: the module has no mesh, or HLO has no form of it, as for dynamic shapes.
    """
    meshes = {
        ir.StringAttr(operation.attributes["sym_name"]).value: str(operation.attributes["mesh"])
        for operation in module.body.operations
        if operation.operation.name == "sdy.mesh"
    }
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
        found = ir.Module.parse(written)
        restore_shardings(found, meshes)
        add_shardings(found.operation, signature)
    return found


def restore_shardings(module: Any, meshes: dict[str, str]) -> None:
    """Put the meshes and the shardings back, which HLO carries as text in frontend attributes."""
    if _FRONTEND in module.operation.attributes:
        del module.operation.attributes[_FRONTEND]
    # Collectives of a `shard_map` can name a mesh, which HLO then keeps (JAX 0.12).
    kept = {
        ir.StringAttr(operation.attributes["sym_name"]).value: str(operation.attributes["mesh"])
        for operation in module.body.operations
        if operation.operation.name == "sdy.mesh"
    }
    with ir.InsertionPoint.at_block_begin(module.body):
        for name, written in meshes.items():
            if kept.get(name) != written:
                sdy.MeshOp(name, sdy.MeshAttr(ir.Attribute.parse(written)))
    for operation in module.body.operations:
        if operation.operation.name == "func.func":
            _restore_function(operation.operation)
    restore_manual(module)


def _restore_function(function: Any) -> None:
    if "arg_attrs" in function.attributes:
        listed = ir.ArrayAttr(function.attributes["arg_attrs"])
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([_restored(each) for each in listed])
    _flatten_calls(function)
    calls: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name == "stablehlo.custom_call":
            calls.append(operation)
        if _FRONTEND in operation.attributes:
            named = ir.DictAttr(operation.attributes[_FRONTEND])
            if _RULE in named:
                operation.attributes["sdy.sharding_rule"] = parsed_attribute(named[_RULE])
        if operation.name != "stablehlo.custom_call" and _FRONTEND in operation.attributes:
            found = _sharding(operation.attributes[_FRONTEND])
            del operation.attributes[_FRONTEND]
            if found is not None and operation.name != "func.func":
                operation.attributes[SHARDING] = found
        return ir.WalkResult.ADVANCE

    function.walk(visit)
    results: dict[int, Any] = {}
    for call in calls:
        _restore_call(call, results)
    if results:
        count = len(
            ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results
        )
        function.attributes["res_attrs"] = ir.ArrayAttr.get(
            [
                ir.DictAttr.get({SHARDING: results[number]} if number in results else {})
                for number in range(count)
            ]
        )


def _flatten_calls(function: Any) -> None:
    """Give custom calls several results instead of a tuple, which Shardy refuses."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        is_call = operation.name == "stablehlo.custom_call" and len(operation.results) == 1
        if is_call and str(operation.results[0].type).startswith("tuple<"):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    function.walk(visit)
    for call in found:
        kinds = ir.TupleType(call.results[0].type)
        types = [kinds.get_type(number) for number in range(kinds.num_types)]
        kept = {
            name: call.attributes[name]
            for name in call.attributes
            if name not in ("result_layout", "result_layouts", "operand_layouts", "xla_shape")
        }
        if any(str(each).startswith("tuple<") for each in types):
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
        if next(iter(call.results[0].uses), None) is None:
            call.erase()


def _restore_call(call: Any, results: dict[int, Any]) -> None:
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


def _restored(argument: Any) -> Any:
    named = named_attributes(argument)
    found = _sharding(named.pop(_FRONTEND, None))
    named.pop("mhlo.sharding", None)
    if found is not None:
        named[SHARDING] = found
    return ir.DictAttr.get(named)


def _sharding(frontend: Any) -> Any:
    if frontend is None:
        return None
    named = ir.DictAttr(frontend)
    if _IN_FRONTEND not in named:
        return None
    return parsed_attribute(named[_IN_FRONTEND])


def parsed_attribute(text: Any) -> Any:
    """Return an attribute that a StringAttr has as text. Some front ends escape its quotes twice."""
    return ir.Attribute.parse(ir.StringAttr(text).value.replace('\\"', '"'))


def remove_dead_code(operation: Any) -> None:
    """Remove operations whose results nothing uses, such as the forward pass of an initialization."""
    for region in operation.regions:
        for block in region.blocks:
            for each in reversed([one.operation for one in block.operations]):
                if each.regions:
                    remove_dead_code(each)
                dialect = each.name.partition(".")[0]
                removable = dialect in ("stablehlo", "sdy", "chlo") and each.name not in _EFFECTS
                if (
                    removable
                    and each.results
                    and not any(_is_used(result) for result in each.results)
                ):
                    each.erase()


def _is_used(value: Any) -> bool:
    return next(iter(value.uses), None) is not None
