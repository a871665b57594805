"""Attention against JAX's own, and what rotary positions promise."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax.core import meta
from jax import numpy as jnp

from inspector.model.built_in.attention import Attention, rotated
from inspector.model.built_in.dot_product import dot_product_attention
from inspector.model.built_in.flash import splash_attention
from inspector.model.built_in.latent_attention import LatentAttention
from inspector.model.built_in.ring import ring_attention
from tests.models.language_models import CONFIG, built


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_is_that_of_jax(kv_heads: int) -> None:
    config = replace(CONFIG, embed=12, heads=4, kv_heads=kv_heads, head_dim=6)
    x = jax.random.normal(jax.random.key(0), (2, 10, 12))
    attention = Attention(config)
    params = meta.unbox(attention.init(jax.random.key(1), x))["params"]
    query, key, value = (jnp.tensordot(x, params[name], 1) for name in ("query", "key", "value"))
    expected = jax.nn.dot_product_attention(rotated(query), rotated(key), value, is_causal=True)
    expected = jnp.tensordot(expected, params["output"], 2)
    result = attention.apply({"params": params}, x)
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize("window", [1, 3, 10, 100])
def test_a_window_is_that_of_jax(window: int) -> None:
    shapes = ((2, 10, 4, 6), (2, 10, 2, 6), (2, 10, 2, 6))
    arrays = [jax.random.normal(jax.random.key(at), shape) for at, shape in enumerate(shapes)]
    expected = jax.nn.dot_product_attention(*arrays, is_causal=True, local_window_size=(window - 1, 0))
    np.testing.assert_allclose(dot_product_attention(*arrays, window), expected, atol=1e-5)


def test_latent_attention_is_that_of_jax_on_the_keys_and_values_of_all_heads() -> None:
    config = replace(CONFIG, embed=12, heads=3, kv_heads=3, head_dim=6, q_rank=5, kv_rank=4, rotary_dim=2)
    x = jax.random.normal(jax.random.key(0), (2, 10, 12))
    layer = LatentAttention(config)
    params = meta.unbox(layer.init(jax.random.key(1), x))["params"]
    # DeepSeek-V2, equations 9 to 19.
    norm = lambda short: short / jnp.sqrt((short**2).mean(-1, keepdims=True) + 1e-5)  # noqa: E731
    short_query, short = norm(x @ params["query_down"]), x @ params["key_down"]
    query = jnp.tensordot(short_query, params["query"], 1)
    query = jnp.concatenate((query[..., :6], rotated(query[..., 6:])), -1)
    position = jnp.repeat(rotated(short[:, :, None, 4:]), 3, axis=2)
    key = jnp.concatenate((jnp.tensordot(norm(short[..., :4]), params["key"], 1), position), -1)
    value = jnp.tensordot(norm(short[..., :4]), params["value"], 1)
    value = jnp.pad(value, ((0, 0),) * 3 + ((0, 2),))  # JAX's has values as wide as queries
    expected = jax.nn.dot_product_attention(query, key, value, is_causal=True)[..., :6]
    expected = jnp.tensordot(expected, params["output"], 2)
    np.testing.assert_allclose(layer.apply({"params": params}, x), expected, atol=1e-5)
    # The weights of equation 9 to 19 by hand: two short vectors, and what is computed from them.
    of_norms = 5 + 4
    count = 12 * 5 + 5 * 3 * (6 + 2) + 12 * (4 + 2) + 4 * 3 * (6 + 6) + 3 * 6 * 12 + of_norms
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count


@pytest.mark.parametrize("scan", ["false", "true"])
def test_every_second_layer_sees_all_tokens(scan: str) -> None:
    """A change of the first token reaches the last one only through a layer without a window."""
    sizes = {"layers": "2", "seq": "16", "scan": scan}
    reached = {}
    for global_every in ("0", "2"):
        model, state, batch = built("transformer", window="3", global_every=global_every, **sizes)
        other = batch | {"tokens": batch["tokens"].at[:, 0].set(1 - batch["tokens"][:, 0].clip(0, 1))}
        changed = np.asarray(model.apply(state, batch) != model.apply(state, other)).any(axis=(0, 2))
        reached[global_every] = int(changed.nonzero()[0].max())
    # Two layers of windows of 3 tokens reach 2 · (3 − 1) tokens ahead.
    assert reached == {"0": 4, "2": 15}


def test_rotated_queries_and_keys_know_only_how_far_apart_they_are() -> None:
    query, key = jax.random.normal(jax.random.key(0), (2, 8))
    everywhere = lambda vector: jnp.broadcast_to(vector, (1, 20, 1, 8))  # noqa: E731
    queries, keys = rotated(everywhere(query))[0, :, 0], rotated(everywhere(key))[0, :, 0]
    np.testing.assert_allclose(queries[0], query, atol=1e-6)  # the first position is not turned
    scores = np.asarray(queries @ keys.T)
    for distance in range(-19, 20):
        np.testing.assert_allclose(np.ptp(np.diagonal(scores, distance)), 0, atol=1e-4)
    assert np.ptp(scores) > 0.1


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kv_rule", "window"),
    [
        *((("kv_heads", "tensor"), 0), (("kv_heads", None), 0), (("kv_heads", "tensor"), 100)),
        *((("seq", "tensor"), 0), (("seq", "tensor"), 100)),
    ],
)
def test_splash_attention_is_the_same_in_shards(kv_rule: tuple[str, str | None], window: int) -> None:
    """The kernel, interpreted on emulated devices, against attention without shards."""
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = ((2, 256, 4, 128), (2, 256, 2, 128), (2, 256, 2, 128))
    arrays = [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]
    squares = lambda attention: lambda *arrays: (attention(*arrays) ** 2).sum()  # noqa: E731
    local = (window - 1, 0) if window else None
    plain = functools.partial(jax.nn.dot_product_attention, is_causal=True, local_window_size=local)
    expected = jax.grad(squares(plain), (0, 1, 2))(*arrays)
    mesh = jax.make_mesh((2, 2), ("data", "tensor"), (jax.sharding.AxisType.Auto,) * 2)
    # A sequence of the context axis has no heads on it.
    rules = (("batch", "data"), ("heads", "tensor"), kv_rule)
    if kv_rule[0] == "seq":
        rules = (("batch", "data"), kv_rule)
    splash = functools.partial(splash_attention, window=window, interpret=True)
    with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
        np.testing.assert_allclose(jax.jit(splash)(*arrays), plain(*arrays), atol=1e-5)
        result = jax.jit(jax.grad(squares(splash), (0, 1, 2)))(*arrays)
    for ours, theirs in zip(result, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("window", [0, 5, 20])
@pytest.mark.parametrize(
    "rules",
    [
        (("seq", "context"), ("heads", "tensor"), ("kv_heads", "tensor")),
        (("seq", "context"), ("heads", "tensor")),
        (("seq", ("context", "tensor")),),
    ],
)
def test_ring_attention_is_that_of_jax_with_its_gradients(rules: tuple, window: int) -> None:
    shapes = ((2, 32, 4, 6), (2, 32, 2, 6), (2, 32, 2, 6), (2, 32, 4, 6))
    *arrays, weight = (jax.random.normal(jax.random.key(at), shape) for at, shape in enumerate(shapes))
    local = (window - 1, 0) if window else None

    def of_jax(*arrays: jax.Array) -> jax.Array:
        return (jax.nn.dot_product_attention(*arrays, is_causal=True, local_window_size=local) * weight).sum()

    expected, gradients = jax.value_and_grad(of_jax, argnums=(0, 1, 2))(*arrays)
    mesh = jax.make_mesh((4, 2), ("context", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
        loss = lambda *arrays: (ring_attention(*arrays, window) * weight).sum()  # noqa: E731
        result = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(*arrays)
    assert result[0] == pytest.approx(float(expected), abs=1e-4)
    for gradient, wanted in zip(result[1], gradients, strict=True):
        np.testing.assert_allclose(gradient, wanted, atol=1e-5)
