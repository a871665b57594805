"""The transformer and the mixture of experts as functions: the same numbers, however they are computed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax.core import meta
from jax._src.ad_checkpoint import saved_residuals

from inspector import layout as layouts
from inspector.model import Model
from inspector.model.built_in.token_training import cross_entropy
from inspector.text.errors import InvalidInput
from inspector.tracing.model import build
from inspector.tracing.model.abstract import abstract_state
from tests.models.language_models import MODELS, built, small

pytestmark = pytest.mark.close_to_jax


@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS)
def test_loop_scan_and_remat_are_one_function_of_the_same_parameters(model: str) -> None:
    """Two steps by plain gradient descent: the second sees every gradient of the first."""
    loop, state, batch = built(model, optimizer="sgd")
    blocks = [state.params[f"block_{number}"] for number in range(2)]
    stacked = {name: part for name, part in state.params.items() if not name.startswith("block_")}
    stacked["blocks"] = jax.tree.map(lambda *layers: np.stack(layers), *blocks)

    def two_losses(model: Model, params: Any) -> tuple[float, float]:
        step = jax.jit(model.step)
        after, first = step(state.replace(params=params), batch)
        return float(first), float(step(after, batch)[1])

    expected = two_losses(loop, state.params)
    assert expected[1] < expected[0]
    variants = [{"scan": "true", "remat": "full"}]
    # Both models have the same blocks, and each variant compiles for seconds.
    if model == "transformer":
        saved = "save:decoder_layer_input+context,offload:out_proj+mlpwi"
        variants += [
            {"scan": "false", "remat": saved},
            {"scan": "true", "remat": "minimal", "accumulate": "4"},
            {"scan": "true", "remat": "none"},
        ]
    for fields in variants:
        other = build.build_model(small(model, optimizer="sgd", **fields))
        params = stacked if fields["scan"] == "true" else state.params
        wanted = jax.eval_shape(other.init, jax.random.key(0), batch).params
        assert jax.tree.structure(meta.unbox(wanted)) == jax.tree.structure(params)
        assert two_losses(other, params) == pytest.approx(expected, rel=1e-6)


@pytest.mark.nightly
def test_half_precision_learns_too_and_the_loss_is_in_full() -> None:
    model, state, batch = built("moe", dtype="bfloat16", scan="true", remat="true", tied="true")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(state.params)} == {"bfloat16"}
    assert "output" not in state.params  # its matrix is the embedding's
    step = jax.jit(model.step)
    after, first = step(state, batch)
    assert first.dtype == "float32"
    assert first == pytest.approx(np.log(64), rel=0.2)
    assert step(after, batch)[1] < first


def kept_shapes(remat: str) -> list[tuple[int, ...]]:
    """The shapes of the activations that the backward pass of one block gets from JAX's own report."""
    model, state, batch = built("transformer", remat=remat, layers="1")
    loss = lambda params: model.apply(state.replace(params=params), batch).sum()  # noqa: E731
    result = saved_residuals(loss, state.params)
    return [kept.shape for kept, source in result if "argument" not in source]


@pytest.mark.nightly
def test_policies_keep_the_activations_that_they_name() -> None:
    full, minimal = (Counter(kept_shapes(remat)) for remat in ("full", "minimal"))
    # batch, seq, and heads or columns of `SMALL`: query, key and value, both products with x, and the output
    # of attention; the backward pass does not need that of the MLP.
    expected = {(8, 16, 4, 8): 1, (8, 16, 2, 8): 2, (8, 16, 64): 2, (8, 16, 32): 1}
    assert minimal - full == expected
    assert Counter(kept_shapes("save:key_proj+mlpwi")) - full == {(8, 16, 2, 8): 1, (8, 16, 64): 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("true", "full"), ("False", "none"), ("minimal", "minimal")),
        ("offload:mlpwo key_proj", "offload:mlpwo+key_proj"),
        ("offload:mlpwo, save:context", "save:context,offload:mlpwo"),
    ],
)
def test_remat_has_one_form_in_links_files_and_fields(text: str, value: str) -> None:
    layout = small("transformer", remat=text)
    assert layout.sizes["remat"] == value
    assert layouts.parse(layouts.to_query(layout)).unwrap() == layout
    assert layouts.from_json(layout.to_json()) == layout
    sizes = layout.to_json()["sizes"] | {"remat": True}
    assert layouts.from_json(layout.to_json() | {"sizes": sizes}).sizes["remat"] == "full"


