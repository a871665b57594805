"""The forms of the feed-forward layer and of positions, against formulas in NumPy."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import linen as nn

from inspector.model.built_in.attention import Attention
from inspector.model.built_in.feed_forward import MLP
from inspector.model.built_in.transformer import Block
from tests.models.language_models import CONFIG, built

ACTIVATIONS = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    # The tanh form, Hendrycks and Gimpel 2016, arXiv:1606.08415.
    "gelu": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
}


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_layer_is_its_formula(activation: str, gated: bool) -> None:
    config = replace(CONFIG, embed=6, mlp=10)
    layer = MLP(replace(config, activation=activation, gated=gated))
    x = jax.random.normal(jax.random.key(0), (2, 9, 6))
    params = jax.tree.map(np.asarray, nn.unbox(layer.init(jax.random.key(1), x))["params"])
    act = ACTIVATIONS[activation]
    hidden = act(x @ params["gate"]) * (x @ params["up"]) if gated else act(x @ params["up"])
    assert params.keys() == {"up", "down"} | ({"gate"} if gated else set())
    np.testing.assert_allclose(layer.apply({"params": params}, x), hidden @ params["down"], atol=1e-5)


@pytest.mark.nightly
def test_a_parallel_block_adds_both_layers_of_one_norm() -> None:
    config = replace(CONFIG, parallel=True)
    block, x = Block(config), jax.random.normal(jax.random.key(0), (2, 8, CONFIG.embed))
    params = nn.unbox(block.init(jax.random.key(1), x))["params"]
    normed = x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + 1e-5)
    attended = Attention(config).apply({"params": params["attention"]}, normed)
    fed = MLP(config).apply({"params": params["feed_forward"]}, normed)
    assert params.keys() == {"attention_norm", "attention", "feed_forward"}
    np.testing.assert_allclose(block.apply({"params": params}, x)[0], x + attended + fed, atol=1e-5)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("positions", ["rotary", "learned", "none"])
def test_only_without_positions_the_order_of_earlier_tokens_is_unknown(positions: str) -> None:
    model, state, batch = built("transformer", positions=positions, layers="1")
    assert ("positions" in state.params) == (positions == "learned")
    tokens = batch["tokens"]
    swapped = tokens.at[:, 0].set(tokens[:, 1]).at[:, 1].set(tokens[:, 0])
    apply = jax.jit(model.apply)
    difference = apply(state, {"tokens": tokens}) - apply(state, {"tokens": swapped})
    assert (abs(difference[:, -1]).max() < 1e-5) == (positions == "none")
