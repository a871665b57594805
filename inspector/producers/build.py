"""Build a Layout's model and mesh, the sharding of every array, and the signatures of its programs."""

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
from inspector.layout import Layout, emulation
from inspector.model import Model
from inspector.producers import describe
from inspector.producers.describe import code_of, own_code
from inspector.producers.leaves import (
    has_variables,
    map_variables,
    nnx_rules,
    without_eager_sharding,
)


def build_model(layout: Layout) -> Model:
    """Build the layout's model with its sizes.

    Raises:
      InvalidInput: the function of a user's model fails or returns something else.
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


def model_and_mesh(layout: Layout, report: Callable[..., None]) -> tuple[Model, Mesh]:
    """Build the model and the mesh of a layout that runs on the devices of this process."""
    report("build")
    return build_model(layout), make_mesh(layout)


def refuse_too_large(bytes_per_device: int, layout: Layout, memory: int | None, what: str) -> None:
    """Refuse to run `what` if it exceeds the usable bytes of this machine, which are measured if None."""
    available = emulation.available_bytes() if memory is None else memory
    emulation.refuse_too_large(bytes_per_device * layout.devices, available, what)


def _own_model(layout: Layout) -> Model:
    build = describe.function_named(layout.entry.build)
    model = describe.built(layout.model, build, dict(layout.sizes))
    with own_code(layout.model):
        batch = jax.eval_shape(model.batch, abstract_key())
    describe.checked_batch(layout.model, batch)
    unnamed = {name: (None,) * len(value.shape) for name, value in batch.items()}
    for name, axes in model.batch_axes.items():
        where = f"{layout.model}: batch_axes has {shown(name)}"
        if name not in unnamed:
            raise InvalidInput(f"{where}, but the batch has {', '.join(unnamed) or 'no arrays'}")
        if len(axes) != len(unnamed[name]):
            raise InvalidInput(
                f"{where} with {len(axes)} names, but the array has {len(unnamed[name])} dimensions"
            )
    return replace(model, batch_axes=unnamed | dict(model.batch_axes))


def make_mesh(layout: Layout) -> Mesh:
    """Return the layout's mesh on the devices of all processes, in row-major order."""
    devices = np.array(jax.devices()[: layout.devices]).reshape(layout.mesh_shape)
    return Mesh(devices, layout.axis_names)


def abstract_key() -> jax.ShapeDtypeStruct:
    """Return an abstract random key."""
    return jax.eval_shape(lambda: jax.random.key(0))


def first_inputs(model: Model, init: Signature) -> tuple[jax.Array, Any]:
    """Return a random key and a batch, with the shardings that init requests."""
    key = jax.device_put(jax.random.key(0), init.sharding("key"))
    # Not jitted: compiling another program costs more than it saves.
    return key, jax.device_put(model.batch(key), init.sharding("batch"))


@contextlib.contextmanager
def tracing(layout: Layout, mesh: Mesh) -> Iterator[None]:
    """Set the mesh and the rules that the sharding constraints of the model use."""
    with jax.set_mesh(mesh), reading_rules(layout), code_of(layout):
        yield


@contextlib.contextmanager
def reading_rules(layout: Layout) -> Iterator[None]:
    """Set the layout's rules for Linen and nnx."""
    rules = linen_rules(layout)
    with nn.logical_axis_rules(rules), nnx_rules(rules), without_eager_sharding():
        yield


def linen_rules(layout: Layout) -> tuple[tuple[str, Any], ...]:
    """Return the layout's rules in the form of Flax Linen."""
    return tuple((name, jax_entry(axes)) for name, axes in layout.rules)


def state_shardings(abstract_state: Any, model: Model, layout: Layout, mesh: Mesh) -> Any:
    """Return the pytree of shardings of a train state, from the boxes of its abstract leaves."""
    if has_variables(abstract_state):
        return map_variables(
            abstract_state,
            lambda variable: named_sharding(
                None if variable is None else variable.get_metadata().get("out_sharding"),
                *(model, layout, mesh),
            ),
        )
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


def named_sharding(
    axes: tuple[Any, ...] | None, model: Model, layout: Layout, mesh: Mesh
) -> NamedSharding:
    """Return the sharding of an array with these dimension names; replicated if `axes` is None."""
    if axes is None:
        return NamedSharding(mesh, PartitionSpec())
    if model.names == "logical" and model.rules_semantics == "nnx":
        named = spmd.from_sharding_rules(tuple(axes), linen_rules(layout))
        return NamedSharding(mesh, PartitionSpec(*named))
    if model.names == "logical":
        return NamedSharding(mesh, nn.logical_to_mesh_axes(axes, linen_rules(layout)))
    return NamedSharding(mesh, PartitionSpec(*axes))


def jax_entry(axes: tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    """Return one entry of a Spec in JAX's form: None, one name, or a tuple of names."""
    if not axes:
        return None
    return axes[0] if len(axes) == 1 else axes


@dataclass(frozen=True)
class Signature:
    """A function with its abstract arguments and requested shardings, before it is lowered.

    Attributes:
      inputs: name -> (abstract argument, sharding of each leaf), in the order of the function.
      outputs: name -> sharding of each leaf; None lets the compiler choose.
      donated: names of inputs whose buffers the outputs may reuse.
    """

    name: str
    function: Callable[..., Any]
    inputs: dict[str, tuple[Any, Any]]
    outputs: dict[str, Any]
    donated: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[Any, ...]:
        return tuple(argument for argument, _ in self.inputs.values())

    def sharding(self, name: str) -> Any:
        """Return the requested sharding of each leaf of an input."""
        return self.inputs[name][1]

    def jitted(self) -> Any:
        """Return `jax.jit` of the function with the requested shardings and donations."""
        outputs = tuple(self.outputs.values())
        return jax.jit(
            self.function,
            in_shardings=tuple(shardings for _, shardings in self.inputs.values()),
            out_shardings=outputs[0] if len(outputs) == 1 else outputs,
            donate_argnums=tuple(n for n, name in enumerate(self.inputs) if name in self.donated),
        )


def signatures(model: Model, layout: Layout, mesh: Mesh) -> tuple[Signature, ...]:
    """Return the signatures of init, train step and, if the model has one, inference.

    Must be called inside of `tracing`.
    """
    key = abstract_key()
    batch = jax.eval_shape(model.batch, key)
    state = jax.eval_shape(model.init, key, batch)
    state_sharding = state_shardings(state, model, layout, mesh)
    batch_sharding = {
        name: named_sharding(axes, model, layout, mesh) for name, axes in model.batch_axes.items()
    }
    key_in = (key, NamedSharding(mesh, PartitionSpec()))
    batch_in, state_in = (batch, batch_sharding), (state, state_sharding)
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
