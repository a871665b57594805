"""A lowered module in the form in which XLA propagates shardings.

A compile first turns StableHLO into HLO and back. This splits degenerate broadcasts, legalizes CHLO and
renames nothing, but Shardy breaks ties by the order and form of operations. Propagating on the same form
gives the same shardings as a compile.
"""

from __future__ import annotations

from typing import Any

from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from inspector.producers.propagation.shardings import SHARDING

_FRONTEND = "mhlo.frontend_attributes"
_IN_FRONTEND = "xla.sdy.sharding"
_CONSTRAINT = "Sharding"
_RESULT = "xla.sdy.FuncResultSharding"


def xla_form(module: Any) -> Any:
    """Return a module after a round trip through HLO, with its `sdy` shardings as before.

    Args:
      module: an `ir.Module` as JAX lowers it, with `sdy` shardings. It is not changed.
    """
    mesh = next(
        sdy.MeshAttr(each.attributes["mesh"])
        for each in module.body.operations
        if each.operation.name == "sdy.mesh"
    )
    axes = {each.name: each.size for each in map(sdy.MeshAxisAttr, mesh.axes)}
    text = module.operation.get_asm(enable_debug_info=True)
    computation = _jax.mlir.mlir_module_to_xla_computation(
        text, use_tuple_args=False, return_tuple=False
    )
    written = _jax.mlir.xla_computation_to_mlir_module(computation)
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        found = ir.Module.parse(written)
        _restore(found, axes)
    return found


def _restore(module: Any, axes: dict[str, int]) -> None:
    """Put the mesh and the shardings back, which HLO carries as text in frontend attributes."""
    if _FRONTEND in module.operation.attributes:
        del module.operation.attributes[_FRONTEND]
    with ir.InsertionPoint.at_block_begin(module.body):
        listed = [sdy.MeshAxisAttr.get(name, size) for name, size in axes.items()]
        sdy.MeshOp("mesh", sdy.MeshAttr.get(listed))
    for each in module.body.operations:
        if each.operation.name == "func.func":
            _restore_function(each.operation)


def _restore_function(function: Any) -> None:
    if "arg_attrs" in function.attributes:
        listed = ir.ArrayAttr(function.attributes["arg_attrs"])
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([_restored(each) for each in listed])
    calls: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name == "stablehlo.custom_call":
            calls.append(operation)
        elif _FRONTEND in operation.attributes:
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


def _restore_call(call: Any, results: dict[int, Any]) -> None:
    """Replace the custom call that HLO has for a sharding constraint, or for the sharding of a result."""
    target = ir.StringAttr(call.attributes["call_target_name"]).value
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
    named = {each.name: each.attr for each in ir.DictAttr(argument)}
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
    return ir.Attribute.parse(ir.StringAttr(named[_IN_FRONTEND]).value)
