"""FLOPs of attention kernels whose calls state none: JAX's splash attention for TPUs, that of cuDNN, and the
kernels that replace the attention of a program that is not compiled yet.

Sources: jax/experimental/pallas/ops/tpu/splash_attention and jax/_src/cudnn/fused_attention_stablehlo.py.

Splash attention is called on queries (…, heads, seq_q, head_dim), keys and values, after two masks of int8
(heads, blocks of queries, blocks of keys). It skips the blocks that the mask excludes. The text does not
contain the values of the mask: if queries and keys are equally long, it is assumed to be causal, with a
sliding window if it has fewer blocks of keys than of queries.

The calls of cuDNN have the shape of the scores (batch, heads, seq_q, seq_kv), the kind of the mask and the
length of a sliding window in their configuration. Scores that the mask excludes are not computed. Both
sequences are counted as long as their arrays, also with a mask of padding.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from inspector.hlo.module import Instruction
from inspector.hlo.shapes import Shape

TARGET = "tpu_custom_call"
CUDNN = "__cudnn$fmha"
# Matrix products of one kernel, each with seq_q × seq_kv × head_dim multiply-adds for a head. The forward
# pass has QKᵀ and PV. The gradients compute QKᵀ and dO·Vᵀ again; dq is one more, dk and dv are two more.
_PRODUCTS = {"fwd": 2, "dq": 3, "dkv": 4, "bwd": 5}
_NAME = re.compile(r"splash_m[hq]a_(?:fused_)?(fwd|dq|dkv)")
_MULTIPLY_ADD = 2  # FLOPs
# Queries and keys of a tile, by chip or kind: those of the built-in models on TPUs, as in MaxText, those of
# MaxText's recipes for v6e and of tpu-recipes for tpu7x, and of cuDNN and FlashAttention-2 (arXiv:2307.08691)
# on GPUs.
_TILES = {"tpu": 512, "v6e": 2048, "tpu7x": 2048, "gpu": 128}
# Time of a tile that the edge of a mask crosses, over that of another one: tuned kernels of tokamax on tpu7x
# reach 1.3 to 1.5 times as much of the peak without a mask with 8,192 tokens, 1.3 to 1.4 with 16,384.
_CROSSED = {"tpu7x": 1.6}
# Matrix products of the gradients. One kernel of GPUs and of these recipes has all of them, and computes QKᵀ
# again.
_GRADIENT_PRODUCTS = {"tpu": _PRODUCTS["dq"] + _PRODUCTS["dkv"]}
# In the configuration of a call of cuDNN, as JSON or as a string of JSON.
_SCORES = re.compile(
    r'intermediate_tensor_shape\\?"\s*+:\s*+\{[^{}]{0,200}?dimensions\\?"\s*+:\s*+\[([\d,\s"\\]{1,100})\]'
)
_MASK = re.compile(r'mask_type\\?"\s*+:\s*+\\?"(\w{1,40})')
_WINDOW = re.compile(r'sliding_window_length\\?"\s*+:\s*+\\?"?(\d{1,18})')
_NUMBER = re.compile(r"\d{1,18}")
# Dimensions of the scores in `models/dot_product.py`.
_SCORE_DIMENSIONS = 5


@dataclass(frozen=True)
class PlannedKernel:
    """The kernel that will compute the attention of a program, which has matrix products before its compile.

    Attributes:
      queries, keys: the two lengths of the scores on one device, which the kernel keeps on the chip.
      forward_share, train_share: FLOPs of the kernels over those of the matrix products, in a program without
        gradients and in a train step.
      widths: elements of a head of queries, and of values.
    """

    queries: int
    keys: int
    forward_share: float
    train_share: float
    widths: tuple[int, ...] = ()

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


def kernel_on(chip: str | None, kind: Literal["tpu", "gpu"]) -> str:
    """Return the name of the kernel of a chip for `visited_share` and `share_of_products`."""
    return chip if chip in _TILES else kind


def visited_share(seq: int, window: int, kernel: str) -> float:
    """Return the share of the scores in the tiles that a causal mask leaves, with the time that masks take.

    Args:
      window: tokens that a query sees, itself and those before it; 0 for all.
      kernel: as `kernel_on` returns it.
    """
    tile = math.gcd(seq, _TILES[kernel])
    tiles, most = seq // tile, window or seq
    visited = 0.0
    for distance in range(tiles):  # of the keys of a tile before its queries, in tiles
        nearest, farthest = (distance - 1) * tile + 1, (distance + 1) * tile - 1  # of two of its tokens
        if nearest >= most:
            break
        crossed = distance == 0 or farthest >= most
        visited += (tiles - distance) * (_CROSSED.get(kernel, 1.0) if crossed else 1.0)
    return visited / tiles**2


def share_of_products(kept: Literal["all", "result", "nothing"], kernel: str) -> float:
    """Return the FLOPs of the kernels of a train step over those of the products that they replace.

    Each is without the tiles that a mask excludes.

    Args:
      kept: what of the attention rematerialization keeps: all, its result, or nothing. If nothing, its
        forward pass runs again. If its result, only the scores are computed again, and not by a kernel.
      kernel: as `kernel_on` returns it.
    """
    forward = 2 if kept == "nothing" else 1
    products = {"all": 6, "result": 7, "nothing": 8}[kept]
    return (forward * _PRODUCTS["fwd"] + _GRADIENT_PRODUCTS.get(kernel, _PRODUCTS["bwd"])) / products


class Kernel(NamedTuple):
    """A call of an attention kernel. `part` is fwd, dq, dkv or bwd."""

    part: str
    cudnn: bool


def kernel(instruction: Instruction) -> Kernel | None:
    """Return which attention kernel an instruction calls; None for any other instruction."""
    if instruction.opcode != "custom-call":
        return None
    target = instruction.target
    if target.startswith(CUDNN):
        return Kernel("bwd" if "Backward" in target else "fwd", True)
    if target != TARGET:
        return None
    match = _NAME.search(instruction.name) or _NAME.search(instruction.metadata.get("op_name", ""))
    return Kernel(match[1], False) if match else None


def head_width(instruction: Instruction, operands: Sequence[Shape | None]) -> int | None:
    """Return the elements of a head of the queries of splash attention; None for any other instruction."""
    called = kernel(instruction)
    arrays = _arrays(operands) if called is not None and not called.cudnn else []
    return arrays[0].dimensions[-1] if arrays else None


def _arrays(operands: Sequence[Shape | None]) -> list[Shape]:
    """Return queries, keys and values among the operands of splash attention, in this order."""
    wide = (operand for operand in operands if operand is not None and (operand.element_bits or 0) >= 16)
    return [array for array in wide if len(array.dimensions) >= 3]


def flops(
    called: Kernel, instruction: Instruction, operands: Sequence[Shape | None]
) -> tuple[int | None, str | None]:
    """Return the FLOPs of one execution of a kernel, and the operand type. None if unknown."""
    if called.cudnn:
        return _cudnn_flops(called, instruction, operands)
    arrays = _arrays(operands)
    if len(arrays) < 2:
        return None, None
    query, key = arrays[:2]
    counts = (*query.dimensions, *key.dimensions[-2:])
    if None in counts:
        return None, None
    *rest, width = (dimension or 0 for dimension in query.dimensions)
    seq_kv = key.dimensions[-2] or 0
    products = _PRODUCTS[called.part] * _MULTIPLY_ADD * math.prod(rest) * width * seq_kv
    return round(products * _visited(operands, rest[-1], seq_kv)), query.dtype


def scores(seq_q: int, seq_kv: int, causal: bool, window: int = 0) -> int:
    """Return the number of scores of a head that a mask leaves.

    Args:
      causal: whether query i uses the keys 0 to i only.
      window: the most keys that a causal query uses, the last ones; 0 for all.

    Example:
      >>> scores(4, 4, False), scores(4, 4, True), scores(4, 4, True, 2)
      (16, 10, 7)
    """
    if not causal:
        return seq_q * seq_kv
    longest = min(window or seq_kv, seq_kv)
    rising = min(seq_q, longest)  # queries that use one key more than the one before
    return rising * (rising + 1) // 2 + (seq_q - rising) * longest


def _cudnn_flops(
    called: Kernel, instruction: Instruction, operands: Sequence[Shape | None]
) -> tuple[int | None, str | None]:
    text = instruction.attributes_text
    shape = _SCORES.search(text)
    dimensions = [int(digits) for digits in _NUMBER.findall(shape[1])] if shape else []
    query = operands[0] if operands else None
    if len(dimensions) != 4 or query is None or not query.dimensions or query.dimensions[-1] is None:
        return None, None
    batch, heads, seq_q, seq_kv = dimensions
    mask, window = _MASK.search(text), _WINDOW.search(text)
    length = int(window[1]) if window else 0
    left = scores(seq_q, seq_kv, bool(length) or (mask is not None and "CAUSAL" in mask[1]), length)
    products = _PRODUCTS[called.part] * _MULTIPLY_ADD
    return products * batch * heads * left * query.dimensions[-1], query.dtype


def _visited(operands: Sequence[Shape | None], seq_q: int, seq_kv: int) -> float:
    """Return the share of blocks that a causal mask leaves; 1 if it cannot be causal.

    With a sliding window, the mask has as many blocks in a row as the longest row needs. The kernel of dk and
    dv has these in a column. Blocks are assumed to have as many keys as queries.
    """
    mask = next((operand for operand in operands if operand is not None and operand.dtype == "s8"), None)
    if mask is None or len(mask.dimensions) < 2 or seq_q != seq_kv:
        return 1.0
    columns, rows = sorted(dimension or 0 for dimension in mask.dimensions[-2:])
    return scores(rows, rows, True, columns) / rows**2 if columns else 1.0
