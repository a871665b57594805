"""HBM traffic before a compile, counted by hand for small programs."""

from __future__ import annotations

from inspector import hlo
from inspector.hlo.analysis import Analysis
from inspector.hlo.attention_kernels import PlannedKernel
from inspector.hlo.fused_values import FusedTraffic, fused_traffic

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


def test_a_product_of_a_library_reads_its_operands_from_memory() -> None:
    fused_traffic = read(CHAIN, fuses_products=False)
    x, w, y = 8 * 16 * 4, 16 * 32 * 4, 8 * 32 * 4
    assert fused_traffic.total == (x + x) + (x + w + y) + 2 * y
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


def test_a_sum_that_is_in_memory_is_read_instead_of_its_terms() -> None:
    # Each product reads three terms, one of which is its operand too, and writes its result.
    assert read(SUM).total == 256 * 3 * (3 + 1)
    # Three terms are read once and the sum is written; each product reads it and an operand.
    assert read(SUM, sums=True).total == 256 * (4 + 3 * (1 + 1 + 1))
    # Two terms are read by two products as fast as a sum is written and read.
    two = SUM.replace("add(ab, c)", "copy(ab)").replace("dot(k, c)", "dot(c, c)")
    assert read(two, sums=True).total == read(two).total


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
