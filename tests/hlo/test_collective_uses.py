"""Reductions that each iteration of a loop adds to a sum: XLA's `WhileLoopAllReduceCodeMotion` moves them."""

from __future__ import annotations

import pytest

from inspector import hlo
from inspector.hlo.analysis import Analysis
from inspector.hlo.collective_uses import uses

LOOP = """HloModule m, num_partitions=2

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

scaled_sum {{
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  half = f32[] constant(0.5)
  halves = f32[4] broadcast(half), dimensions={{}}
  r = f32[4] multiply(q, halves)
  ROOT s = f32[4] add(p, r)
}}

condition {{
  state = (s32[], f32[4], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}}

body {{
  state = (s32[], f32[4], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[4] get-tuple-element(state), index=1
  first = f32[4] get-tuple-element(state), index=2
  second = f32[4] get-tuple-element(state), index=3
  one = s32[] constant(1)
  next = s32[] add(i, one)
  reduced = f32[4] all-reduce(x), channel_id=1, replica_groups={{{{0,1}}}}, to_apply=sum
  {lines}
}}

ENTRY main {{
  given = (s32[], f32[4], f32[4], f32[4]) parameter(0)
  ROOT loop = (s32[], f32[4], f32[4], f32[4]) while(given), condition=condition, body=body
}}
"""
STATE = "ROOT returned = (s32[], f32[4], f32[4], f32[4]) tuple"


@pytest.mark.parametrize(
    ("lines", "accumulates"),
    [
        (f"total = f32[4] add(first, reduced)\n{STATE}(next, x, total, second)", True),
        ("total = f32[4] fusion(first, reduced), kind=kLoop, calls=scaled_sum\n"
         f"{STATE}(next, x, total, second)", True),
        ("minus = f32[4] negate(reduced)\ntotal = f32[4] add(first, reduced)\n"
         f"other = f32[4] add(minus, second)\n{STATE}(next, x, total, other)", True),
        ("total = f32[4] add(first, reduced)\n"
         f"more = f32[4] add(total, reduced)\n{STATE}(next, x, more, second)", True),
        (f"total = f32[4] add(first, reduced)\n{STATE}(next, x, second, total)", False),
        (f"total = f32[4] add(first, reduced)\n{STATE}(next, total, total, second)", False),
        ("total = f32[4] add(first, reduced)\n"
         f"read = f32[4] tanh(total)\n{STATE}(next, read, total, second)", False),
        ("total = f32[4] add(first, reduced)\n"
         f"read = f32[4] tanh(first)\n{STATE}(next, read, total, second)", False),
        ("square = f32[4] multiply(reduced, reduced)\n"
         f"total = f32[4] add(first, square)\n{STATE}(next, x, total, second)", False),
        (f"{STATE}(next, x, reduced, second)", False),
    ],
)  # fmt: skip
def test_a_reduction_is_only_added_to_a_sum(lines: str, accumulates: bool) -> None:
    (module,) = hlo.parser.parse(LOOP.format(lines=lines))
    known = {("body", "reduced"): "accumulation"} if accumulates else {}
    assert uses(Analysis(module)) == known
