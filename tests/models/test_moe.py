"""How tokens are handed out to experts, against a walk over them one by one."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import linen as nn
from hypothesis import given
from hypothesis import strategies as st

from inspector.model.built_in.moe import MixtureOfExperts, capacity, route
from tests.models.language_models import CONFIG, built

pytestmark = pytest.mark.close_to_jax

# (tokens, experts, experts a token, places): room for all, for some, one of each, all experts for all.
CASES = ((8, 4, 2, 8), (7, 5, 2, 2), (8, 3, 1, 1), (6, 6, 3, 2), (1, 1, 1, 1), (5, 3, 3, 5))


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


@pytest.mark.nightly
def test_with_enough_capacity_the_layer_is_a_weighted_sum_of_mlps() -> None:
    config = replace(CONFIG, embed=6, mlp=10)
    layer = MixtureOfExperts(config, experts=4, experts_per_token=2, capacity_factor=4)
    x = jax.random.normal(jax.random.key(0), (2, 9, 6))
    params = nn.unbox(layer.init(jax.random.key(1), x))["params"]
    expected = np.zeros(x.shape)
    for row, token in np.ndindex(2, 9):
        one = x[row, token]
        scores = np.asarray(one @ params["router"])
        chosen = np.argsort(-scores)[:2]
        for expert, weight in zip(chosen, jax.nn.softmax(scores[chosen]), strict=True):
            gate, up, down = (params[name][expert] for name in ("gate", "up", "down"))
            expected[row, token] += weight * ((nn.silu(one @ gate) * (one @ up)) @ down)
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
