"""The buffers of a program before a compile: what is fused, and what needs memory."""

from __future__ import annotations

from typing import Any

from inspector import hlo
from inspector.hlo.analysis import Analysis
from inspector.hlo.attention_kernels import PlannedKernel
from inspector.hlo.fused_values import fused_values
from inspector.hlo.live_values import LiveValues

# Dimensions of the products of attention, on queries (batch, seq, heads, group, head) and keys without group.
SCORES = "lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={3}"
VALUES = "lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={1}"
KERNEL = PlannedKernel(128, 128, 0.5, 0.6)


def read(text: str, **options: Any) -> LiveValues:
    live_values = fused_values(Analysis(hlo.parser.parse(text)[0]), **options)
    assert live_values is not None
    return live_values


def names(live_values: LiveValues) -> dict[str, tuple[str, str]]:
    """Return (shape, last instruction) of each buffer that is no argument, by its first instruction."""
    named = [one.name for _, one in live_values.instructions]
    return {
        named[buffer.first]: (str(buffer.shape), named[buffer.last])
        for buffer in live_values.buffers
        if buffer.first >= 0 and buffer.parameter is None
    }


CHAIN = """HloModule m
ENTRY e {
  x = bf16[64,32] parameter(0)
  w = bf16[32,16] parameter(1)
  y = f32[64,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = bf16[64,16] convert(y)
  a = bf16[64,16] tanh(z)
  b = bf16[64,16] multiply(a, z)
  t = bf16[16,64] transpose(b), dimensions={1,0}
  v = bf16[16,32] dot(t, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  n = bf16[16,32] negate(v)
  ROOT r = (bf16[16,32]) tuple(n)
}
"""


def test_elementwise_instructions_are_fused() -> None:
    # `y` is written as bf16. It is in memory until the product that reads what is computed from it.
    assert names(read(CHAIN)) == {
        "y": ("bf16[64,16]", "v"),
        "v": ("bf16[16,32]", "v"),
        "r": ("bf16[16,32]", "r"),
    }


def test_a_donated_result_has_the_memory_of_its_argument() -> None:
    assert sum(buffer.result is not None for buffer in read(CHAIN).buffers) == 1
    (result,) = [buffer for buffer in read(CHAIN, donated={0: 1}).buffers if buffer.result is not None]
    assert result.parameter == 1


def test_scores_of_attention_stay_on_the_chip() -> None:
    text = """HloModule m
ENTRY e {
  q = bf16[2,128,4,1,8] parameter(0)
  k = bf16[2,128,4,8] parameter(1)
  s = f32[2,4,128,1,128] dot(q, k), SCORES
  ROOT o = bf16[2,4,128,1,8] dot(s, k), VALUES
}
"""
    text = text.replace("SCORES", SCORES).replace("VALUES", VALUES)
    assert names(read(text)).keys() == {"s", "o"}
    assert names(read(text, kernel=KERNEL)).keys() == {"o"}


def test_activations_as_wide_as_a_sequence_is_long_are_no_scores() -> None:
    text = """HloModule m
ENTRY e {
  x = bf16[6,2,128,128] parameter(0)
  w = bf16[128,128] parameter(1)
  ROOT y = bf16[6,2,128,128] dot(x, w), lhs_contracting_dims={3}, rhs_contracting_dims={0}
}
"""
    assert names(read(text, kernel=KERNEL)).keys() == names(read(text)).keys()


LOOP = """HloModule m
body {
  s = (s32[], f32[4,8], f32[8,8], f32[6,4,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,8] get-tuple-element(s), index=1
  mask = f32[8,8] get-tuple-element(s), index=2
  all = f32[6,4,8] get-tuple-element(s), index=3
  y = f32[4,8] dot(x, mask), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  row = f32[1,4,8] reshape(y)
  zero = s32[] constant(0)
  more = f32[6,4,8] dynamic-update-slice(all, row, i, zero, zero)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], f32[4,8], f32[8,8], f32[6,4,8]) tuple(next, y, mask, more)
}
test {
  s = (s32[], f32[4,8], f32[8,8], f32[6,4,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[4,8] parameter(0)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  mask = f32[8,8] broadcast(none), dimensions={}
  empty = f32[6,4,8] broadcast(none), dimensions={}
  state = (s32[], f32[4,8], f32[8,8], f32[6,4,8]) tuple(zero, x, mask, empty)
  loop = (s32[], f32[4,8], f32[8,8], f32[6,4,8]) while(state), condition=test, body=body
  ROOT r = f32[6,4,8] get-tuple-element(loop), index=3
}
"""


def test_what_a_loop_carries_is_written_and_a_constant_that_it_reads_is_not() -> None:
    shapes = sorted(str(buffer.shape) for buffer in read(LOOP).buffers if buffer.bytes > 4)
    # The argument, which the product replaces in the loop, and the stack. Not the mask.
    assert shapes == ["f32[4,8]", "f32[6,4,8]"]
