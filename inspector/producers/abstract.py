"""Trace a model with `jax.eval_shape`: shapes, dtypes and names of its arrays, without a compile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import flax
import jax
import jaxlib
import optax
from jax.sharding import AbstractMesh, AxisType

from inspector import layout as layouts
from inspector.core import typed_json
from inspector.core.abstract import AbstractArray, AbstractState
from inspector.core.errors import InvalidInput, shown
from inspector.core.rules import nnx
from inspector.core.snapshot import Group
from inspector.layout import Layout
from inspector.model import Model
from inspector.producers.build import abstract_key, build_model, reading_rules
from inspector.producers.describe import own_code
from inspector.producers.leaves import Leaf, all_leaves, leaves_of
from inspector.producers.records import dimension_axes


def abstract(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Worker job: return the AbstractState of a layout in JSON as JSON. One device is enough."""
    report("trace")
    return typed_json.encode(abstract_state(layouts.from_json(payload["layout"])))


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
        context = jax.sharding.use_abstract_mesh(_abstract_mesh(layout))
    else:
        # Without rules, logical constraints do nothing, so one trace serves every mesh and rule.
        context = contextlib.nullcontext()
    with context:
        batch = jax.eval_shape(model.batch, key)
        state = jax.eval_shape(model.init, key, batch)
        output = jax.eval_shape(model.apply, state, batch)
    leaves = all_leaves(model, batch, state, output)
    return AbstractState(model.names, tuple(_array(leaf) for leaf in leaves), versions())


def _abstract_mesh(layout: Layout) -> AbstractMesh:
    automatic = (AxisType.Auto,) * len(layout.axis_names)
    return AbstractMesh(layout.mesh_shape, layout.axis_names, axis_types=automatic)


def _own_state(layout: Layout, model: Model, key: Any) -> AbstractState:
    """Return the arrays of a user's model, traced with its mesh and its rules as in a run."""
    with (
        jax.sharding.use_abstract_mesh(_abstract_mesh(layout)),
        reading_rules(layout),
        own_code(layout.model),
    ):
        batch = jax.eval_shape(model.batch, key)
        state = jax.eval_shape(model.init, key, batch)
        # Checked before the step is traced, because errors of the step are harder to understand.
        for leaf in leaves_of(state):
            _refuse_other_names(_array(leaf), layout)
        # A new function object makes JAX trace again.
        again = jax.eval_shape(lambda *arguments: model.init(*arguments), key, batch)
        stepped = jax.eval_shape(model.step, state, batch)
        output = None if model.apply is None else jax.eval_shape(model.apply, state, batch)
    if jax.tree.structure(again) != jax.tree.structure(state):
        raise InvalidInput(
            f"{layout.model}: init returns a different tree structure at each call: create optimizers and "
            "modules once, in build"
        )
    if not isinstance(stepped, tuple) or len(stepped) != 2:
        raise InvalidInput(
            f"{layout.model}: step returns {type(stepped).__name__}, but must return (state, loss)"
        )
    after, loss = stepped
    if getattr(loss, "shape", None) != ():
        raise InvalidInput(f"{layout.model}: the loss of step must be a scalar array")
    if jax.tree.structure(after) != jax.tree.structure(state):
        raise InvalidInput(
            f"{layout.model}: step returns a state of another tree structure than init, so "
            "it cannot be repeated"
        )
    if model.output_axes is not None and len(model.output_axes) != len(
        getattr(output, "shape", ())
    ):
        raise InvalidInput(
            f"{layout.model}: output_axes has {len(model.output_axes)} names, but must have one per "
            "dimension of the output, which must be one array"
        )
    arrays = [_array(leaf) for leaf in all_leaves(model, batch, state, output)]
    for array in arrays:
        _refuse_other_names(array, layout)
    return AbstractState(model.names, tuple(arrays), versions())


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
            raise InvalidInput(
                f"{where} has two logical axes on one dimension, but only one is allowed"
            )
        if layout.entry.rules_semantics == "nnx":
            names = [entry[0] if entry else None for entry in array.names]
            for refusal in nnx.refusals(nnx.partition_spec(names, layout.rules), layout.mesh()):
                raise InvalidInput(f"{where} with the rules of nnx: {refusal}")
        return
    for axis in (axis for names in array.names for axis in names or ()):
        if axis not in layout.axis_names:
            raise InvalidInput(
                f"{where} has the mesh axis {shown(axis)}, but the mesh has "
                f"{', '.join(layout.axis_names)}"
            )


def versions() -> dict[str, str]:
    """Return the versions of the packages that determine the result."""
    return {package.__name__: package.__version__ for package in (jax, jaxlib, flax, optax)}


def _array(leaf: Leaf) -> AbstractArray:
    group: Group = leaf.group or "other"
    names = None if leaf.names is None else dimension_axes(leaf.names)
    dtype = leaf.value.dtype
    return AbstractArray(
        leaf.path, group, tuple(leaf.value.shape), str(dtype), dtype.itemsize, names
    )
