"""Shardy's passes, run in this process on a module that JAX lowered.

The passes come with jaxlib. They need no devices: a mesh of names and sizes is enough.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import sdy

from inspector.core.errors import InvalidInput
from inspector.producers.propagation import partitioner
from inspector.producers.propagation.origins import (
    Constraint,
    LogicalAxes,
    constraints_of,
    note_axes,
)
from inspector.producers.propagation.shardings import SHARDING, axes_of_dimensions

Spec = tuple[tuple[str, ...] | None, ...]

# Debug information that propagation can record, in the order in which it is given up where a pass of this
# jaxlib fails with it: which steps led to a sharding, and which input or constraint a mesh axis came from.
_DEBUG = (
    ("debug-propagation-edge-sharding", "debug-sharding-origins"),
    ("debug-sharding-origins",),
    (),
)


@dataclass(frozen=True)
class Propagated:
    """A module after propagation, with every transfer between devices explicit.

    Attributes:
      module: the module; every value has an `sdy.sharding`.
      origins: whether values have `sdy.sharding_origins`.
      edges: whether values have `sdy.propagation_edges`.
      constraints: each sharding constraint, by the name that origins give it.
    """

    module: Any
    origins: bool
    edges: bool
    constraints: Mapping[str, Constraint]


def propagate(module: Any, origins: bool = True) -> Propagated:
    """Run propagation, and make the transfers between devices explicit.

    Args:
      module: an `ir.Module` with `sdy.sharding` attributes. It is not changed.
      origins: record where shardings come from. Shardy's debug option for it ends the process for some
        programs that draw random numbers.

    Raises:
      InvalidInput: Shardy refuses the module; the sentence has its own words.
    """
    failure = ""
    for debug in _DEBUG if origins else _DEBUG[-1:]:
        with module.context:
            copy = module.operation.clone()
            try:
                with ir.Location.unknown():
                    inline_calls(copy)
                    hoist_loop_invariants(copy)
                propagation, export, after = _pipelines(debug)
                passmanager.PassManager.parse(propagation).run(copy)
                constraints = constraints_of(copy)
                passmanager.PassManager.parse(export).run(copy)
                with ir.Location.unknown():
                    partitioner.insert_reshards(copy)
                passmanager.PassManager.parse(after).run(copy)
            except ir.MLIRError as error:
                failure = failure or _reason(str(error))
                continue
        return Propagated(
            copy,
            "debug-sharding-origins" in debug,
            "debug-propagation-edge-sharding" in debug,
            constraints,
        )
    raise InvalidInput(f"Shardy cannot propagate shardings through this program: {failure}")


def inline_calls(module: Any) -> None:
    """Put the body of every called function in the place of its calls, as XLA does before propagation.

    Functions that JAX shares between calls can then be sharded differently at each call.
    """
    functions = {
        ir.StringAttr(each.attributes["sym_name"]).value: each.operation
        for each in module.regions[0].blocks[0].operations
        if each.operation.name == "func.func"
    }
    done: set[str] = set()

    def inline_into(name: str) -> None:
        if name in done:
            return
        done.add(name)
        for call in _calls(functions[name]):
            callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            inline_into(callee)
            _inline(call, functions[callee])

    inline_into("main")


def hoist_loop_invariants(module: Any) -> None:
    """Let loops use values that they do not change from outside, as XLA does before propagation.

    JAX passes the parameters of scanned layers through the loop. Used from outside, a value has one sharding
    before, in and after the loop.
    """

    def visit(loop: Any) -> Any:
        if loop.name == "stablehlo.while":
            condition, body = (region.blocks[0] for region in loop.regions)
            returned = body.operations[len(body.operations) - 1].operation.operands
            for number, start in enumerate(loop.operands):
                argument = body.arguments[number]
                if returned[number] == argument:
                    argument.replace_all_uses_with(start)
                    condition.arguments[number].replace_all_uses_with(start)
                    loop.results[number].replace_all_uses_with(start)
                    # The loop still carries the argument, unused.
                    body.operations[len(body.operations) - 1].operation.operands[number] = argument
        return ir.WalkResult.ADVANCE

    module.walk(visit)


def _calls(operation: Any) -> list[Any]:
    found = []

    def visit(inner: Any) -> Any:
        if inner.name == "func.call":
            found.append(inner)
        return ir.WalkResult.ADVANCE

    operation.walk(visit)
    return found


def _inline(call: Any, function: Any) -> None:
    """Replace one call by the operations of the function."""
    block = function.regions[0].blocks[0]
    values = dict(zip(block.arguments, call.operands, strict=True))
    for each in block.operations:
        operation = each.operation
        if operation.name == "func.return":
            for result, value in zip(call.results, operation.operands, strict=True):
                result.replace_all_uses_with(values[value])
            break
        copy = operation.clone(ip=ir.InsertionPoint(call)).operation
        _redirect(copy, values, call.location)
        values.update(zip(operation.results, copy.results, strict=True))
    call.erase()


def _redirect(operation: Any, values: Mapping[Any, Any], caller: Any) -> None:
    """Let a copied operation use the values of its new place, and note the call in its location."""
    operation.location = ir.Location.callsite(operation.location, [caller])
    for number, value in enumerate(operation.operands):
        if value in values:
            operation.operands[number] = values[value]
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                _redirect(inner.operation, values, caller)


@functools.cache
def _pipelines(debug: Sequence[str]) -> tuple[str, str, str]:
    """Return the pipeline that jaxlib itself runs, with debug information, in three parts.

    After the first, sharding constraints still have their names. Before the third, reshards are inserted.

    The pipeline's own name takes no options, but its printed form names every pass with its options.
    """
    with ir.Context():
        printed = str(passmanager.PassManager.parse("builtin.module(sdy-propagation-pipeline)"))
    text = printed.removeprefix("builtin.module(").removesuffix(")")
    text = text.replace("sdy-save-module,", "").replace("module-dump-directory= ", "")
    # The printed options of the canonicalizer cannot be parsed again.
    text = re.sub(r"canonicalize\{[^{}]*\{[^{}]*\}[^{}]*\}", "canonicalize", text)
    for option in debug:
        text = text.replace(f"{option}=false", f"{option}=true")
        text = text.replace(f"sink-{option}=false", f"sink-{option}=true")
    before, _, after = text.partition("func.func(sdy-insert-explicit-reshards{")
    propagation, constraint, export = before.partition(
        "func.func(sdy-sharding-constraint-to-reshard)"
    )
    full = after.replace("enable-full-version=false", "enable-full-version=true")
    return (
        f"builtin.module(symbol-dce,{propagation.rstrip(',')})",
        f"builtin.module({constraint}{export.rstrip(',')})",
        f"builtin.module(func.func(sdy-insert-explicit-reshards{{{full},"
        "func.func(sdy-reshard-to-collectives))",
    )


def _reason(text: str) -> str:
    """Return the sentence of an MLIR error, without locations."""
    found = re.search(r"\)+: ('[^\n]{0,300}|[a-z][^\n]{0,300})", text)
    return (found[1] if found else text[:300]).strip()


def rewrite(module: Any, mesh: Mapping[str, int], mapping: Callable[[Spec], Spec]) -> Any:
    """Return a copy of a module with another mesh and other shardings.

    Args:
      module: a module whose mesh axes are names to be replaced.
      mesh: size of each mesh axis, in order.
      mapping: maps the spec of an argument, a result or a sharding constraint from the module's names to mesh
        axes.
    """
    with module.context, ir.Location.unknown():
        copy = module.operation.clone()
        for each in copy.regions[0].blocks[0].operations:
            operation = each.operation
            if operation.name == "sdy.mesh":
                axes = [sdy.MeshAxisAttr.get(name, size) for name, size in mesh.items()]
                operation.attributes["mesh"] = sdy.MeshAttr.get(axes)
                if "stablehlo.mesh" in operation.attributes:
                    del operation.attributes["stablehlo.mesh"]
            elif operation.name == "func.func":
                for key in ("arg_attrs", "res_attrs"):
                    _map_attributes(operation, key, mapping)

        def visit(inner: Any) -> Any:
            if inner.name == "sdy.sharding_constraint":
                note_axes(inner, logical_axes(sdy.TensorShardingAttr(inner.attributes["sharding"])))
            for key in (SHARDING, "sharding"):
                if key in inner.attributes:
                    inner.attributes[key] = _mapped_attribute(inner.attributes[key], mapping)
            return ir.WalkResult.ADVANCE

        copy.walk(visit)
        return copy


def names_of_arguments(
    module: Any, inputs: Sequence[str], outputs: Sequence[str]
) -> Iterator[tuple[str, LogicalAxes]]:
    """Yield each path of an argument or result of `main` with its logical axes."""
    for each in module.body.operations:
        if not _is_main(each.operation):
            continue
        for key, paths in (("arg_attrs", inputs), ("res_attrs", outputs)):
            if key not in each.attributes:
                continue
            for path, attribute in zip(paths, ir.ArrayAttr(each.attributes[key]), strict=True):
                named = ir.DictAttr(attribute)
                if SHARDING in named:
                    yield path, logical_axes(sdy.TensorShardingAttr(named[SHARDING]))


def _is_main(operation: Any) -> bool:
    if operation.name != "func.func":
        return False
    return bool(ir.StringAttr(operation.attributes["sym_name"]).value == "main")


def logical_axes(sharding: Any) -> LogicalAxes:
    """Return the names that stand where mesh axes would, one for each dimension."""
    return tuple(axes[0][0] if axes else None for axes in axes_of_dimensions(sharding))


def _map_attributes(function: Any, key: str, mapping: Callable[[Spec], Spec]) -> None:
    """Map the shardings of the arguments or results of a function."""
    if key not in function.attributes:
        return
    changed = []
    for each in ir.ArrayAttr(function.attributes[key]):
        named = {item.name: item.attr for item in ir.DictAttr(each)}
        if SHARDING in named:
            named[SHARDING] = _mapped_attribute(named[SHARDING], mapping)
        changed.append(ir.DictAttr.get(named))
    function.attributes[key] = ir.ArrayAttr.get(changed)


def _mapped_attribute(attribute: Any, mapping: Callable[[Spec], Spec]) -> Any:
    if sdy.TensorShardingAttr.isinstance(attribute):
        return _mapped(sdy.TensorShardingAttr(attribute), mapping)
    if sdy.TensorShardingPerValueAttr.isinstance(attribute):
        found = sdy.TensorShardingPerValueAttr(attribute).shardings
        return sdy.TensorShardingPerValueAttr.get(
            [_mapped(sdy.TensorShardingAttr(each), mapping) for each in found]
        )
    return attribute


def _mapped(found: Any, mapping: Callable[[Spec], Spec]) -> Any:
    dimensions = [sdy.DimensionShardingAttr(each) for each in found.dimension_shardings]
    spec = tuple(
        tuple(sdy.AxisRefAttr(axis).name for axis in each.axes) or None for each in dimensions
    )
    mapped = mapping(spec)
    return sdy.TensorShardingAttr.get(
        found.mesh_or_ref,
        [
            sdy.DimensionShardingAttr.get(
                [sdy.AxisRefAttr.get(name) for name in axes or ()], is_closed=each.is_closed
            )
            for axes, each in zip(mapped, dimensions, strict=True)
        ],
    )
