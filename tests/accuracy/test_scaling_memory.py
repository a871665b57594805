"""The memory of published trials in PyTorch, against lists of the tensors and against ZeRO's formula."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.accuracy.scaling_memory import Microbatch, Needs, fitted_fragmentation, state_bytes

B, S, H, A, F, V, LAYERS = 2, 8, 12, 3, 20, 50, 4
MICROBATCH = Microbatch(
    layers=LAYERS, d_model=H, heads=A, d_ff=F, vocabulary=V, sequences=B, length=S, tensor=1,
    sequence_parallel=False, checkpointed=False, flash=True, fused_norm=True,
)  # fmt: skip
# Tensors that autograd keeps of one layer, and of the loss: shape and bytes of an element.
NORM = [((B, S, H), 2), ((B, S, H), 2)]  # input and output
FLASH = 5 * [((S, B, H), 2)]  # queries, keys, values, output, and the input of the output layer
PLAIN = [((S, B, 3 * H), 2), *3 * [((S, B, H), 2)], ((B, A, S, S), 2), ((B, 1, S, S), 1)]
MLP = 4 * [((B, S, F), 2)]
LOSS = [((B, S, V), 2), *3 * [((B, S, V), 4)]]


def counted(tensors: list[tuple[tuple[int, ...], int]]) -> int:
    return sum(math.prod(shape) * size for shape, size in tensors)


def test_the_activations_are_those_of_all_layers_and_of_the_loss() -> None:
    layer = counted(2 * NORM + FLASH + MLP)
    assert MICROBATCH.activations == LAYERS * layer + counted(LOSS)
    unfused = replace(MICROBATCH, fused_norm=False)
    assert unfused.activations == MICROBATCH.activations + LAYERS * 2 * counted(NORM[:1])
    plain = replace(MICROBATCH, flash=False)
    assert plain.activations == LAYERS * counted(2 * NORM + PLAIN + MLP) + counted(LOSS)


def test_with_checkpoints_one_layer_or_the_loss_is_kept_beside_the_inputs() -> None:
    kept = replace(MICROBATCH, checkpointed=True)
    inputs = LAYERS * counted(NORM[:1])
    assert kept.activations == inputs + counted(LOSS)
    few = replace(kept, vocabulary=1)
    assert few.activations == inputs + counted(2 * NORM + FLASH + MLP)


def test_tensor_parallel_ranks_share_all_but_norms_and_logits() -> None:
    two = replace(MICROBATCH, tensor=2)
    shared = LAYERS * counted(FLASH + MLP)
    assert two.activations == MICROBATCH.activations - shared // 2
    # Sequence parallelism also splits the inputs of the norms. Their outputs are gathered.
    split = replace(two, sequence_parallel=True)
    assert split.activations == two.activations - LAYERS * counted(NORM) // 2


@pytest.mark.parametrize("data", [1, 4, 64])
def test_the_state_is_that_of_zero_1(data: int) -> None:
    # arXiv 1910.02054, figure 1: 2Ψ + 2Ψ + KΨ/N bytes with K = 12.
    weights = 1_000_000
    assert state_bytes(2 * weights, data) == pytest.approx(4 * weights + 12 * weights / data, abs=1)


def test_the_fragmentation_is_the_middle_of_the_best() -> None:
    # Right from 0.25 on, and up to 0.75: 100 + 40 × 1.25 = 150.
    out = Needs(state=100, activations=40, ran=False)
    ran = Needs(state=80, activations=40, ran=True)
    share = fitted_fragmentation([out, ran], 150)
    assert 0.26 <= share <= 0.75 and share == pytest.approx(0.51, abs=0.01)
    assert out.is_right(share, 150) and ran.is_right(share, 150)
    assert not out.is_right(0.2, 150) and not ran.is_right(0.8, 150)
    assert fitted_fragmentation([], 150) == 0
