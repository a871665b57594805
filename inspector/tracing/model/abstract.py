"""Trace a model with `jax.eval_shape`: shapes, dtypes and names of its arrays, without a compile."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import flax
import jax
import jaxlib
import optax
from cachetools import LRUCache, cached
from jax.sharding import AbstractMesh
from jax.stages import Traced

from inspector import layout as layouts
from inspector.layout import Layout
from inspector.layout.plan import state_key
from inspector.model import Model, PyTree
from inspector.records import typed_json
from inspector.records.job_report import JobReport
from inspector.records.snapshot import Group, Program
from inspector.sharding.abstract import AbstractArray, AbstractState
from inspector.sharding.rules import nnx
from inspector.text.errors import InvalidInput, shown
from inspector.tracing.leaves import (
    Leaf,
    all_leaves,
    dimension_axes,
    leaves_of,
    spec_of,
    structure_of,
    whole_names,
)
from inspector.tracing.model.build import (
    abstract_batch,
    abstract_key,
    abstract_outputs,
    argument_paths,
    axis_types,
    build_model,
    first_used,
    reading_rules,
    traced_under,
)
from inspector.tracing.model.describe import own_code
from inspector.tracing.model.placeholder_devices import TRACED_DEVICE
from inspector.tracing.model.sharding_errors import RefusedPrograms
from inspector.tracing.model.state_specs import Given, given_specs
from inspector.tracing.model.traceable import batch_function


def abstract(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: return the AbstractState of a layout in JSON as JSON. One device is enough."""
    report("trace")
    return typed_json.encode(abstract_state(layouts.from_json(payload["layout"])))


@cached(LRUCache(32), key=state_key)
def cached_state(layout: Layout) -> AbstractState:
    """Return `abstract_state`, from the cache if a layout with the same arrays was traced."""
    return abstract_state(layout)


def abstract_state(layout: Layout) -> AbstractState:
    """Return every array of the layout's model, traced under an abstract mesh if its names are mesh axes.

    Raises:
      InvalidInput: a user's model fails or does not follow the contract of `Model`.
    """
    model = build_model(layout)
    key = abstract_key()
    if layout.entry.own:
        return _own_state(layout, model, key)
    if model.names == "mesh":
        # Shapes do not depend on the types of the axes.
        context: contextlib.AbstractContextManager[Any] = jax.sharding.use_abstract_mesh(
            abstract_mesh(replace(layout, axis_types=()))
        )
    else:
        # Without rules, logical constraints do nothing, so one trace serves every mesh and rule.
        context = contextlib.nullcontext()
    with context:
        batch = jax.eval_shape(batch_function(model), key)
        state = jax.eval_shape(model.init, key, batch)
        # Inference uses the weights in the order of the train step, which takes longer to trace.
        traced = jax.jit(model.apply or next(iter(model.programs.values()))).trace(state, batch)
    output = None if model.apply is None else traced.out_info
    return _abstract_state(layout, model, (batch, state, output), traced)


def _abstract_state(
    layout: Layout, model: Model, arrays: PyTree, traced: Traced | None, refused: Sequence[Program] = ()
) -> AbstractState:
    """Return the arrays of a batch, a state and an output; those that could not be traced are None.

    traced: a program, whose code gives the order of weights and caches; None if JAX refuses all.
    """
    batch, state, _ = arrays
    leaves = [leaf for leaf in all_leaves(model, *arrays) if hasattr(leaf.value, "shape")]
    has_types = layout.entry.own and bool(layout.explicit_axes)
    records = [_array(leaf, has_types and leaf.names is None) for leaf in leaves]
    paths = tuple(argument_paths((("state", state), ("batch", batch))))
    weights = {record.path: record for record in records if record.group in ("params", "cache")}
    used = [] if traced is None else [p for p in first_used(traced.jaxpr, paths) if p in weights]
    in_order, moved = iter(used), {*used}
    ordered = (weights[next(in_order)] if record.path in moved else record for record in records)
    return AbstractState(model.names, tuple(ordered), versions(), tuple(refused))


def abstract_mesh(layout: Layout) -> AbstractMesh:
    """Return the layout's mesh without devices.

    JAX compares it with a mesh that the code of a user's model makes itself, of CPU devices. A built-in model
    can use what only CPUs, or only other devices have.
    """
    device = TRACED_DEVICE if layout.entry.own or layout.target == "cpu" else None
    return AbstractMesh(
        layout.mesh_shape, layout.axis_names, axis_types=axis_types(layout), abstract_device=device
    )


