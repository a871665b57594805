"""Shardy's passes, run in this process on a module that JAX lowered.

The passes come with jaxlib. They need no devices: a mesh of names and sizes is enough.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.mlir import ir, passmanager
from jax.extend.mlir.dialects import sdy

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Spec
from inspector.producers.propagation.history import History, erase_marks
from inspector.producers.propagation.numbers import give_numbers
from inspector.producers.propagation.origins import (
    Constraint,
    LogicalAxes,
    constraints_of,
    note_axes,
)
from inspector.producers.propagation.outlined import close_signature, outline, restore
from inspector.producers.propagation.refusals import refusals
from inspector.producers.propagation.shardings import (
    MANUAL,
    SHARDING,
    axes_of_dimensions,
    closed_dimensions,
    spec_of,
    tensor_sharding,
)
from inspector.producers.propagation.walk import (
    function_type,
    main_function,
    operations,
    set_signature_attributes,
    signature_attributes,
    symbols,
)

# The options with which passes note the source of each mesh axis, and the steps of its propagation.
_NOTES = ("debug-sharding-origins", "debug-propagation-edge-sharding")


@dataclass(frozen=True)
class Propagated:
    """A module after propagation.

    Attributes:
      given: the module before propagation, with the numbers of its operations.
      module: the module; every value has an `sdy.sharding`.
      constraints: each sharding constraint, by the name that origins give it.
      history: the module with its constraints, and with the notes about origins, if these are recorded.
    """

    given: Any
    module: Any
    constraints: Mapping[str, Constraint]
    history: History


def propagate(module: Any, origins: bool = True) -> Propagated:
    """Run propagation.

    Args:
      module: an `ir.Module` with `sdy.sharding` attributes. It is not changed.
      origins: record where shardings come from. Shardy's debug option for it ends the process for some
        programs that draw random numbers, and for a full `shard_map` in a loop, which is refused.

    Raises:
      InvalidInput: Shardy refuses the module; the sentence has its own words. Or it cannot record origins.
    """
    propagation, export = _pipelines(origins)
    with (
        module.context,
        ir.Location.unknown(),
        refusals("Shardy cannot propagate shardings through this program"),
    ):
        copy = module.operation.clone()
        inline_calls(copy)
        give_numbers(copy)
        given = copy.clone()
        if origins and _maps_in_a_loop(copy):
            raise InvalidInput("Shardy cannot record origins of a shard_map inside a loop")
        if not origins:
            # The verifier refuses Shardy's own notes about loops: `operand-1` of an edge with one operand.
            copy.verify()
        outlined = outline(copy, origins)
        _run(propagation, copy)
        if outlined is not None:
            restore(outlined)
        ops = operations(copy)
        constraints = constraints_of(ops)
        history = History(copy)
        erase_marks(ops)
        if outlined is not None:
            close_signature(copy)
        _run(export, copy)
        copy.verify()
    return Propagated(given, copy, constraints, history)


def _run(pipeline: str, module: Any) -> None:
    manager = passmanager.PassManager.parse(pipeline)
    manager.enable_verifier(False)  # after each pass, which takes longer than most passes
    manager.run(module)


def _maps_in_a_loop(module: Any) -> bool:
    """Return whether a loop contains a `shard_map`."""
    loops = [operation for operation in operations(module) if operation.name == "stablehlo.while"]
    return any(inner.name == MANUAL for loop in loops for inner in operations(loop))


def inline_calls(module: Any) -> None:
    """Put the body of every called function in the place of its calls, as XLA does before propagation.

    Functions that JAX shares between calls can then be sharded differently at each call. They are removed.
    """
    functions = symbols(module, "func.func")
    if len(functions) == 1:  # a template, which is inlined already
        return
    done: set[str] = set()

    def inline_into(name: str) -> None:
        if name in done:
            return
        done.add(name)
        ops = operations(functions[name], inner_first=True)
        for call in [operation for operation in ops if operation.name == "func.call"]:
            callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            inline_into(callee)
            _inline(call, functions[callee])

    inline_into("main")
    _run("builtin.module(symbol-dce)", module)


def _inline(call: Any, function: Any) -> None:
    """Replace one call by the operations of the function."""
    block = function.regions[0].blocks[0]
    values = dict(zip(block.arguments, call.operands, strict=True))
    for view in block.operations:
        operation = view.operation
        if operation.name == "func.return":
            for result, value in zip(call.results, operation.operands, strict=True):
                result.replace_all_uses_with(values[value])
            break
        copy = operation.clone(ip=ir.InsertionPoint(call)).operation
        redirect(copy, values, call.location)
        values.update(zip(operation.results, copy.results, strict=True))
    call.erase()


def redirect(operation: Any, values: Mapping[Any, Any], caller: Any) -> None:
    """Let a copied operation use the values of its new place, and note the call in its location."""
    operation.location = ir.Location.callsite(operation.location, [caller])
    for number, value in enumerate(operation.operands):
        if value in values:
            operation.operands[number] = values[value]
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                redirect(inner.operation, values, caller)


@functools.cache
def _pipelines(origins: bool) -> tuple[str, str]:
    """Return the pipeline that jaxlib itself runs, in two parts, with notes about origins if wanted.

    After the first, sharding constraints still have their names. The second ends before Shardy would make
    reshards explicit, which XLA's partitioner does on its own.

    The pipeline's own name takes no options, but its printed form names every pass with its options.
    """
    with ir.Context():
        printed = str(passmanager.PassManager.parse("builtin.module(sdy-propagation-pipeline)"))
    text = printed.removeprefix("builtin.module(").removesuffix(")")
    text = text.replace("sdy-save-module,", "").replace("module-dump-directory= ", "")
    # The canonicalizer would merge equal constraints.
    text = re.sub(r"canonicalize\{[^{}]*\{[^{}]*\}[^{}]*\},", "", text)
    for note in _NOTES if origins else ():  # also `sink-` of it, which moves the notes to values
        text = text.replace(f"{note}=false", f"{note}=true")
    before, _, _ = text.partition("func.func(sdy-insert-explicit-reshards{")
    propagation, constraint, export = before.partition(
        "func.func(sdy-sharding-constraint-to-reshard)"
    )
    return (
        f"builtin.module({propagation.rstrip(',')})",
        f"builtin.module({constraint}{export.rstrip(',')})",
    )


def rewrite(
    module: Any,
    mesh: Mapping[str, int],
    mapping: Callable[[Spec], Spec],
    more: Mapping[str, Sequence[Callable[[Spec], Spec] | None]] | None = None,
) -> Any:
    """Return a copy of a module with another mesh and other shardings.

    Args:
      module: a module whose mesh axes are names to be replaced.
      mesh: size of each mesh axis, in order.
      mapping: maps the spec of an argument, a result or a sharding constraint from the module's names to mesh
        axes.
      more: for `arg_attrs` and `res_attrs` of `main`, a change of the spec of each argument or result that
        follows; None keeps it.
    """
    with module.context, ir.Location.unknown():
        copy = module.operation.clone()
        # Many values of a module have the same sharding.
        mapped = functools.cache(functools.partial(_mapped_attribute, mapping=mapping))
        for operation in symbols(copy, "sdy.mesh").values():
            axes = [sdy.MeshAxisAttr.get(name, size) for name, size in mesh.items()]
            operation.attributes["mesh"] = sdy.MeshAttr.get(axes)
            if "stablehlo.mesh" in operation.attributes:
                del operation.attributes["stablehlo.mesh"]
        for name, function in symbols(copy, "func.func").items():
            for key in ("arg_attrs", "res_attrs"):
                changes = more[key] if more and name == "main" else ()
                _map_attributes(function, key, mapped, changes)
        for operation in operations(copy):
            attributes = operation.attributes
            if operation.name == "sdy.sharding_constraint":
                note_axes(operation, logical_axes(sdy.TensorShardingAttr(attributes["sharding"])))
            for key in (SHARDING, "sharding"):
                if key in attributes:
                    attributes[key] = mapped(attributes[key])
        return copy


def names_of_arguments(
    module: Any, inputs: Sequence[str], outputs: Sequence[str]
) -> Iterator[tuple[str, LogicalAxes]]:
    """Yield each path of an argument or result of `main` with its logical axes."""
    main = main_function(module.operation)
    for key, paths in (("arg_attrs", inputs), ("res_attrs", outputs)):
        listed = signature_attributes(main, key, len(paths))
        for path, named in zip(paths, listed, strict=True):
            if SHARDING in named:
                yield path, logical_axes(sdy.TensorShardingAttr(named[SHARDING]))


def shapes_of_main(module: Any) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the shapes of the arguments and of the results of `main`."""
    kind = function_type(main_function(module.operation))

    def shapes(types: Sequence[Any]) -> list[tuple[int, ...]]:
        return [tuple(tensor.shape) for tensor in map(ir.RankedTensorType, types)]

    return shapes(kind.inputs), shapes(kind.results)


