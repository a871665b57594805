"""FLOPs of JAX's splash attention for TPUs, a Pallas kernel whose custom call states none.

Source: jax/experimental/pallas/ops/tpu/splash_attention. The kernel is called on queries
(…, heads, seq_q, head_dim), keys and values, after two masks of int8 (heads, blocks of queries, blocks of
keys). It skips the blocks that the mask excludes. The text does not contain the values of the mask: if
queries and keys are equally long, it is assumed to be causal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from inspector.compiled.hlo.module import Instruction
from inspector.compiled.hlo.shapes import Shape

TARGET = "tpu_custom_call"
# Matrix products of one kernel, each with seq_q × seq_kv × head_dim multiply-adds for a head. The forward
# pass has QKᵀ and PV. The gradients compute QKᵀ and dO·Vᵀ again; dq is one more, dk and dv are two more.
_PRODUCTS = {"fwd": 2, "dq": 3, "dkv": 4}
_NAME = re.compile(r"splash_m[hq]a_(?:fused_)?(fwd|dq|dkv)")
_MULTIPLY_ADD = 2  # FLOPs
_TILE = 512  # queries and keys of a tile of the built-in models, as in MaxText


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


def share_of_products(seq: int) -> float:
    """Return the FLOPs of the kernels over those of the matrix products that compute causal attention.

    The kernels skip the tiles that the mask excludes. Their gradients compute scores again: with the forward
    pass, which rematerialization runs twice, they have 11 products where JAX's own have 8.
    """
    forward, backward = _PRODUCTS["fwd"], _PRODUCTS["dq"] + _PRODUCTS["dkv"]
    tiles = seq // math.gcd(seq, _TILE)
    return (2 * forward + backward) / (4 * forward) * (tiles + 1) / (2 * tiles)


def _visited(operands: Sequence[Shape | None], seq_q: int, seq_kv: int) -> float:
    """Return the share of blocks that a causal mask leaves; 1 if it cannot be causal."""
    mask = next((operand for operand in operands if operand is not None and operand.dtype == "s8"), None)
    if mask is None or len(mask.dimensions) < 2 or seq_q != seq_kv:
        return 1.0
    blocks = mask.dimensions[-2]
    return (blocks + 1) / (2 * blocks) if blocks and blocks == mask.dimensions[-1] else 1.0
