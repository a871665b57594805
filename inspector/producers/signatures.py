"""What a layout's programs take and give: abstract values, with the sharding asked of every leaf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.layout import Layout
from inspector.model import Model
from inspector.producers.building import named_sharding, state_shardings

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
