"""Training of the MLPs: a Flax TrainState, an Optax optimizer, and a loss."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import optax
from flax import linen as nn
from flax.core import meta
from flax.training.train_state import TrainState
from jax import numpy as jnp

from inspector.model import Batch, Model
from inspector.model.built_in.watching import watch
from inspector.text.errors import InvalidInput

MOMENTUM = 0.9  # Sutskever et al. 2013


def optimizer_named(name: str, learning_rate: float, dtype: str = "same") -> optax.GradientTransformation:
    """Return the Optax optimizer of this name with its default settings.

    Args:
      dtype: of its first moment; `same` as that of each parameter.

    Raises:
      InvalidInput: the optimizer has no moments, but `dtype` is not `same`.
    """
    options: dict[str, Any] = {"momentum": MOMENTUM} if name == "momentum" else {}
    if dtype != "same":
        if name == "sgd":
            raise InvalidInput(f"optimizer_dtype is {dtype}, but must be same: sgd has no moments")
        options["accumulator_dtype" if name == "momentum" else "mu_dtype"] = jnp.dtype(dtype)
    return getattr(optax, "sgd" if name == "momentum" else name)(learning_rate, **options)


def trained(
    module: nn.Module,
    optimizer: optax.GradientTransformation,
    input_name: str,
    gradients_of: Callable[[Any, Batch], tuple[jax.Array, Any]],
    **facts: Any,
) -> Model:
    """Return the Model that trains `module` on one array of a batch.

    Args:
      input_name: the array of the batch that the module is applied to.
      gradients_of: (parameters, batch) -> (scalar loss, gradients).
      facts: the other fields of the Model.
    """

    def init(key: jax.Array, batch: Batch) -> TrainState:
        params = module.init(key, batch[input_name])["params"]
        return TrainState.create(apply_fn=module.apply, params=params, tx=optimizer)

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, jax.Array]:
        value, gradients = gradients_of(state.params, batch)
        watch_gradients(gradients)
        return state.apply_gradients(grads=gradients), value

    def apply(state: TrainState, batch: Batch) -> jax.Array:
        output: Any = module.apply({"params": state.params}, batch[input_name])
        return output

    return Model(init=init, step=step, apply=apply, **facts)


def regression(
    module: nn.Module,
    optimizer: optax.GradientTransformation,
    *,
    loss: str,
    shape: tuple[int, ...],
    dtype: jnp.dtype,
    batch_axes: tuple[Any, ...],
    output_axes: tuple[Any, ...],
    names: Literal["logical", "mesh"],
) -> Model:
    """Train `module` from x of `shape` to an output of the same shape.

    The loss "sum" is the sum of the output: it needs no labels and changes every parameter. "mse" is the
    mean squared error against |x|, which the module can learn.
    """

    def loss_of(params: Any, batch: Batch) -> jax.Array:
        output: Any = module.apply({"params": params}, batch["x"])
        return jnp.mean((output - batch["y"]) ** 2) if loss == "mse" else output.sum()

    def batch(key: jax.Array) -> Batch:
        x = jax.random.normal(key, shape, dtype)
        return {"x": x, "y": jnp.abs(x)} if loss == "mse" else {"x": x}

    axes = {"x": batch_axes} | ({"y": output_axes} if loss == "mse" else {})
    facts = {"batch_axes": axes, "output_axes": output_axes, "names": names}
    return trained(module, optimizer, "x", jax.value_and_grad(loss_of), batch=batch, **facts)


def watch_gradients(gradients: Any) -> None:
    """Call `watch` for every leaf of a tree of gradients."""
    boxed = jax.tree_util.tree_leaves_with_path(gradients, is_leaf=meta.is_axis_metadata)
    for key_path, leaf in boxed:
        value = leaf.value if meta.is_axis_metadata(leaf) else leaf
        path = jax.tree_util.keystr(key_path, simple=True, separator="/")
        watch(f"gradient/{path}", value)
