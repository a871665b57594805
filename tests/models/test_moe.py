"""How tokens are handed out to experts, against a walk over them one by one."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import linen as nn
from hypothesis import given
from hypothesis import strategies as st

from inspector.model.built_in.moe import MixtureOfExperts, capacity, chosen, combining
from inspector.partition.partition_layout import partitioned_programs
from inspector.tracing.model import build
from tests.models.language_models import CONFIG, built, small

pytestmark = pytest.mark.close_to_jax

# (tokens, experts, experts a token, places): room for all, for some, one of each, all experts for all.
CASES = ((8, 4, 2, 8), (7, 5, 2, 2), (8, 3, 1, 1), (6, 6, 3, 2), (1, 1, 1, 1), (5, 3, 3, 5))


def route(scores: jax.Array, experts_per_token: int, places: int) -> tuple[jax.Array, jax.Array]:
    choices, balance = chosen(scores, experts_per_token)
    return combining(choices, scores.shape[-1], places), balance


jitted_route = jax.jit(route, static_argnums=(1, 2))


def walked(scores: np.ndarray, experts_per_token: int, places: int) -> np.ndarray:
    """What `route` combines by, one token after the other."""
    batch, seq, experts = scores.shape
    combine = np.zeros((batch, seq, experts, places))
    for row in range(batch):
        taken = [0] * experts
        order = np.argsort(-scores[row], axis=-1, kind="stable")[:, :experts_per_token]
        for choice in range(experts_per_token):
            for token in range(seq):
                expert = order[token, choice]
                if taken[expert] < places:
                    total = scores[row, token, order[token]].sum()
                    combine[row, token, expert, taken[expert]] = scores[row, token, expert] / total
                taken[expert] += 1
    return combine


@pytest.mark.nightly
@given(st.sampled_from(CASES), st.integers(0, 9999))
def test_tokens_are_routed_in_order(case: tuple[int, int, int, int], seed: int) -> None:
    seq, experts, experts_per_token, places = case
    logits = np.random.default_rng(seed).normal(size=(2, seq, experts))
    scores = np.asarray(jax.nn.softmax(3 * logits), np.float32)
    combine, _ = jitted_route(scores, experts_per_token, places)
    np.testing.assert_allclose(combine, walked(scores, experts_per_token, places), atol=1e-6)
    # No place is given twice, and no token has more of them than it asked for.
    assert ((combine > 0).sum(axis=1) <= 1).all()
    assert ((combine > 0).sum(axis=(2, 3)) <= experts_per_token).all()


@pytest.mark.nightly
def test_load_balance_ranges_from_one_to_the_number_of_experts() -> None:
    equal = np.tile(np.eye(4, dtype=np.float32), (1, 3, 1))
    assert route(equal, 1, 12)[1] == pytest.approx(1)
    busy = np.tile(np.eye(4, dtype=np.float32)[:1], (1, 12, 1))
    assert route(busy, 1, 12)[1] == pytest.approx(4)


@given(st.integers(1, 300), st.integers(1, 16), st.floats(0.01, 40))
def test_capacity_is_between_one_place_and_the_sequence(seq: int, experts: int, factor: float) -> None:
    places = capacity(seq, experts, 1, factor)
    assert 1 <= places <= seq
    assert places == seq or places * experts >= seq * factor * 0.999999


@pytest.mark.parametrize(("experts_per_token", "factor"), [(1, 0.5), (2, 4.0)])
def test_sorted_tokens_and_masks_give_the_same(experts_per_token: int, factor: float) -> None:
    """With one choice for each token, full buffers have the same tokens, too. So do gradients."""
    sizes = {"experts": 4, "experts_per_token": experts_per_token, "capacity_factor": factor}
    by_mask, by_sort = (
        MixtureOfExperts(replace(CONFIG, embed=6, mlp=10), routing=routing, **sizes)
        for routing in ("masks", "sorted")
    )
    x = jax.random.normal(jax.random.key(0), (2, 9, 6))
    params = nn.unbox(by_mask.init(jax.random.key(1), x))
    assert jax.tree.structure(nn.unbox(by_sort.init(jax.random.key(1), x))) == jax.tree.structure(params)
    squares = lambda layer: lambda params: (layer.apply(params, x) ** 2).sum()  # noqa: E731
    (expected, of_mask), (found, of_sort) = (
        jax.value_and_grad(squares(layer))(params) for layer in (by_mask, by_sort)
    )
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-4), of_mask, of_sort)


def test_flops_of_sorted_tokens_are_those_of_a_dropless_model() -> None:
    sizes = {"experts": "4", "experts_per_token": "2", "capacity_factor": "1", "routing": "sorted"}
    layout = small("moe", **sizes, shared_mlp="24", scan="true", mesh="2", axes="data", rules="batch=data")
    (step,) = partitioned_programs(layout, origins=False, only=("train_step",)).programs
    assert step.work is not None and step.work.matmul is not None
    tokens, layers, embed, mlp, heads, kv, width, vocab = 8 * 16 / 2, 2, 32, 64, 4, 2, 8, 64
    attention = embed * (2 * heads + 2 * kv) * width + 2 * heads * 16 * width
    experts = embed * 4 + 3 * embed * (2 * mlp + 24)
    expected = 3 * 2 * tokens * (layers * (attention + experts) + embed * vocab)
    assert sum(product.flops for product in step.work.matmul) == expected
    grouped = sum(step.work.grouped.values())
    assert grouped == 3 * 2 * tokens * layers * 3 * embed * 2 * mlp
    # A kernel multiplies one tile of 256 rows more for each expert, and masks matrices of 32 × 64.
    rows = tokens * 2 / 4
    assert step.work.grouped_tiles == step.work.grouped_masked
    assert sum(step.work.grouped_tiles.values()) == grouped * (rows + 256) / rows
    # Nothing is sent but gradients and the loss, because each sequence is sorted by itself.
    assert {collective.op for collective in step.collectives or ()} == {"all-reduce"}


def test_parameters_of_deepseek_are_those_of_its_paper() -> None:
    """671B parameters (arXiv:2412.19437) without its module for a second token."""
    sizes = {
        **{"layers": "61", "embed": "7168", "mlp": "2048", "heads": "128", "kv_heads": "128"},
        **{"head_dim": "128", "vocab": "129280", "q_rank": "1536", "kv_rank": "512", "rotary_dim": "64"},
        **{"experts": "256", "experts_per_token": "8", "shared_mlp": "2048", "dense_layers": "3"},
        **{"dense_mlp": "18432", "scan": "true", "dtype": "bfloat16", "routing": "sorted"},
    }
    model = build.build_model(small("moe", **sizes))
    batch = jax.eval_shape(model.batch, jax.random.key(0))
    state = jax.eval_shape(model.init, jax.random.key(0), batch)
    count = sum(leaf.size for leaf in jax.tree.leaves(nn.unbox(state.params)))
    assert count == pytest.approx(671e9, rel=0.001)


@pytest.mark.nightly
@pytest.mark.parametrize("routing", ["masks", "sorted"])
def test_with_enough_capacity_the_layer_is_a_weighted_sum_of_mlps(routing: str) -> None:
    config = replace(CONFIG, embed=6, mlp=10)
    layer = MixtureOfExperts(config, experts=4, experts_per_token=2, capacity_factor=4, routing=routing)
    x = jax.random.normal(jax.random.key(0), (2, 9, 6))
    params = nn.unbox(layer.init(jax.random.key(1), x))["params"]
    expected = np.zeros(x.shape)
    for row, token in np.ndindex(2, 9):
        array = x[row, token]
        scores = np.asarray(array @ params["router"])
        chosen = np.argsort(-scores)[:2]
        for expert, weight in zip(chosen, jax.nn.softmax(scores[chosen]), strict=True):
            gate, up, down = (params[name][expert] for name in ("gate", "up", "down"))
            expected[row, token] += weight * ((nn.silu(array @ gate) * (array @ up)) @ down)
    np.testing.assert_allclose(layer.apply({"params": params}, x), expected, atol=1e-5)


@pytest.mark.nightly
def test_every_experts_share_of_the_loss_reaches_its_router() -> None:
    model, state, batch = built("moe")
    after, _ = jax.jit(model.step)(state, batch)
    for number in range(2):
        layer = f"block_{number}"
        before, now = (one.params[layer]["feed_forward"] for one in (state, after))
        assert (before["router"] != now["router"]).any(axis=0).all()
        assert (before["down"] != now["down"]).any(axis=(1, 2)).all()
