"""HBM traffic before a compile, counted by hand for small programs."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import pytest

from inspector import hlo
from inspector.hlo.analysis import Analysis
from inspector.hlo.attention_kernels import PlannedKernel
from inspector.hlo.fused_values import FusedTraffic, fused_traffic
from inspector.machines import targets
from tests.hlo import residual_stream

# Dimensions of the products of attention, on queries (batch, seq, heads, group, head) and keys without group.
SCORES = "lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={3}"
VALUES = "lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={1}"
KERNEL = PlannedKernel(128, 128, 0.5, 0.6)


def read(text: str, **options: object) -> FusedTraffic:
    (module,) = hlo.parser.parse(text)
    result = fused_traffic(Analysis(module), **options)  # type: ignore[arg-type]
    assert result is not None
    return result


CHAIN = """HloModule m
ENTRY e {
  x = f32[8,16] parameter(0)
  w = f32[16,32] parameter(1)
  half = f32[8,16] multiply(x, x)
  y = f32[8,32] dot(half, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[8,32] negate(y)
  ROOT r = f32[8,32] exponential(z)
}
"""


def test_elementwise_operations_are_fused_into_products_and_results() -> None:
    fused_traffic = read(CHAIN)
    x, w, y = 8 * 16 * 4, 16 * 32 * 4, 8 * 32 * 4
    # The product reads x and w and writes y, from which one fusion computes r.
    assert fused_traffic.total == x + w + 3 * y
    assert fused_traffic.fusions == 2
    assert fused_traffic.bytes["y"] == 2 * y
    assert fused_traffic.product_bytes == x + w + y


def test_a_product_of_a_library_reads_its_operands_from_memory() -> None:
    fused_traffic = read(CHAIN, fuses_products=False)
    x, w, y = 8 * 16 * 4, 16 * 32 * 4, 8 * 32 * 4
    assert fused_traffic.total == (x + x) + (x + w + y) + 2 * y
    assert fused_traffic.product_bytes == x + w + y
    assert fused_traffic.fusions == 3


def test_what_two_products_read_is_written_once() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[8,8] parameter(0)
  n = f32[8,8] negate(x)
  a = f32[8,8] dot(n, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[8,8] dot(n, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = (f32[8,8], f32[8,8]) tuple(a, b)
}
"""
    assert read(text).total == 256 * (2 + 3 + 3)


def test_results_of_one_fusion_read_each_array_once() -> None:
    # An optimizer: both results are computed from the gradient and the moment.
    text = """HloModule m
ENTRY e {
  g = f32[64] parameter(0)
  m = f32[64] parameter(1)
  n = f32[64] add(g, m)
  p = f32[64] multiply(n, g)
  ROOT r = (f32[64], f32[64]) tuple(n, p)
}
"""
    assert read(text).total == 256 * 4


SUM = """HloModule m
ENTRY e {
  a = f32[8,8] parameter(0)
  b = f32[8,8] parameter(1)
  c = f32[8,8] parameter(2)
  ab = f32[8,8] add(a, b)
  s = f32[8,8] add(ab, c)
  n = f32[8,8] negate(s)
  x = f32[8,8] dot(n, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  m = f32[8,8] exponential(s)
  y = f32[8,8] dot(m, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  k = f32[8,8] cosine(s)
  z = f32[8,8] dot(k, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[8,8], f32[8,8], f32[8,8]) tuple(x, y, z)
}
"""


def test_a_sum_of_three_arrays_is_in_memory_if_that_is_less_traffic() -> None:
    # Three terms are read once and the sum is written; each product reads it and an operand.
    assert read(SUM).total == 256 * (4 + 3 * (1 + 1 + 1))
    # Of two products, each reads three terms, one of which is its operand too, and writes its result.
    two = SUM.replace("dot(k, c)", "dot(c, c)")
    assert read(two).total == 256 * (2 * (3 + 1) + 2)
    # It is written by a fusion that runs anyway.
    assert read(SUM).fusions == read(two).fusions == 3


TRIPS = 'backend_config={"known_trip_count":{"n":"6"}}'
LOOP = """HloModule m
body {
  s = (s32[], f32[4,8], f32[6,8,8], f32[6,4,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,8] get-tuple-element(s), index=1
  ws = f32[6,8,8] get-tuple-element(s), index=2
  all = f32[6,4,8] get-tuple-element(s), index=3
  zero = s32[] constant(0)
  w = f32[1,8,8] dynamic-slice(ws, i, zero, zero), dynamic_slice_sizes={1,8,8}
  one = f32[8,8] reshape(w)
  y = f32[4,8] dot(x, one), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  row = f32[1,4,8] reshape(y)
  kept = f32[6,4,8] dynamic-update-slice(all, row, i, zero, zero)
  next = s32[] add(i, i)
  ROOT t = (s32[], f32[4,8], f32[6,8,8], f32[6,4,8]) tuple(next, y, ws, kept)
}
condition {
  c = (s32[], f32[4,8], f32[6,8,8], f32[6,4,8]) parameter(0)
  ROOT b = pred[] constant(true)
}
ENTRY e {
  i0 = s32[] parameter(0)
  x0 = f32[4,8] parameter(1)
  w0 = f32[6,8,8] parameter(2)
  a0 = f32[6,4,8] parameter(3)
  start = (s32[], f32[4,8], f32[6,8,8], f32[6,4,8]) tuple(i0, x0, w0, a0)
  loop = (s32[], f32[4,8], f32[6,8,8], f32[6,4,8]) while(start), condition=condition, body=body, TRIPS
  ROOT r = f32[6,4,8] get-tuple-element(loop), index=3
}
""".replace("TRIPS", TRIPS)


def test_a_loop_reads_and_writes_slices_of_stacked_arrays() -> None:
    x, w, counter = 4 * 8 * 4, 8 * 8 * 4, 4
    product = x + w + x
    update = x + x
    # The slice is placed by the counter, which is read and written as well.
    assert abs(read(LOOP).total - 6 * (product + update)) <= 6 * 5 * counter


SUM_IN_A_LOOP = f"""HloModule m
body {{
  s0 = (f32[8,8], f32[8,8], f32[8,8]) parameter(0)
{SUM.partition("{")[2].replace("parameter(0)", "get-tuple-element(s0), index=0")}
condition {{
  s0 = (f32[8,8], f32[8,8], f32[8,8]) parameter(0)
  ROOT b = pred[] constant(true)
}}
ENTRY e {{
  i = (f32[8,8], f32[8,8], f32[8,8]) parameter(0)
  ROOT loop = (f32[8,8], f32[8,8], f32[8,8]) while(i), condition=condition, body=body, {TRIPS}
}}
""".replace("parameter(1)", "get-tuple-element(s0), index=1").replace(
    "parameter(2)", "get-tuple-element(s0), index=2"
)


def test_a_sum_in_a_loop_is_in_memory_for_the_bounds_of_a_search() -> None:
    # Each product reads three terms, one of which is its operand too, and writes its result.
    assert read(SUM_IN_A_LOOP).total == 6 * 256 * 3 * (3 + 1)
    assert read(SUM_IN_A_LOOP, sums=True).total == 6 * read(SUM).total
    # Two terms are read by two products as fast as a sum is written and read.
    two = SUM.replace("add(ab, c)", "copy(ab)").replace("dot(k, c)", "dot(c, c)")
    assert read(two, sums=True).total == read(two).total


def test_traffic_grows_as_much_with_each_layer_of_a_python_loop() -> None:
    traffic = [residual_stream.before_compile(residual_stream.lowered(layers)) for layers in (2, 4, 6, 8)]
    first, *others = (after.total - before.total for before, after in itertools.pairwise(traffic))
    assert others == [first, first] and first > 0
    fusions = [each.fusions for each in traffic]
    assert len({after - before for before, after in itertools.pairwise(fusions)}) == 1


@pytest.mark.nightly
def test_a_compiler_for_tpus_adds_as_much_with_each_layer() -> None:
    """The stream is larger than the memory on the chip, so that XLA counts the bytes of HBM."""
    target = targets.parse("tpu:v5e:2x2")
    if lacking := targets.missing_compiler(target):
        pytest.skip(lacking)
    command = [sys.executable, "-m", "tests.hlo.residual_stream", target.text, "2", "4", "6"]
    variables = os.environ | dict(targets.environment(target))
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    by_layers = json.loads(done.stdout)
    pairs = [(c - b, e - d) for (b, d), (c, e) in itertools.pairwise(by_layers)]
    (compiled, before), (compiled_later, before_later) = pairs
    assert compiled_later == pytest.approx(compiled, rel=0.02)
    assert before_later == before
    # A compiler also fuses sums and reductions into products.
    assert compiled < before < 2 * compiled


def test_scores_and_products_of_a_kernel_are_known() -> None:
    text = """HloModule m
ENTRY e {
  q = bf16[2,128,4,1,8] parameter(0)
  k = bf16[2,128,4,8] parameter(1)
  s = f32[2,4,128,1,128] dot(q, k), SCORES
  ROOT o = bf16[2,4,128,1,8] dot(s, k), VALUES
}
"""
    text = text.replace("SCORES", SCORES).replace("VALUES", VALUES)
    plain, kernel = read(text), read(text, kernel=KERNEL)
    scores = 2 * 4 * 128 * 128 * 4
    assert plain.total - kernel.total == 2 * scores
    assert not plain.attention
    # Two FLOPs for each of 2 sequences, 4 heads, 128 x 128 pairs and 8 elements of a head.
    assert set(kernel.attention.values()) == {2 * 2 * 4 * 128 * 128 * 8}


def test_an_unknown_trip_count_makes_the_traffic_unknown() -> None:
    (module,) = hlo.parser.parse(LOOP.replace(f", {TRIPS}", ""))
    result = fused_traffic(Analysis(module))
    assert not result.is_whole and set(result.parts) == {("loop",)}
