"""Decode steps against the prefill of the same tokens, and the bytes of stored weights of JAX's arrays."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from inspector.layout.plan import plan
from inspector.model.built_in.quantized import STORED, Stored, stored_product, stored_scale, stored_values
from inspector.partition.partition_layout import partitioned_programs
from inspector.text.errors import InvalidInput
from inspector.tracing.model import build
from inspector.tracing.model.abstract import abstract_state
from tests.models.language_models import built, small

SERVED = {"cache": "16", "seq": "8", "batch": "2", "prefill_batch": "2"}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("transformer", {"scan": "true", "window": "4", "global_every": "2"}),
        ("transformer", {"positions": "learned", "weight_dtype": "int4"}),
        ("moe", {"capacity_factor": "4"}),
    ],
)
def test_decode_steps_fill_the_cache_as_a_prefill_does(model: str, options: dict[str, str]) -> None:
    built_model, state, _ = built(model, **SERVED | options)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(state["cache"]))
    tokens = jax.random.randint(jax.random.key(2), (2, 8), 0, 64)
    decode = jax.jit(built_model.programs["decode"])
    for place in range(8):
        state, after = decode(state, {"token": tokens[:, place]})
    likeliest, kept = jax.jit(built_model.programs["prefill"])(state, {"prompt": tokens})
    assert after.tolist() == likeliest.tolist()
    filled = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(state["cache"])}
    for path, of_prompt in jax.tree.leaves_with_path(kept):
        of_steps = jax.lax.slice_in_dim(filled[jax.tree_util.keystr(path)], 0, 8, axis=of_prompt.ndim - 2)
        np.testing.assert_allclose(of_steps, of_prompt, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "fp8"])
def test_a_small_cache_is_near_the_exact_one(dtype: str) -> None:
    of_tokens = {}
    for cache_dtype in ("same", dtype):
        model, state, _ = built("transformer", **SERVED, cache_dtype=cache_dtype)
        cache = model.programs["prefill"](state, {"prompt": jnp.arange(16).reshape(2, 8)})[1]
        attention = cache["block_0"]["attention"]
        of_tokens[cache_dtype] = attention["key"].astype(float) * attention.get("key_scale", 1.0)
    exact = of_tokens["same"]
    error = np.linalg.norm(of_tokens[dtype] - exact) / np.linalg.norm(exact)
    assert 0 < error < (0.05 if dtype == "fp8" else 0.01)


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize(
    ("subscripts", "left", "right", "scale"),
    [
        ("bsnh,nhm->bsm", (2, 6, 3, 4), (3, 4, 8), (1, 1, 8)),
        ("ebcm,emh->ebch", (3, 2, 4, 8), (3, 8, 5), (3, 1, 5)),
    ],
)
def test_a_product_with_a_stored_weight(name, subscripts, left, right, scale) -> None:
    x = jax.random.normal(jax.random.key(0), left)
    values = stored_values(name)(jax.random.key(1), right, STORED[name])
    scales = jax.random.uniform(jax.random.key(2), scale)
    exact = jnp.einsum(subscripts, x, values.astype(jnp.float32) * scales)
    array = stored_product(subscripts, "none", None, x, Stored(values, scales))
    np.testing.assert_allclose(array, exact, rtol=1e-5, atol=1e-4)
    # A random weight has the variance of one that is not quantized.
    weight = stored_values(name)(jax.random.key(3), (64, 64), STORED[name]).astype(float)
    weight = weight * stored_scale(name, 64)(None, (1, 64), jnp.float32)
    assert float(weight.std()) == pytest.approx(64**-0.5, rel=0.1)


@pytest.mark.parametrize("stored", STORED)
def test_the_bytes_of_stored_weights_are_those_of_the_arrays(stored: str) -> None:
    """One byte for each element of a block's weight, in int4 half a byte in a compiled program."""
    layout = small("transformer", weight_dtype=stored, mesh="1", axes="data", rules="")
    _, state, _ = built("transformer", weight_dtype=stored)
    planned = {array.path: array for array in plan(layout, abstract_state(layout)).arrays}
    for path, leaf in jax.tree.leaves_with_path(state):
        array = planned[jax.tree_util.keystr(path, simple=True, separator="/")]
        assert (array.bytes, array.dtype) == (leaf.nbytes, str(leaf.dtype))
    up = state["params"]["block_0"]["feed_forward"]
    assert (up["up"].dtype, up["up"].nbytes, up["up_scale"].shape) == (STORED[stored], 32 * 64, (1, 64))
    compiled = jax.jit(lambda values: values.astype(jnp.float32)).lower(up["up"]).compile()
    argument = compiled.memory_analysis().argument_size_in_bytes
    assert argument == 32 * 64 // (2 if stored == "int4" else 1)


def test_the_programs_follow_from_the_sizes() -> None:
    expected = [
        ({}, ("train_step", "apply"), "train_step"),
        ({"weight_dtype": "int8"}, ("apply",), "apply"),
        (SERVED | {"weight_dtype": "int8"}, ("decode", "prefill"), "decode"),
    ]
    for fields, programs, step in expected:
        layout = small("transformer", **fields)
        assert (layout.programs, layout.step_program) == (programs, step)
        model = build.build_model(layout)
        named = {"train_step": model.step, "apply": model.apply, **model.programs}
        assert {name for name, function in named.items() if function is not None} == set(programs)


@pytest.mark.parametrize(
    "fields",
    [
        SERVED | {"seq": "32"},
        SERVED | {"kv_rank": "8", "kv_heads": "4"},
        {"weight_dtype": "fp8", "quantization": "int8"},
    ],
)
def test_sizes_that_contradict_each_other_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        build.build_model(small("transformer", **fields))


@pytest.mark.parametrize("stored", ["same", "int8"])
def test_a_decode_step_is_partitioned_on_auto_and_explicit_axes(stored: str) -> None:
    """Tensor parallelism sums twice in each block: the results of attention and of the MLP."""
    rules = "batch=data,heads=tensor,kv_heads=tensor,mlp=tensor"
    sent = []
    for axes in ("data,tensor", "data:explicit,tensor:explicit"):
        options = SERVED | {"weight_dtype": stored, "scan": "true"}
        layout = small("transformer", mesh="2x2", axes=axes, rules=rules, **options)
        (decode,) = partitioned_programs(layout, origins=False, only=("decode",)).programs
        assert decode.collectives is not None
        sent.append(
            [
                (collective.op, collective.executions, collective.payload_bytes)
                for collective in decode.collectives
            ]
        )
    assert sent[0] == sent[1]
    assert sent[0] == [("all-reduce", 2, 32 * 4), ("all-reduce", 2, 32 * 4)]
