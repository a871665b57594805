"""A pipeline of transformer blocks: GPipe as one program for all devices.

    x (batch, seq, embed) → microbatches (microbatches, rows, seq, embed)
    → `microbatches + stages − 1` iterations: all stages run at once, each on the microbatch that it has
    → x (batch, seq, embed)

The stages are a dimension of the parameters and of the state. A mesh axis that shards it has a stage on each
device, and rolling the state sends each result to the next one (GSPMD, Xu et al. 2021, section 3.3,
arXiv:2105.04663; GPipe, Huang et al. 2019, arXiv:1811.06965).
"""

from collections.abc import Callable

import jax
from flax import linen as nn
from jax import numpy as jnp

from inspector.model.built_in.accumulation import microbatches
from inspector.model.built_in.explicit import has_explicit_axes
from inspector.text.errors import InvalidInput

_STATE = ("stages", "batch", "seq", "embed")


def pipelined(x: jax.Array, stage: Callable[[], nn.Module], stages: int, count: int) -> jax.Array:
    """Return x (batch, seq, embed) after all stages, in `count` microbatches.

    stage: makes the module of all stages, which maps a state (stages, rows, seq, embed) to its results.

    Raises:
      InvalidInput: the mesh has explicit axes.
    """
    if has_explicit_axes():
        raise InvalidInput(f"stages is {stages}, but must be 1 on explicit mesh axes")
    given = nn.with_logical_constraint(
        microbatches(x, count, ("batch", "seq", "embed")), (None, "batch", "seq", "embed")
    )
    state = jnp.zeros((stages, *given.shape[1:]), x.dtype)

    def iteration(module: nn.Module, state: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        entering = given[jnp.minimum(number, count - 1)]
        place = jnp.arange(stages)[:, None, None, None]
        state = jnp.where(place == 0, entering, jnp.roll(state, 1, axis=0))
        state = module(nn.with_logical_constraint(state, _STATE))
        state = nn.with_logical_constraint(state, _STATE)
        return state, state

    loop = nn.scan(iteration, variable_broadcast="params", split_rngs={"params": False})
    _, results = loop(stage(), state, jnp.arange(count + stages - 1))
    # Of microbatch i, the last stage is done in iteration i + stages − 1.
    done: jax.Array = results[stages - 1 :, -1]
    return done.swapaxes(0, 1).reshape(x.shape)
