"""Products of groups of rows that JAX expanded for CPUs count as the operation that it lowers for TPUs."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from jax import numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

from inspector import hlo
from inspector.compiled.program_text import ideal_work
from inspector.hlo import ragged_rows
from inspector.hlo.analysis import Analysis
from inspector.hlo.fused_values import fused_traffic
from inspector.hlo.later_passes import as_compiled_for

ROWS, GROUPS, INPUTS, OUTPUTS = 48, 6, 16, 32
PRODUCT = 2 * ROWS * INPUTS * OUTPUTS


def array(*shape: int, dtype: str = "bfloat16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


ARGUMENTS = (array(ROWS, INPUTS), array(GROUPS, INPUTS, OUTPUTS), array(GROUPS, dtype="int32"))


def forward(x: Any, w: Any, sizes: Any) -> Any:
    return jax.lax.ragged_dot(x, w, sizes)


def backward(x: Any, w: Any, sizes: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        return jnp.square(forward(x, w, sizes).astype("float32")).sum()

    return jax.grad(loss, argnums=(0, 1))(x, w)


def two(x: Any, w: Any, sizes: Any) -> Any:
    return forward(jnp.tanh(forward(x, w, sizes)), jnp.swapaxes(w, 1, 2), sizes)


def module_of(function: Any, platform: str) -> hlo.module.Module:
    lowered = jax.jit(function).trace(*ARGUMENTS).lower(lowering_platforms=(platform,))
    (module,) = hlo.parser.parse(lowered.as_text(dialect="hlo"))
    return module


def products(module: hlo.module.Module) -> float:
    return sum(product.flops for product in hlo.work.work(module).matmul or ())


@pytest.mark.parametrize(("function", "count"), [(forward, 1), (backward, 3), (two, 2)])
def test_each_row_is_multiplied_with_the_matrix_of_its_group_alone(function: Any, count: int) -> None:
    expanded = module_of(function, "cpu")
    assert products(expanded) == GROUPS * count * PRODUCT
    restored = as_compiled_for(expanded, "tpu")
    assert products(restored) == products(module_of(function, "tpu")) == count * PRODUCT
    for platform in ("gpu", "cpu"):  # their compilers multiply all
        assert products(as_compiled_for(expanded, platform)) == GROUPS * count * PRODUCT


@pytest.mark.parametrize(("inputs", "outputs", "masked"), [(128, 256, 0), (128, 192, 1), (16, 128, 1)])
def test_a_kernel_multiplies_whole_tiles_and_masks_others_than_of_128_lanes(
    inputs: int, outputs: int, masked: int
) -> None:
    # The products of the forward pass, and of the gradients of rows and of matrices.
    arguments = (array(ROWS, inputs), array(GROUPS, inputs, outputs), array(GROUPS, dtype="int32"))
    lowered = jax.jit(backward).trace(*arguments).lower(lowering_platforms=("tpu",))
    (module,) = hlo.parser.parse(lowered.as_text(dialect="hlo"))
    traffic = fused_traffic(Analysis(module))
    flops, rows = 3 * 2 * ROWS * inputs * outputs, ROWS / GROUPS
    assert traffic is not None and sum(traffic.grouped.values()) == flops
    assert sum(traffic.grouped_tiles.values()) == pytest.approx(flops * (rows + 256) / rows)
    assert sum(traffic.grouped_masked.values()) == masked * sum(traffic.grouped_tiles.values())


@pytest.mark.parametrize("expected", [0, ROWS // 2])
def test_groups_have_the_rows_that_a_program_expects(expected: int) -> None:
    def stated(x: Any, w: Any, sizes: Any) -> Any:
        with set_xla_metadata(expected_rows=str(expected)):
            return forward(x, w, sizes)

    traffic = fused_traffic(Analysis(module_of(stated, "tpu")))
    share, more = expected / ROWS, 256 * GROUPS / expected if expected else 0
    assert traffic is not None and sum(traffic.grouped.values()) == PRODUCT * share
    assert sum(traffic.grouped_tiles.values()) == pytest.approx(PRODUCT * share * (1 + more))


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_the_rows_that_a_program_expects_count(platform: str) -> None:
    def stated(x: Any, w: Any, sizes: Any) -> Any:
        with set_xla_metadata(expected_rows=str(ROWS // 4)):
            return backward(x, w, sizes)

    module = as_compiled_for(module_of(stated, platform), "tpu")
    assert products(module) == 3 * PRODUCT // 4
    (clause,) = ragged_rows.assumptions(module)
    assert str(ROWS // 4) in clause
    (clause,) = ragged_rows.assumptions(module_of(backward, "tpu"))
    assert str(ROWS) in clause
    read, all_read = (
        hlo.work.work(one).bytes_accessed or 0 for one in (module, module_of(backward, platform))
    )
    assert read < all_read


@pytest.mark.parametrize(("expected", "share"), [(ROWS // 4, 1 / 4), (4 * ROWS, 1)])
def test_rows_of_a_mapped_product_are_not_the_number_of_products(expected: int, share: float) -> None:
    def stated(*arguments: Any) -> Any:
        with set_xla_metadata(expected_rows=str(expected)):
            return backward(*arguments)

    arguments = [jax.ShapeDtypeStruct((5, *one.shape), one.dtype) for one in ARGUMENTS]
    lowered = jax.jit(jax.vmap(stated)).trace(*arguments).lower(lowering_platforms=("tpu",))
    (module,) = hlo.parser.parse(lowered.as_text(dialect="hlo"))
    assert products(module) == 5 * 3 * PRODUCT * share
    (clause,) = ragged_rows.assumptions(module)
    assert f"{round(ROWS * share)} rows" in clause
    ragged = [(at, own) for at, own in module.instructions if own.opcode == "ragged-dot"]
    unused = sum(ragged_rows.unused_bytes(at, own) for at, own in ragged)
    # Each of the three products reads or writes rows of both sizes.
    assert unused == (1 - share) * 5 * ROWS * 3 * (INPUTS + OUTPUTS) * 2


def test_a_kernel_without_the_statement_has_that_of_others_with_as_many_rows() -> None:
    """XLA for TPUs drops it from products that it makes itself. The text is shortened."""
    kernel = (
        'bf16[48,32] custom-call(%sizes, %x, %w), custom_call_target="tpu_custom_call"{stated}, '
        'metadata={{op_name="f/ragged-dot-none"}}, backend_config={{"custom_call_config":'
        '{{"cost_estimate":{{"flops":"{flops}","bytes_accessed":"12288"}}}}}}'
    )
    stated = ', frontend_attributes={expected_rows="12"}'
    text = "\n".join(
        (
            "HloModule f",
            "ENTRY %main (sizes: s32[6], x: bf16[48,16], w: bf16[6,16,32]) -> bf16[48,32] {",
            "  %sizes = s32[6] parameter(0)",
            "  %x = bf16[48,16] parameter(1)",
            "  %w = bf16[6,16,32] parameter(2)",
            f"  %one = {kernel.format(stated=stated, flops=PRODUCT)}",
            f"  ROOT %other = {kernel.format(stated='', flops=PRODUCT)}",
            "}",
        )
    )
    (module,) = hlo.parser.parse(text)
    assert products(module) == PRODUCT // 4 + PRODUCT
    assert products(ragged_rows.with_stated_rows(module)) == 2 * PRODUCT // 4


def test_another_masked_product_stays() -> None:
    def masked(x: Any, w: Any, sizes: Any) -> Any:
        chosen = jnp.where((x > 0) & (x < 1), x, 0)
        return jnp.einsum("mk,gkn->gmn", chosen, w), jnp.where(x > 0, x, 1) @ w[0]

    module = module_of(masked, "cpu")
    assert as_compiled_for(module, "tpu") == module


def test_the_work_before_partitioning_is_known_for_both() -> None:
    expanded, on_tpu = (
        ideal_work(
            jax.jit(forward).trace(*ARGUMENTS).lower(lowering_platforms=(name,)).as_text(dialect="hlo")
        )
        for name in ("cpu", "tpu")
    )
    assert expanded is not None and on_tpu is not None and on_tpu.matmul_on_tpu is None
    assert expanded.matmul_on_tpu == on_tpu.matmul != expanded.matmul
