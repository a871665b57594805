"""A Layout's model, built, and its names as JAX shardings on a mesh of real devices."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax.core import meta, spmd
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.core.errors import InvalidInput, shown
from inspector.layout import Layout
from inspector.model import Model
from inspector.producers import describe
from inspector.producers.describe import code_of, own_code
from inspector.producers.leaves import (
    has_variables,
    named_variables,
    nnx_rules,
    without_eager_sharding,
)


def build_model(layout: Layout) -> Model:
    """Build the layout's model at its sizes.

    Raises:
      InvalidInput: it is a model of one's own and fails, or gives what is no model.
    """
    if layout.entry.own:
        return _own_model(layout)
    module_name, function_name = layout.entry.build.split(":")
    build = getattr(importlib.import_module(module_name), function_name)
    options: dict[str, Any] = dict(layout.sizes)
    if layout.unconstrained:
        options["unconstrained"] = layout.unconstrained
    if layout.entry.has_rules:
        return build(**options)
    partitions = {
        place: tuple(jax_entry(axes) for axes in spec) for place, spec in layout.specs.items()
    }
    return build(**options, partitions=partitions)


def _own_model(layout: Layout) -> Model:
    build = describe.function_named(layout.entry.build)
    model = describe.built(layout.model, build, dict(layout.sizes))
    with own_code(layout.model):
        batch = jax.eval_shape(model.batch, jax.eval_shape(lambda: jax.random.key(0)))
    describe.checked_batch(layout.model, batch)
    unnamed = {name: (None,) * len(value.shape) for name, value in batch.items()}
    for name, axes in model.batch_axes.items():
        if name not in unnamed or len(axes) != len(unnamed[name]):
            raise InvalidInput(
                f"{layout.model}: batch_axes has {shown(name)} with {len(axes)} names, but "
                + (
                    f"the batch has {', '.join(unnamed) or 'nothing'}"
                    if name not in unnamed
                    else f"the array has {len(unnamed[name])} dimensions"
                )
            )
    return replace(model, batch_axes=unnamed | dict(model.batch_axes))


def make_mesh(layout: Layout) -> Mesh:
    """The layout's mesh of the devices of all processes, in row-major order."""
    devices = np.array(jax.devices()[: layout.devices]).reshape(layout.mesh_shape)
    return Mesh(devices, layout.axis_names)


@contextlib.contextmanager
def tracing(layout: Layout, mesh: Mesh) -> Iterator[None]:
    """Within it, models find the mesh and the rules that their constraints refer to."""
    with jax.set_mesh(mesh), reading_rules(layout), code_of(layout):
        yield


@contextlib.contextmanager
def reading_rules(layout: Layout) -> Iterator[None]:
    """Within it, models of Linen and of nnx read the layout's rules."""
    rules = linen_rules(layout)
    with nn.logical_axis_rules(rules), nnx_rules(rules), without_eager_sharding():
        yield


def linen_rules(layout: Layout) -> tuple[tuple[str, Any], ...]:
    """The layout's rules as Flax Linen takes them."""
    return tuple((name, jax_entry(axes)) for name, axes in layout.rules)


def state_shardings(abstract_state: Any, model: Model, layout: Layout, mesh: Mesh) -> Any:
    """The sharding of every leaf of the state, from the boxes around its abstract leaves."""
    if has_variables(abstract_state):
        return _variable_shardings(abstract_state, model, layout, mesh)
    if model.names == "mesh":
        return nn.get_sharding(abstract_state, mesh)
    if model.rules_semantics == "nnx":
        return jax.tree.map(
            lambda leaf: named_sharding(getattr(leaf, "names", None), model, layout, mesh),
            abstract_state,
            is_leaf=meta.is_axis_metadata,
        )
    specs = nn.get_partition_spec(abstract_state)
    return nn.logical_to_mesh_sharding(specs, mesh, linen_rules(layout))


def _variable_shardings(abstract_state: Any, model: Model, layout: Layout, mesh: Mesh) -> Any:
    def chosen(variable: Any) -> NamedSharding:
        names = None if variable is None else variable.get_metadata().get("out_sharding")
        return named_sharding(names, model, layout, mesh)

    return named_variables(abstract_state, chosen)


def named_sharding(
    axes: tuple[Any, ...] | None, model: Model, layout: Layout, mesh: Mesh
) -> NamedSharding:
    """The sharding of an array from the names of its dimensions; replicated where it has none."""
    if axes is None:
        return NamedSharding(mesh, PartitionSpec())
    if model.names == "logical" and model.rules_semantics == "nnx":
        named = spmd.from_sharding_rules(tuple(axes), linen_rules(layout))
        return NamedSharding(mesh, PartitionSpec(*named))
    if model.names == "logical":
        return NamedSharding(mesh, nn.logical_to_mesh_axes(axes, linen_rules(layout)))
    return NamedSharding(mesh, PartitionSpec(*axes))


def jax_entry(axes: tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    """One dimension of a PartitionSpec as JAX prints it: None, one name, or a tuple of them."""
    if not axes:
        return None
    return axes[0] if len(axes) == 1 else axes


# An abstract argument, and the sharding of each of its leaves.
Asked = tuple[Any, Any]


@dataclass(frozen=True)
class Signature:
    """One function before it is compiled.

    inputs: name → (abstract argument, sharding of each leaf), in the function's order.
    outputs: name → sharding of each leaf, None where the compiler is to choose.
    donated: names of inputs that the program may overwrite with its outputs.
    """

    name: str
    function: Callable[..., Any]
    inputs: dict[str, Asked]
    outputs: dict[str, Any]
    donated: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The abstract arguments."""
        return tuple(argument for argument, _ in self.inputs.values())

    def sharding(self, name: str) -> Any:
        """What is asked of each leaf of this input."""
        return self.inputs[name][1]


def signatures(model: Model, layout: Layout, mesh: Mesh) -> tuple[Signature, ...]:
    """Init, train step and, where the model has one, inference; to be called within `tracing`."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    batch = jax.eval_shape(model.batch, key)
    state = jax.eval_shape(model.init, key, batch)
    state_sharding = state_shardings(state, model, layout, mesh)
    batch_in: Asked = (
        batch,
        {
            name: named_sharding(axes, model, layout, mesh)
            for name, axes in model.batch_axes.items()
        },
    )
    state_in: Asked = (state, state_sharding)
    key_in: Asked = (key, NamedSharding(mesh, PartitionSpec()))
    init = Signature(
        "init", model.init, {"key": key_in, "batch": batch_in}, {"state": state_sharding}
    )
    train_step = Signature(
        "train_step",
        model.step,
        {"state": state_in, "batch": batch_in},
        {"state": state_sharding, "loss": None},
        donated=("state",) if layout.donate else (),
    )
    if model.apply is None:
        return init, train_step
    output = named_sharding(model.output_axes, model, layout, mesh)
    apply = Signature(
        "apply", model.apply, {"state": state_in, "batch": batch_in}, {"output": output}
    )
    return init, train_step, apply
