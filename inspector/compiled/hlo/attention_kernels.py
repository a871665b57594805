"""FLOPs of JAX's splash attention for TPUs, a Pallas kernel whose custom call states none, and of the kernels
that replace the attention of a program that is not compiled yet.

Source: jax/experimental/pallas/ops/tpu/splash_attention. The kernel is called on queries
(…, heads, seq_q, head_dim), keys and values, after two masks of int8 (heads, blocks of queries, blocks of
keys). It skips the blocks that the mask excludes. The text does not contain the values of the mask: if
queries and keys are equally long, it is assumed to be causal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.compiled.hlo.module import Instruction
from inspector.compiled.hlo.shapes import Shape

TARGET = "tpu_custom_call"
# Matrix products of one kernel, each with seq_q × seq_kv × head_dim multiply-adds for a head. The forward
# pass has QKᵀ and PV. The gradients compute QKᵀ and dO·Vᵀ again; dq is one more, dk and dv are two more.
_PRODUCTS = {"fwd": 2, "dq": 3, "dkv": 4}
_NAME = re.compile(r"splash_m[hq]a_(?:fused_)?(fwd|dq|dkv)")
_MULTIPLY_ADD = 2  # FLOPs
# Queries and keys of a tile: those of the built-in models on TPUs, as in MaxText, and of cuDNN and
# FlashAttention-2 (arXiv:2307.08691) on GPUs.
_TILES = {"tpu": 512, "gpu": 128}
# Matrix products of the gradients. One kernel of GPUs has all of them, and computes QKᵀ again.
_GRADIENT_PRODUCTS = {"tpu": _PRODUCTS["dq"] + _PRODUCTS["dkv"], "gpu": 5}
# Dimensions of the scores in `models/dot_product.py`.
_SCORE_DIMENSIONS = 5


@dataclass(frozen=True)
class PlannedKernel:
    """The kernel that will compute the attention of a program, which has matrix products before its compile.

    Attributes:
      queries, keys: the two lengths of the scores on one device, which the kernel keeps on the chip.
      forward_share, train_share: FLOPs of the kernels over those of the matrix products, in a program without
        gradients and in a train step.
    """

    queries: int
    keys: int
    forward_share: float
    train_share: float

    def share(self, trains: bool) -> float:
        """Return the share in a train step or in a program without gradients."""
        return self.train_share if trains else self.forward_share

    def has_scores(self, shape: Shape | None) -> bool:
        """Return whether an array of this shape has a score for each pair of a query and a key.

        Scores have dimensions for the sequences, the heads of keys, the queries of each of them, and two for
        the tokens. Activations and weights can have two dimensions of this size too, but at most four in all.
        """
        if shape is None or shape.parts is not None or len(shape.dimensions) < _SCORE_DIMENSIONS:
            return False
        if self.queries == self.keys:
            return shape.dimensions.count(self.keys) >= 2
        return self.queries in shape.dimensions and self.keys in shape.dimensions


def visited_share(seq: int, window: int, kind: Literal["tpu", "gpu"]) -> float:
    """Return the share of the scores in the tiles that a causal mask leaves.

    window: tokens that a query sees, itself and those before it; 0 for all.
    """
    tile = math.gcd(seq, _TILES[kind])
    tiles = seq // tile
    # A row of tiles sees its own one, and those that the window of its first query reaches.
    most = min(tiles, 1 + -(-(window - 1) // tile)) if window else tiles
    return (most * tiles - most * (most - 1) / 2) / tiles**2


def share_of_products(kept: Literal["all", "result", "nothing"], kind: Literal["tpu", "gpu"]) -> float:
    """Return the FLOPs of the kernels of a train step over those of the products that they replace.

    Each is without the tiles that a mask excludes.

    Args:
      kept: what of the attention rematerialization keeps: all, its result, or nothing. If nothing, its
        forward pass runs again. If its result, only the scores are computed again, and not by a kernel.
    """
    forward = 2 if kept == "nothing" else 1
    products = {"all": 6, "result": 7, "nothing": 8}[kept]
    return (forward * _PRODUCTS["fwd"] + _GRADIENT_PRODUCTS[kind]) / products


def kernel(instruction: Instruction) -> str | None:
    """Return fwd, dq or dkv for a call of splash attention; None for any other instruction."""
    if instruction.opcode != "custom-call" or instruction.target != TARGET:
        return None
    match = _NAME.search(instruction.name) or _NAME.search(instruction.metadata.get("op_name", ""))
    return match[1] if match else None


def flops(name: str, operands: Sequence[Shape | None]) -> tuple[int | None, str | None]:
    """Return the FLOPs of one execution of a kernel, and the operand type. None if unknown."""
    arrays = [operand for operand in operands if operand is not None and (operand.element_bits or 0) >= 16]
    arrays = [array for array in arrays if len(array.dimensions) >= 3]
    if len(arrays) < 2:
        return None, None
    query, key = arrays[:2]
    counts = (*query.dimensions, *key.dimensions[-2:])
    if None in counts:
        return None, None
    *rest, width = (dimension or 0 for dimension in query.dimensions)
    seq_kv = key.dimensions[-2] or 0
    products = _PRODUCTS[name] * _MULTIPLY_ADD * math.prod(rest) * width * seq_kv
    return round(products * _visited(operands, rest[-1], seq_kv)), query.dtype


def _visited(operands: Sequence[Shape | None], seq_q: int, seq_kv: int) -> float:
    """Return the share of blocks that a causal mask leaves; 1 if it cannot be causal."""
    mask = next((operand for operand in operands if operand is not None and operand.dtype == "s8"), None)
    if mask is None or len(mask.dimensions) < 2 or seq_q != seq_kv:
        return 1.0
    blocks = mask.dimensions[-2]
    return (blocks + 1) / (2 * blocks) if blocks and blocks == mask.dimensions[-1] else 1.0
