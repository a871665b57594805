"""Shardy's passes, run in this process on a module that JAX lowered.

The passes come with jaxlib. They need no devices: a mesh of names and sizes is enough.
"""

import contextlib
import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.mlir import ir, passmanager
from jax.extend.mlir.dialects import sdy

from inspector.jax_private.shardy_pipeline import pipelines
from inspector.partition.history import History, erase_marks
from inspector.partition.origins import Constraint, LogicalAxes, constraints_of
from inspector.partition.outlined import close_signature, outline, restore
from inspector.partition.shardings import MANUAL, SHARDING, axes_of_dimensions
from inspector.text.errors import InvalidInput
from inspector.tracing.mlir.walk import (
    function_type,
    main_function,
    operations,
    signature_attributes,
    symbols,
)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Collect no garbage in the `with` block. Cycles wait until its end.

    Collecting the many objects of a module and of traced models takes 3% to 5% of the time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


_MOST = 300  # characters


@contextlib.contextmanager
def refusals(sentence: str) -> Iterator[None]:
    """Raise InvalidInput for an MLIR error: the sentence, a colon, and the reason."""
    try:
        yield
    except ir.MLIRError as error:
        raise InvalidInput(f"{sentence}: {reason(str(error))}") from None


def reason(text: str) -> str:
    """Return the sentence of an MLIR error with the operation, without its location.

    >>> reason('Unable to parse:\\nerror: "1": unknown axis: "x"\\n note: see current operation: "f"')
    'unknown axis: "x" (f)'
    """
    match = re.search(r"error: (?:loc\()?.*?\)*: ([^:\n\"][^\n]{0,300})", text)
    words = match[1] if match else text.partition("note: ")[0][:_MOST]
    operation = re.search(r'see current operation: (?:%[^=]*= )?\s*"?([\w.]+)', text)
    target = re.search(r'call_target_name = "([^"]{1,100})"', text)
    named = " ".join(name[1] for name in (operation, target) if name and name[1] not in words)
    return f"{' '.join(words.split())}{f' ({named})' if named else ''}"


@dataclass(frozen=True)
class Propagated:
    """A module after propagation.

    Attributes:
      module: the module; every value has an `sdy.sharding`. It has the sharding constraints and the notes
        about origins, if these are recorded, unless it is exported.
      constraints: each sharding constraint, by the name that origins give it.
      history: the module with its constraints, and with the notes about origins, if these are recorded.
    """

    module: ir.Operation
    constraints: Mapping[str, Constraint]
    history: History


def propagate(module: ir.Module | ir.Operation, origins: bool = True, export: bool = False) -> Propagated:
    """Run propagation.

    Args:
      module: a module with `sdy.sharding` attributes. It is not changed.
      origins: record where shardings come from. Shardy's debug option for it ends the process for some
        programs that draw random numbers, and for a full `shard_map` in a loop, which is refused.
      export: also run the passes after propagation, which replace sharding constraints.

    Raises:
      InvalidInput: Shardy refuses the module; the sentence has its own words. Or it cannot record origins.
    """
    propagation, after = pipelines(origins)
    with (
        module.context,
        ir.Location.unknown(),
        refusals("Shardy cannot propagate shardings through this program"),
    ):
        copy = module.operation.clone()
        inline_calls(copy)
        if origins and _maps_in_a_loop(copy):
            raise InvalidInput("Shardy cannot record origins of a shard_map inside a loop")
        if not origins:
            # The verifier refuses Shardy's own notes about loops: `operand-1` of an edge with one operand.
            copy.verify()
        outlined = outline(copy, origins)
        run_passes(propagation, copy)
        if outlined is not None:
            restore(outlined)
        constraints = constraints_of(operations(copy))
        history = History(copy)
        if export:
            copy = copy.clone()
            erase_marks(operations(copy))
            if outlined is not None:
                close_signature(copy)
            run_passes(after, copy)
            copy.verify()
    return Propagated(copy, constraints, history)


def run_passes(pipeline: str, module: ir.Operation) -> None:
    """Run passes on a module."""
    manager = passmanager.PassManager.parse(pipeline)
    manager.enable_verifier(False)  # after each pass, which takes longer than most passes
    manager.run(module)


def _maps_in_a_loop(module: ir.Operation) -> bool:
    """Return whether a loop contains a `shard_map`."""
    loops = [operation for operation in operations(module) if operation.name == "stablehlo.while"]
    return any(inner.name == MANUAL for loop in loops for inner in operations(loop))


def inline_calls(module: ir.Operation) -> None:
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
    run_passes("builtin.module(symbol-dce)", module)


def _inline(call: ir.Operation, function: ir.Operation) -> None:
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


def redirect(operation: ir.Operation, values: Mapping[Any, Any], caller: ir.Location) -> None:
    """Let a copied operation use the values of its new place, and note the call in its location."""
    operation.location = ir.Location.callsite(operation.location, [caller])
    for number, value in enumerate(operation.operands):
        if value in values:
            operation.operands[number] = values[value]
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                redirect(inner.operation, values, caller)


def names_of_arguments(
    module: ir.Module, inputs: Sequence[str], outputs: Sequence[str]
) -> Iterator[tuple[str, LogicalAxes]]:
    """Yield each path of an argument or result of `main` with its logical axes."""
    main = main_function(module.operation)
    for key, paths in (("arg_attrs", inputs), ("res_attrs", outputs)):
        listed = signature_attributes(main, key, len(paths))
        for path, named in zip(paths, listed, strict=True):
            if SHARDING in named:
                yield path, logical_axes(sdy.TensorShardingAttr(named[SHARDING]))


def shapes_of_main(module: ir.Module) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the shapes of the arguments and of the results of `main`."""
    kind = function_type(main_function(module.operation))

    def shapes(types: Sequence[Any]) -> list[tuple[int, ...]]:
        return [tuple(tensor.shape) for tensor in map(ir.RankedTensorType, types)]

    return shapes(kind.inputs), shapes(kind.results)


def logical_axes(sharding: sdy.TensorShardingAttr) -> LogicalAxes:
    """Return the logical axis of each dimension, which the module has as a mesh axis."""
    return tuple(axes[0][0] if axes else None for axes in axes_of_dimensions(sharding))