def _own_state(layout: Layout, model: Model, key: jax.ShapeDtypeStruct) -> AbstractState:
    """Return the arrays of a user's model, traced with its mesh and its rules as in a run."""
    refused = RefusedPrograms(layout)
    state = stepped = output = traced = None
    mesh = abstract_mesh(layout)
    given: dict[str, Given | None] = {}
    with traced_under(layout, mesh), reading_rules(layout):
        with own_code(layout.model):
            batch = abstract_batch(model, layout, mesh)
        with own_code(layout.model), refused.keeping("init"):
            state = abstract_outputs(layout, model.init, key, batch)
            # Checked before the step is traced, because errors of the step are harder to understand.
            for leaf in leaves_of(state):
                _refuse_other_names(_array(leaf), layout)
            # A new function object makes JAX trace again.
            again = jax.eval_shape(lambda *arguments: model.init(*arguments), key, batch)
        if state is not None:
            given = given_specs(state, model.state_specs, layout.state_specs, mesh, layout.model)
            if model.step is not None:
                with own_code(layout.model), refused.keeping("train_step"):
                    traced = jax.jit(model.step).trace(state, batch)
                    stepped = traced.out_info
            if model.apply is not None:
                with own_code(layout.model), refused.keeping("apply"):
                    output = abstract_outputs(layout, model.apply, state, batch)
                    traced = traced or jax.jit(model.apply).trace(state, batch)
            for name, function in model.programs.items():
                with own_code(layout.model), refused.keeping(name):
                    other = jax.jit(function).trace(state, batch)
                    traced = traced or other
    if state is not None and structure_of(again) != structure_of(state):
        raise InvalidInput(
            f"{layout.model}: init returns a different tree structure at each call: create optimizers and "
            "modules once, in build"
        )
    if stepped is not None:
        _refuse_other_state(layout, state, stepped)
    if (
        output is not None
        and model.output_axes is not None
        and len(model.output_axes) > len(getattr(output, "shape", ()))
    ):
        raise InvalidInput(
            f"{layout.model}: output_axes has {len(model.output_axes)} names, but must have at most one per "
            "dimension of the output, which must be one array"
        )
    abstract_state = _abstract_state(layout, model, (batch, state, output), traced, refused.programs)
    for array in abstract_state.arrays:
        _refuse_other_names(array, layout)
    return replace(abstract_state, arrays=tuple(_with_given(array, given) for array in abstract_state.arrays))


def _with_given(array: AbstractArray, given: Mapping[str, Given | None]) -> AbstractArray:
    """Return the array with the spec, pattern and memory kind that `given` has for its path.

    If the entry is None, the array is marked as unmatched.
    """
    if array.group in ("batch", "output") or array.path not in given:
        return array
    spec = given[array.path]
    if spec is None:
        return replace(array, unmatched=True)
    return replace(array, given_spec=spec.spec, pattern=spec.pattern, memory_kind=spec.memory_kind)


def _refuse_other_state(layout: Layout, state: PyTree, stepped: PyTree) -> None:
    """Refuse a step that does not return a state like its argument and a scalar loss."""
    if not isinstance(stepped, tuple) or len(stepped) != 2:
        raise InvalidInput(
            f"{layout.model}: step returns {type(stepped).__name__}, but must return (state, loss)"
        )
    after, loss = stepped
    if getattr(loss, "shape", None) != ():
        raise InvalidInput(f"{layout.model}: the loss of step must be a scalar array")
    if structure_of(after) != structure_of(state):
        raise InvalidInput(
            f"{layout.model}: step returns a state of another tree structure than init, so "
            "it cannot be repeated"
        )


def _refuse_other_names(array: AbstractArray, layout: Layout) -> None:
    if array.names is None:
        return
    where = f"{layout.model}: {array.path}"
    if len(array.names) != len(array.shape):
        raise InvalidInput(
            f"{where} has {len(array.names)} names for {len(array.shape)} dimensions: "
            "update or remove its box"
        )
    if layout.entry.has_rules:
        if any(len(names or ()) > 1 for names in array.names):
            raise InvalidInput(f"{where} has two logical axes on one dimension, but only one is allowed")
        if layout.entry.rules_semantics == "nnx":
            names = [entry[0] if entry else None for entry in array.names]
            for refusal in nnx.refusals(nnx.partition_spec(names, layout.rules), layout.mesh()):
                raise InvalidInput(f"{where} with the rules of nnx: {refusal}")
        return
    for axis in (axis for names in array.names for axis in names or ()):
        if axis not in layout.axis_names:
            raise InvalidInput(
                f"{where} has the mesh axis {shown(axis)}, but the mesh has {', '.join(layout.axis_names)}"
            )


def versions() -> dict[str, str]:
    """Return the versions of the packages that determine the result."""
    return {package.__name__: package.__version__ for package in (jax, jaxlib, flax, optax)}


def _array(leaf: Leaf, has_type: bool = False) -> AbstractArray:
    """Return the record of a leaf, with the sharding of its type if `has_type`."""
    group: Group = leaf.group or "other"
    value = leaf.value
    return AbstractArray(
        leaf.path,
        group,
        shape=tuple(value.shape),
        dtype=str(value.dtype),
        itemsize=value.dtype.itemsize,
        names=dimension_axes(names) if (names := whole_names(leaf.names, value.ndim)) is not None else None,
        type_spec=spec_of(value.sharding.spec, value.ndim) if has_type else None,
    )
