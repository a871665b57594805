"""FLOPs of kernels that state none, from their bodies, against counts by hand."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import jax
import pytest
from jax import numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention

from inspector import hlo
from inspector.tracing.mlir.kernel_bodies import with_costs

pytestmark = [pytest.mark.close_to_jax]

M, K, N = 512, 256, 384
BLOCK = 128


def array(*shape: int, dtype: str = "bfloat16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def calls_of(function: Any, *arguments: Any) -> list[dict[str, Any]]:
    """Return the configuration of each kernel of a function that is lowered for a TPU, which needs none."""
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",))
    configs = re.findall(r'backend_config = "((?:[^"\\]|\\.)*)"', lowered.as_text())
    texts = [re.sub(r"\\([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), config) for config in configs]
    return [json.loads(text)["custom_call_config"] for text in texts if "custom_call_config" in text]


def flops(config: dict[str, Any]) -> float | None:
    """Return the FLOPs of the program with a call of this kernel; None if it is not counted."""
    backend = json.dumps({"custom_call_config": {"body": config["body"]}})
    text = f"""HloModule m

ENTRY main {{
  x = bf16[64,128] parameter(0)
  ROOT k = bf16[64,128] custom-call(x), custom_call_target="tpu_custom_call", backend_config={backend}
}}
"""
    quoted = text.replace(backend, json.dumps(backend))
    (module,), (other,) = hlo.parser.parse(with_costs(text)), hlo.parser.parse(with_costs(quoted))
    work = hlo.work.work(module)
    assert hlo.work.work(other) == work
    return None if work.not_counted else work.flops


def matmul(condition: Any = None, most: Any = None, **more: Any) -> Any:
    """Return a product of (M, K) and (K, N) on a grid of blocks of 128 rows and columns."""

    def kernel(x: Any, y: Any, o: Any) -> None:
        def add() -> None:
            o[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

        if most is not None:
            jax.lax.fori_loop(0, most(x), lambda _, none: add(), None)
        elif condition is None:
            add()
        else:
            pl.when(condition(pl.program_id(0), pl.program_id(1), x))(add)

    return pl.pallas_call(
        kernel,
        grid=(M // BLOCK, N // BLOCK),
        in_specs=[
            pl.BlockSpec((BLOCK, K), lambda i, j: (i, 0)),
            pl.BlockSpec((K, BLOCK), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (i, j)),
        out_shape=array(M, N, dtype="float32"),
        **more,
    )


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (matmul(), 2 * M * K * N),
        # Blocks on and below the diagonal of 4 × 3: 1 + 2 + 3 + 3 of 12.
        (matmul(lambda i, j, x: j <= i), 2 * M * K * N * 9 // 12),
        (matmul(lambda i, j, x: (i + j) % 2 == 0), None),
        (matmul(lambda i, j, x: x[0, 0] > 0), None),
        (matmul(most=lambda x: 5), 5 * 2 * M * K * N),
        (matmul(most=lambda x: x[0, 0].astype(jnp.int32)), None),
    ],
    ids=["plain", "below the diagonal", "remainder", "data", "loop", "loop of data"],
)
def test_products_count_at_each_point_of_the_grid(function: Any, expected: int | None) -> None:
    (config,) = calls_of(function, array(M, K), array(K, N))
    assert "cost_estimate" not in config
    result = flops(config)
    assert result == expected or (expected is None and result in (None, 2 * M * K * N * 6 // 12))


def test_a_kernel_without_products_and_invalid_bodies_stay_uncounted() -> None:
    double = pl.pallas_call(lambda x, o: o.__setitem__(..., x[...] * 2), out_shape=array(64, 128))
    (config,) = calls_of(double, array(64, 128))
    assert flops(config) is None
    for body in (b"ML\xefR", b"module {", b"\x00" * 40, base64.b64decode(config["body"])[:-40]):
        assert flops({"body": base64.b64encode(body).decode()}) is None


def test_a_stated_cost_stays() -> None:
    stated = matmul(cost_estimate=pl.CostEstimate(flops=7, bytes_accessed=5, transcendentals=0))
    (config,) = calls_of(stated, array(M, K), array(K, N))
    assert config["cost_estimate"]["flops"] == 7
    text = 'tpu_custom_call backend_config={"custom_call_config":' + json.dumps(config) + "}"
    assert with_costs(text) == text
    assert with_costs(None) is None and with_costs("") == ""


def test_the_gradients_of_flash_attention_count_the_blocks_that_a_causal_mask_leaves() -> None:
    """The forward pass states its cost. dk and dv take 4 products, dq takes 3, each with 10 of 16 blocks."""
    heads, seq, width = 4, 512, 128
    sizes = BlockSizes.get_default(1, heads, seq, seq, width)
    attend = lambda q, k, v: flash_attention(q, k, v, causal=True, block_sizes=sizes).astype("float32").sum()  # noqa: E731
    configs = calls_of(jax.grad(attend, argnums=(0, 1, 2)), *[array(1, heads, seq, width)] * 3)
    product = 2 * heads * seq * seq * width
    counted = sorted(flops(config) or 0 for config in configs if "cost_estimate" not in config)
    assert counted == [3 * product * 10 / 16, 4 * product * 10 / 16]
