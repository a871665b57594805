"""Memory of one GPU in Scaling, the PyTorch framework in which published trials of layouts ran.

A PyTorch program keeps other values than the JAX program of the same layout: autograd keeps what each
operation read, and nothing fuses these operations. This module counts what Scaling keeps, from its source
(github.com/Aleph-Alpha/scaling at 737f855, published a year after the trials):

* bfloat16 weights and their gradients, in full on each data-parallel rank, and each rank's part of the
  float32 weights and of both moments of Adam (`core/optimizer/parameter_group.py`);
* what the layers of one microbatch keep for the backward pass (`core/nn`), or with checkpoints the input of
  each layer, and what one layer keeps;
* the logits: each tensor-parallel rank gathers those of the whole vocabulary (`lm_head.py`), and the loss is
  computed in float32 (`cross_entropy.py`).

It does not count temporaries of the backward pass, buffers of NCCL, and the bucket of gradients in the
optimizer step, when no activations are held. What the allocator holds but cannot use is a share of the
activations, `fragmentation`, which is fitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_WIDTH, _FLOAT32 = 2, 4  # bytes of bfloat16 and of float32
# For each weight: a float32 copy and two moments, one part on each data-parallel rank.
_OPTIMIZER = 3 * _FLOAT32
# For each logit at the start of the backward pass: the gathered bfloat16, and in float32 the logarithm of the
# softmax, and the gradients with respect to it and to the logit.
_LOGIT = _WIDTH + 3 * _FLOAT32
# Shares that are tried for the fragmentation.
_SHARES = tuple(step / 100 for step in range(101))


@dataclass(frozen=True)
class Microbatch:
    """What one model replica computes at a time.

    Attributes:
      sequences, length: Number of sequences, and tokens of each.
      tensor: Tensor-parallel ranks.
      sequence_parallel: Whether they share the tokens between tensor-parallel layers.
      checkpointed: Whether only the input of each layer is kept.
      flash: Whether attention keeps no scores.
      fused_norm: Whether one kernel normalizes. Otherwise autograd also keeps the value before the scale.
    """

    layers: int
    d_model: int
    heads: int
    d_ff: int
    vocabulary: int
    sequences: int
    length: int
    tensor: int
    sequence_parallel: bool
    checkpointed: bool
    flash: bool
    fused_norm: bool

    @property
    def activations(self) -> int:
        """Bytes for the backward pass on one GPU at its start, or with checkpoints at their largest."""
        logits = _LOGIT * self.vocabulary
        if self.checkpointed:
            token = self.layers * self._residual + max(logits, self._layer)
        else:
            token = self.layers * self._layer + logits
        return round(self.sequences * self.length * token)

    @property
    def _residual(self) -> float:
        """Bytes for each token of a value between layers."""
        return _WIDTH * self.d_model / (self.tensor if self.sequence_parallel else 1)

    @property
    def _layer(self) -> float:
        """Bytes for each token that one layer keeps."""
        # The value before and after each of two norms; the latter is gathered for the products.
        values = 2 * (self._residual + _WIDTH * self.d_model)
        if not self.fused_norm:
            values += 2 * self._residual
        # One tensor of queries, keys and values, then queries and keys with rotary positions, and the output.
        # Flash attention copies values if there are several sequences, and then the first tensor is freed.
        widths = 5 if self.flash and self.sequences > 1 else 6
        values += widths * _WIDTH * self.d_model / self.tensor
        if not self.flash:  # the softmax and its mask
            values += _WIDTH * self.heads * self.length / self.tensor + self.length
        # Two projections, the activated one, and the product of both.
        return values + 4 * _WIDTH * self.d_ff / self.tensor


@dataclass(frozen=True)
class Needs:
    """Bytes of state and gradients, and of activations, on one GPU of a trial. `ran`: whether it fit."""

    state: int
    activations: int
    ran: bool

    def total(self, fragmentation: float) -> float:
        """Return all bytes; `fragmentation` is the share of the activations that the allocator loses."""
        return self.state + (1 + fragmentation) * self.activations

    def is_right(self, fragmentation: float, capacity: int) -> bool:
        """Return whether the bytes are at most the capacity if and only if the trial ran."""
        return (self.total(fragmentation) <= capacity) == self.ran


def state_bytes(weights: int, data: int) -> int:
    """Return the bytes of weights, gradients and optimizer state on one GPU.

    Args:
      weights: bytes of the bfloat16 weights on it.
      data: data-parallel ranks.
    """
    return 2 * weights + round(weights / _WIDTH * _OPTIMIZER / data)


def fitted_fragmentation(trials: Iterable[Needs], capacity: int) -> float:
    """Return the fragmentation with which most trials are right, the middle one on a tie; 0 for no trial."""
    every: Sequence[Needs] = tuple(trials)
    if not every:
        return 0.0
    right = [sum(one.is_right(share, capacity) for one in every) for share in _SHARES]
    best = [share for share, count in zip(_SHARES, right, strict=True) if count == max(right)]
    return best[len(best) // 2]