@pytest.mark.parametrize(
    "text",
    ["all", "save:", "save:query", "save:mlpwo+mlpwo", "save:mlpwo,offload:mlpwo", "keep:mlpwo"],
)
def test_other_texts_of_remat_are_refused(text: str) -> None:
    assert layouts.parse({"model": "transformer", "remat": text}).problems.keys() == {"remat"}


@pytest.mark.nightly
def test_weights_and_moments_have_their_own_types() -> None:
    """Casting the weights by hand before the same model in bfloat16 gives the same logits."""
    model, state, batch = built(
        "transformer", dtype="bfloat16", weight_dtype="float32", optimizer_dtype="bfloat16"
    )
    moments = state.opt_state[0]
    for part, name in (
        (state.params, "float32"),
        (moments.mu, "bfloat16"),
        (moments.nu, "float32"),
    ):
        assert {leaf.dtype.name for leaf in jax.tree.leaves(part)} == {name}
    logits = jax.jit(model.apply)(state, batch)
    assert logits.dtype == "bfloat16"
    half = build.build_model(small("transformer", dtype="bfloat16"))
    cast = state.replace(params=jax.tree.map(lambda leaf: leaf.astype("bfloat16"), state.params))
    np.testing.assert_array_equal(logits, jax.jit(half.apply)(cast, batch))


@pytest.mark.nightly
def test_no_token_sees_those_after_it() -> None:
    model, state, batch = built("transformer")
    apply = jax.jit(model.apply)
    logits = apply(state, batch)
    changed = batch | {"tokens": batch["tokens"].at[:, 9:].set(0)}
    result = apply(state, changed)
    np.testing.assert_allclose(result[:, :9], logits[:, :9], atol=1e-5)
    assert (abs(result[:, 9:] - logits[:, 9:]).max(axis=-1) > 1e-3).all()


def test_targets_are_the_tokens_after() -> None:
    batch = build.build_model(small("transformer")).batch(jax.random.key(1))
    assert batch["tokens"].shape == batch["targets"].shape == (8, 16)
    assert (batch["tokens"][:, 1:] == batch["targets"][:, :-1]).all()


@pytest.mark.nightly
def test_cross_entropy_is_that_of_optax() -> None:
    key = jax.random.key(0)
    logits = 5 * jax.random.normal(key, (3, 4, 7))
    targets = jax.random.randint(key, (3, 4), 0, 7)
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()
    assert cross_entropy(logits, targets) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"heads": "6", "kv_heads": "4"}, "heads is 6, but must be a multiple of kv_heads, which is 4"),
        (
            {"optimizer": "sgd", "optimizer_dtype": "float32"},
            "optimizer_dtype is float32, but must be same",
        ),
        ({"kv_rank": "8", "kv_heads": "8", "rotary_dim": "3"}, "rotary_dim is 3, but must be even"),
        ({"accumulate": "3"}, "batch is 8, but must be a multiple of accumulate, which is 3"),
        ({"attention": "flash", "seq": "96"}, "seq is 96, but must be a multiple of 128"),
        ({"head_dim": "7"}, "head_dim is 7, but must be even"),
        ({"model": "moe", "experts": "1"}, "experts_per_token is 2, but must be at most experts"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_go_together_are_refused(fields: dict[str, str], sentence: str) -> None:
    layout = layouts.parse({"model": "transformer"} | fields).unwrap()
    with pytest.raises(InvalidInput, match=sentence):
        abstract_state(layout)
