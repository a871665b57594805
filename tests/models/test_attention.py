"""Attention against JAX's own, and what rotary positions promise."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from flax.core import meta
from jax import numpy as jnp

from inspector.model.built_in.attention import Attention, rotated
from tests.models.language_models import CONFIG


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_is_that_of_jax(kv_heads: int) -> None:
    config = replace(CONFIG, embed=12, heads=4, kv_heads=kv_heads, head_dim=6)
    x = jax.random.normal(jax.random.key(0), (2, 10, 12))
    attention = Attention(config)
    params = meta.unbox(attention.init(jax.random.key(1), x))["params"]
    query, key, value = (jnp.tensordot(x, params[name], 1) for name in ("query", "key", "value"))
    expected = jax.nn.dot_product_attention(rotated(query), rotated(key), value, is_causal=True)
    expected = jnp.tensordot(expected, params["output"], 2)
    found = attention.apply({"params": params}, x)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_rotated_queries_and_keys_know_only_how_far_apart_they_are() -> None:
    query, key = jax.random.normal(jax.random.key(0), (2, 8))
    everywhere = lambda vector: jnp.broadcast_to(vector, (1, 20, 1, 8))  # noqa: E731
    queries, keys = rotated(everywhere(query))[0, :, 0], rotated(everywhere(key))[0, :, 0]
    np.testing.assert_allclose(queries[0], query, atol=1e-6)  # the first position is not turned
    scores = np.asarray(queries @ keys.T)
    for distance in range(-19, 20):
        np.testing.assert_allclose(np.ptp(np.diagonal(scores, distance)), 0, atol=1e-4)
    assert np.ptp(scores) > 0.1
