"""Closed forms of scaling, against sums over shapes and against the communication that they weigh up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.core.errors import InvalidInput
from inspector.machines.hardware import chip
from inspector.machines.prediction import scaling

small = st.integers(1, 64)


@given(small, small, small, small, small, small, small, st.sampled_from([1, 2]))
def test_parameters_are_the_sizes_of_all_matrices(
    layers, model, hidden, queries, keys, head, vocabulary, embeddings
) -> None:
    shapes = [(vocabulary, model)] * embeddings
    for _ in range(layers):
        shapes += [(model, hidden), (model, hidden), (hidden, model)]
        shapes += [(model, queries, head), (queries, head, model)]
        shapes += [(model, keys, head), (model, keys, head)]
    assert scaling.gated_transformer_parameters(
        layers, model, hidden, queries, keys, head, vocabulary, embeddings
    ) == sum(math.prod(shape) for shape in shapes)


@given(st.floats(1e4, 1e8), st.integers(1024, 10**5), st.integers(4, 10**4), st.floats(100, 1e4))
def test_the_best_split_makes_both_communicate_equally_long(
    tokens, hidden, chips, intensity
) -> None:
    """FSDP moves the weights, 4·D·F/(Y·W) seconds, tensor parallelism the activations, 4·B·D/(X·W)."""
    fsdp = scaling.best_fsdp_chips(tokens, hidden, chips)
    weights, activations = hidden * fsdp / chips, tokens / fsdp
    assert weights == pytest.approx(activations)
    # At the batch from which that is bound by compute, both take as long as the FLOPs: 4·B·D·F/(N·C).
    least = scaling.mixed_tokens_per_chip(hidden, intensity) * chips
    at_least = scaling.best_fsdp_chips(least, hidden, chips)
    together = hidden * at_least / chips + least / at_least
    assert together == pytest.approx(least * hidden / chips / intensity)


@given(st.integers(256, 10**5), st.integers(256, 10**6))
def test_two_dimensional_weights_win_from_where_their_communication_is_less(model, hidden) -> None:
    """2·D/X + 4·F·X/N bytes a token over one axis each, at the X that makes it least, against 4·D/3."""
    chips = scaling.chips_for_two_dimensional_weights(model, hidden)
    best = math.sqrt(chips * model / (2 * hidden))
    assert 2 * model / best + 4 * hidden * best / chips == pytest.approx(4 * model / 3)


def test_a_run_at_full_use_is_its_flops_over_the_peak() -> None:
    v3 = chip("v3")
    assert scaling.run_seconds(1.4e14 * 10, v3, 10) == pytest.approx(1)
    assert scaling.run_seconds(1.4e14 * 10, v3, 10, utilisation=0.5) == pytest.approx(2)
    assert scaling.model_flops_utilisation(1.4e14, 2, 1.4e14) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: scaling.run_seconds(1, chip("v5p"), 0),
        lambda: scaling.run_seconds(1, chip("v5p"), 1, utilisation=0),
        lambda: scaling.run_seconds(-1, chip("v5p"), 1),
        lambda: scaling.run_seconds(1, chip("v5p"), 1, "float64"),
        lambda: scaling.model_flops_utilisation(1, 0, 1),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(InvalidInput):
        call()
