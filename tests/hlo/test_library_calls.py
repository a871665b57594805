"""FLOPs and bytes of kernels and library calls in compiled text, against counts by hand.

The texts in tests/cases/kernels are those of the compilers for a TPU v5e and an H100, cut to one instruction.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from inspector import hlo
from inspector.hlo import attention_kernels
from inspector.hlo.analysis import Analysis
from inspector.hlo.schedule import schedule
from inspector.records.snapshot import Work

CASES = Path(__file__).parents[1] / "cases" / "kernels"
# Tokens, experts, input and output features of the products.
M, G, K, N = 512, 8, 256, 384
BATCH, SEQ, HEADS, DIM = 2, 512, 8, 64
QKV = BATCH * SEQ * HEADS * DIM * 2  # bytes of one array of bfloat16
CAUSAL = sum(range(1, SEQ + 1))
WINDOW = sum(min(query + 1, 128) for query in range(SEQ))


def of_case(name: str) -> Work:
    (module,) = hlo.parser.parse((CASES / f"{name}.hlo").read_text())
    return hlo.work.work(module)


@pytest.mark.parametrize(
    ("name", "dtype", "flops", "moved"),
    [
        ("tpu_ragged_dot", "bf16", 2 * M * K * N, 2 * (M * K + G * K * N + M * N)),
        # Its bytes are those of tiles: the weights of an expert are read again for each tile of tokens.
        ("tpu_gmm", "bf16", 2 * M * K * N, None),
        # Two products over 4 heads, and half of the scores if the mask is causal.
        ("tpu_flash", "bf16", 4 * 2 * 4 * 512 * 512 * 128, 4 * 2 * 4 * 512 * 128 * 2),
        ("gpu_dpa", "bf16", 4 * BATCH * HEADS * DIM * CAUSAL, 4 * QKV),
        ("gpu_dpa_window", "bf16", 4 * BATCH * HEADS * DIM * WINDOW, 4 * QKV),
        # q, k, v, the output and its gradient are read, three gradients are written.
        ("gpu_dpa_grad", "bf16", 10 * BATCH * HEADS * DIM * CAUSAL, 8 * QKV + 4 * BATCH * HEADS * SEQ),
        # Grouped queries: 2 heads of 1,024 keys and values.
        (
            "gpu_dpa_gqa",
            "bf16",
            4 * BATCH * HEADS * DIM * SEQ * 1024,
            2 * QKV + 2 * (BATCH * 1024 * 2 * DIM * 2),
        ),
        ("gpu_fp8", "f8e4m3fn", 2 * M * K * N, M * K + K * N + 4 * M * N + 2 * 4),
        ("gpu_int8", "s8", 2 * M * K * N, M * K + K * N + 4 * M * N),
    ],
)
def test_products(name: str, dtype: str, flops: float, moved: float | None) -> None:
    work = of_case(name)
    assert work.matmul is not None and [product.dtype for product in work.matmul] == [dtype]
    assert (
        work.flops == work.matmul[0].flops == pytest.approx(flops, rel=0.02 if "flash" not in name else 0.01)
    )
    if moved is not None:
        assert work.bytes_accessed == pytest.approx(moved, rel=0.02)
    assert not work.not_counted and not work.kernels


@pytest.mark.parametrize(
    ("name", "flops", "moved"),
    [
        ("tpu_top_k", 16 * 4096, 16 * 4096 * 4 + 16 * 8 * 8),
        ("tpu_approx", 16 * 4096, None),
        # XLA's own count: all elements times the logarithm of their number.
        ("tpu_sort", 16 * 4096 * math.log2(16 * 4096), 2 * 16 * 4096 * 8),
        ("tpu_rng", 0, 512 * 512 * 4 + 16),
        # Four blocks of 128 × 128.
        ("tpu_cholesky", 4 * 128**3 / 3, None),
        ("tpu_lu", 256 * 128**2 - 128**3 / 3, None),
        ("gpu_lu", 2 / 3 * 256**3, 2 * 256 * 256 * 4 + 256 * 4 + 4),
        ("gpu_qr", 2 * 256 * 128**2 - 2 / 3 * 128**3, 2 * 256 * 128 * 4 + 128 * 4),
        ("gpu_solve", 256**2 * 64, (256 * 256 + 2 * 256 * 64) * 4),
        ("gpu_eigh", 9 * 128**3, 2 * 128 * 128 * 4 + 128 * 4 + 4),
    ],
)
def test_calls_that_are_no_products(name: str, flops: float, moved: float | None) -> None:
    work = of_case(name)
    assert work.flops == pytest.approx(flops, rel=0.02)
    assert work.matmul == ()
    if moved is not None:
        assert work.bytes_accessed == pytest.approx(moved, rel=0.02)
    assert not work.not_counted


@pytest.mark.parametrize(
    ("name", "kernel", "target", "moved"),
    [
        ("tpu_pallas", "mymm", "tpu_custom_call", 2 * (M * K + K * N) + 4 * M * N),
        ("gpu_triton", "myadd", "__gpu$xla.gpu.triton", 3 * 512 * 256 * 4),
    ],
)
def test_a_kernel_without_flops_has_its_name_and_bytes(
    name: str, kernel: str, target: str, moved: int
) -> None:
    work = of_case(name)
    assert work.not_counted == (kernel,)
    (calls,) = work.kernels
    assert (calls.name, calls.target, calls.within, calls.calls, calls.bytes) == (
        kernel,
        target,
        (),
        1,
        moved,
    )


@pytest.mark.parametrize(
    ("queries", "keys", "window"), [(7, 7, 0), (7, 7, 3), (4, 9, 0), (9, 4, 2), (5, 5, 99)]
)
def test_scores_that_a_mask_leaves(queries: int, keys: int, window: int) -> None:
    """Count them one by one."""
    left = sum(
        key <= query and (not window or query - key < window)
        for query in range(queries)
        for key in range(keys)
    )
    if queries <= keys:
        assert attention_kernels.scores(queries, keys, True, window) == left
    assert attention_kernels.scores(queries, keys, False) == queries * keys


@pytest.mark.parametrize(("name", "bound"), [("gpu_eigh", True), ("tpu_lu", True), ("tpu_top_k", False)])
def test_a_solver_takes_at_least_as_long_as_its_bytes(name: str, bound: bool) -> None:
    """Its steps depend on each other, and nothing says at which share of the peak they run."""
    text = (CASES / f"{name}.hlo").read_text().replace("\n", ", is_scheduled=true\n", 1)
    (module,) = hlo.parser.parse(text)
    result = schedule(Analysis(module), ())
    assert result is not None
    (operation,) = (
        scheduled_operation
        for scheduled_operation in result.by_name[result.entry].operations
        if scheduled_operation.opcode == "custom-call"
    )
    assert (operation.uncounted is not None) == bound
