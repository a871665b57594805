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
from inspector import record
from inspector.abstract import AbstractArray, AbstractState
from inspector.layout import Layout
from inspector.producers.building import build_model
from inspector.producers.leaves import Leaf, all_leaves
from inspector.snapshot import Group


def abstract(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Worker job: a layout as JSON in, an AbstractState as JSON out. Needs no particular devices."""
    report("trace")
    return record.encode(abstract_state(layouts.from_json(payload["layout"])))


def abstract_state(layout: Layout) -> AbstractState:
    """Every array of the layout's model. A model with mesh axes is traced under its abstract mesh."""
    model = build_model(layout)
    key = jax.eval_shape(lambda: jax.random.key(0))
    if model.names == "mesh":
        automatic = (AxisType.Auto,) * len(layout.axis_names)
        mesh = AbstractMesh(layout.mesh_shape, layout.axis_names, axis_types=automatic)
        context = jax.sharding.use_abstract_mesh(mesh)
    else:
        # Without rules a logical constraint does nothing, so that one trace serves every mesh and rule.
        context = contextlib.nullcontext()
    with context:
        batch = jax.eval_shape(model.batch, key)
        state = jax.eval_shape(model.init, key, batch)
        output = jax.eval_shape(model.apply, state, batch)
    leaves = all_leaves(model, batch, state, output)
    return AbstractState(model.names, tuple(_array(leaf) for leaf in leaves), versions())


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
