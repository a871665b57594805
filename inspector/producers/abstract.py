"""The model's arrays by `jax.eval_shape`: shapes and names, nothing compiled, nothing allocated."""

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
from inspector.producers.build import build_model, reading_rules
from inspector.producers.describe import own_code
from inspector.producers.leaves import Leaf, all_leaves, leaves_of


def abstract(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Worker job: a layout as JSON in, an AbstractState as JSON out. Needs no particular devices."""
    report("trace")
    return typed_json.encode(abstract_state(layouts.from_json(payload["layout"])))


def abstract_state(layout: Layout) -> AbstractState:
    """Every array of the layout's model. A model with mesh axes is traced under its abstract mesh."""
    model = build_model(layout)
    key = jax.eval_shape(lambda: jax.random.key(0))
    if layout.entry.own:
        return _own_state(layout, model, key)
    if model.names == "mesh":
        context = jax.sharding.use_abstract_mesh(_abstract_mesh(layout))
    else:
        # Without rules a logical constraint does nothing, so that one trace serves every mesh and rule.
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
    """The arrays of a person's own model, traced as it will be run: with its mesh and its rules.

    Raises:
      InvalidInput: it fails, or a function of it gives what it should not.
    """
    with (
        jax.sharding.use_abstract_mesh(_abstract_mesh(layout)),
        reading_rules(layout),
        own_code(layout.model),
    ):
        batch = jax.eval_shape(model.batch, key)
        state = jax.eval_shape(model.init, key, batch)
        # Before the step is traced, whose own words about such names would be harder to understand.
        for leaf in leaves_of(state):
            _refuse_other_names(_array(leaf), layout)
        # Another function, so that it is traced again.
        again = jax.eval_shape(lambda *arguments: model.init(*arguments), key, batch)
        stepped = jax.eval_shape(model.step, state, batch)
        output = None if model.apply is None else jax.eval_shape(model.apply, state, batch)
    if jax.tree.structure(again) != jax.tree.structure(state):
        raise InvalidInput(
            f"{layout.model}: init gives a state of another structure at each call: make what is no "
            "array, such as an optimizer or a module, once in build"
        )
    if not isinstance(stepped, tuple) or len(stepped) != 2:
        raise InvalidInput(
            f"{layout.model}: step gives {type(stepped).__name__}, but must give (state, loss)"
        )
    after, loss = stepped
    if getattr(loss, "shape", None) != ():
        raise InvalidInput(f"{layout.model}: the loss of step must be a scalar array")
    if jax.tree.structure(after) != jax.tree.structure(state):
        raise InvalidInput(
            f"{layout.model}: step gives a state of another structure than init, and cannot be repeated"
        )
    if model.output_axes is not None and len(model.output_axes) != len(
        getattr(output, "shape", ())
    ):
        raise InvalidInput(
            f"{layout.model}: output_axes has {len(model.output_axes)} names, but must have one for "
            "each dimension of the output, one array"
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
            "box it anew, or take its box away"
        )
    if layout.entry.has_rules:
        if any(len(names or ()) > 1 for names in array.names):
            raise InvalidInput(f"{where} has two logical axes at one dimension, but may have one")
        if layout.entry.rules_semantics == "nnx":
            names = [entry[0] if entry else None for entry in array.names]
            for refusal in nnx.refusals(nnx.partition_spec(names, layout.rules), layout.mesh()):
                raise InvalidInput(f"{where} as nnx reads the rules: {refusal}")
        return
    for axis in (axis for names in array.names for axis in names or ()):
        if axis not in layout.axis_names:
            raise InvalidInput(
                f"{where} names mesh axis {shown(axis)}, but the mesh has "
                f"{', '.join(layout.axis_names)}"
            )


def versions() -> dict[str, str]:
    """The versions that decide what comes out."""
    return {package.__name__: package.__version__ for package in (jax, jaxlib, flax, optax)}


def _array(leaf: Leaf) -> AbstractArray:
    group: Group = leaf.group
    names = None
    if leaf.names is not None:
        names = tuple(
            (name,) if isinstance(name, str) else tuple(name) if name else None
            for name in leaf.names
        )
    dtype = leaf.value.dtype
    return AbstractArray(
        leaf.path, group, tuple(leaf.value.shape), str(dtype), dtype.itemsize, names
    )