def logical_axes(sharding: Any) -> LogicalAxes:
    """Return the logical axis of each dimension, which the module has as a mesh axis."""
    return tuple(axes[0][0] if axes else None for axes in axes_of_dimensions(sharding))


def _map_attributes(
    function: Any,
    key: str,
    mapped: Callable[[Any], Any],
    more: Sequence[Callable[[Spec], Spec] | None] = (),
) -> None:
    """Map the sharding attributes of a function's arguments or results, and then change them with `more`."""
    if key not in function.attributes:
        return
    listed = signature_attributes(function, key)
    for named, change in itertools.zip_longest(listed, more):
        if SHARDING in named:
            named[SHARDING] = mapped(named[SHARDING])
            if change is not None:
                named[SHARDING] = _mapped_attribute(named[SHARDING], change)
    set_signature_attributes(function, key, listed)


def _mapped_attribute(attribute: Any, mapping: Callable[[Spec], Spec]) -> Any:
    if sdy.TensorShardingAttr.isinstance(attribute):
        return _mapped(sdy.TensorShardingAttr(attribute), mapping)
    if sdy.TensorShardingPerValueAttr.isinstance(attribute):
        arrays = sdy.TensorShardingPerValueAttr(attribute).shardings
        return sdy.TensorShardingPerValueAttr.get(
            [_mapped(sdy.TensorShardingAttr(sharding), mapping) for sharding in arrays]
        )
    return attribute


def _mapped(sharding: Any, mapping: Callable[[Spec], Spec]) -> Any:
    axes = axes_of_dimensions(sharding)
    if any(part is not None for dimension in axes for _, part in dimension):
        raise InvalidInput("it shards over a part of a mesh axis, which other meshes lack")
    spec = mapping(spec_of(axes))
    whole = [tuple((name, None) for name in axes or ()) for axes in spec]
    return tensor_sharding(sharding.mesh_or_ref, whole, closed_dimensions(sharding))
