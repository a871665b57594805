"""Closed forms of transformer scaling: parameters, bytes, FLOPs, and how far a layout can be scaled.

From "How to Scale Your Model" (https://jax-ml.github.io/scaling-book), the chapters named at each. `α`
is `cost.critical_intensity` of the chip's FLOP/s and the bandwidth of one mesh axis, in FLOP per byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from inspector.machines.hardware import Chip
from inspector.machines.prediction.cost import compute_time, positive

SECONDS_PER_DAY = 86_400

# bfloat16 parameters, and Adam's two moments in float32 (chapter 5).
ADAM_STATE_BYTES_PER_PARAMETER = 2 + 4 + 4


def gated_transformer_parameters(
    layers: int,
    model: int,
    hidden: int,
    query_heads: int,
    key_heads: int,
    head: int,
    vocabulary: int,
    embeddings: int = 2,
) -> int:
    """Parameters of a transformer with gated MLPs, norms left out (chapter 4).

    layers · (3·model·hidden + 2·model·head·(query_heads + key_heads)) + embeddings·vocabulary·model;
    `embeddings` is 1 where input and output share one.
    """
    mlp = 3 * model * hidden
    attention = 2 * model * head * (query_heads + key_heads)
    return layers * (mlp + attention) + embeddings * vocabulary * model


def training_flops(parameters: float, tokens: float) -> float:
    """6 FLOPs a parameter and token: two forward, four backward; attention itself left out (chapter 4)."""
    return 6 * parameters * tokens


def forward_flops(parameters: float, tokens: float) -> float:
    """2 FLOPs a parameter and token (chapter 4)."""
    return 2 * parameters * tokens


def adam_state_bytes(parameters: float) -> float:
    """Bytes of bfloat16 parameters with Adam's moments in float32 (chapter 5)."""
    return ADAM_STATE_BYTES_PER_PARAMETER * parameters


def checkpoint_bytes(
    layers: int, tokens: float, widths: Sequence[int], item_bytes: float = 2
) -> float:
    """Bytes of activations kept for the backward pass, `widths` of them a layer (chapter 5)."""
    return item_bytes * layers * tokens * sum(widths)


def key_value_bytes_per_token(
    layers: int, key_heads: int, head: int, item_bytes: float = 2
) -> float:
    """Bytes of the KV cache for one token: 2·layers·key_heads·head elements (chapter 7)."""
    return 2 * layers * key_heads * head * item_bytes


def run_seconds(
    flops: float, chip: Chip, chips: int, dtype: str = "bfloat16", utilisation: float = 1
) -> float:
    """Seconds that so many chips need at this share of their peak.

    Raises:
      InvalidInput: a number is not above zero, or no peak is known for the type.
    """
    positive("chips", chips)
    positive("utilisation", utilisation)
    return compute_time(flops, chip, dtype).seconds / (chips * chip.devices * utilisation)


def model_flops_utilisation(flops: float, chip_seconds: float, flops_per_second: float) -> float:
    """Share of the peak: useful FLOPs over what the chips could have done in that time."""
    positive("chip_seconds", chip_seconds)
    positive("flops_per_second", flops_per_second)
    return flops / (chip_seconds * flops_per_second)


def chips_to_hold(count: float, chip: Chip) -> float:
    """How many chips' HBM so many bytes fill; not rounded."""
    return count / chip.hbm_bytes


def decode_seconds(
    batch: int,
    parameters: float,
    parameter_bytes: float,
    key_value_bytes: float,
    chip: Chip,
    chips: int,
) -> float:
    """Seconds of one decoding step (chapter 7).

    Reading `key_value_bytes` of each sequence, then the matrix products: the longer of their FLOPs and
    of reading all parameters.
    """
    bandwidth = chips * chip.hbm_bytes_per_second
    products = run_seconds(forward_flops(parameters, batch), chip, chips)
    return batch * key_value_bytes / bandwidth + max(products, parameter_bytes / bandwidth)


def data_parallel_tokens_per_chip(intensity: float, experts: int = 1, active: int = 1) -> float:
    """Tokens a chip from which data parallelism or FSDP is bound by compute: α·experts/active (chapter 5)."""
    return intensity * experts / active


def tensor_parallel_limit(hidden: int, intensity: float, axes: int = 1) -> float:
    """Chips up to which tensor parallelism over so many torus axes is bound by compute: hidden·axes/α."""
    return hidden * axes / intensity


def best_fsdp_chips(
    tokens: float, hidden: int, chips: int, fsdp_axes: int = 1, tensor_axes: int = 1
) -> float:
    """How many of the chips to give to FSDP, the others to tensor parallelism (chapter 5).

    √(tokens/hidden · fsdp_axes/tensor_axes · chips): both communicate equally long.
    """
    return math.sqrt(tokens / hidden * fsdp_axes / tensor_axes * chips)


def mixed_tokens_per_chip(
    hidden: int, intensity: float, fsdp_axes: int = 1, tensor_axes: int = 1
) -> float:
    """Tokens a chip from which FSDP with tensor parallelism at its best is bound by compute (chapter 5).

    4α²/(fsdp_axes·tensor_axes·hidden), both communicating one after the other.
    """
    return 4 * intensity**2 / (fsdp_axes * tensor_axes * hidden)


def chips_for_two_dimensional_weights(model: int, hidden: int) -> float:
    """Chips from which splitting weights both ways beats splitting `hidden` over three axes (chapter 7).

    Per token 4√2·√(model·hidden/chips) bytes a bandwidth against 4·model/3, so 18·hidden/model.
    """
    return 18 * hidden / model
