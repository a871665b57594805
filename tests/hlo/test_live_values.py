"""The buffers of a scheduled program: which values share one, and from where to where each is in use."""

from __future__ import annotations

import pytest

from inspector import hlo
from inspector.hlo.analysis import Analysis
from inspector.hlo.live_values import VMEM, Buffer, LiveValues, live_values
from inspector.hlo.shapes import parse


def read(text: str) -> LiveValues:
    result = live_values(Analysis(hlo.parser.parse(text)[0]))
    assert result is not None
    return result


def of(live_values: LiveValues, name: str) -> Buffer:
    """Return the buffer that an instruction writes."""
    position = next(n for n, (_, one) in enumerate(live_values.instructions) if one.name == name)
    (buffer,) = [one for one in live_values.buffers if position in one.writers]
    return buffer


def span(live_values: LiveValues, name: str) -> tuple[str, str]:
    """Return the names of the first and the last instruction that use a buffer."""
    buffer = of(live_values, name)
    return tuple(live_values.instructions[at][1].name for at in (buffer.first, buffer.last))


CHAIN = """HloModule m, is_scheduled=true
ENTRY e {
  x = f32[256] parameter(0)
  a = f32[256] negate(x)
  b = f32[512] concatenate(a, a), dimensions={0}
  c = f32[256] slice(b), slice={[0:256]}
  ROOT r = f32[256] add(c, x)
}
"""


def test_a_value_is_in_use_until_its_last_reader() -> None:
    live_values = read(CHAIN)
    assert [span(live_values, name) for name in "abc"] == [("a", "b"), ("b", "c"), ("c", "r")]
    assert of(live_values, "x").parameter == 0 and of(live_values, "x").whole_program
    assert of(live_values, "r").result == 0
    # `a` fits into the memory of the result, which is written later; `b` is larger, `c` still in use.
    assert [of(live_values, name).inside for name in "abc"] == [True, False, False]


def test_an_unscheduled_or_truncated_text_has_no_live_values() -> None:
    for text in (CHAIN.replace(", is_scheduled=true", ""), CHAIN[:-30]):
        assert live_values(Analysis(hlo.parser.parse(text)[0])) is None


LOOP = """HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }
body {
  s = (s32[], f32[64], f32[8,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[64] get-tuple-element(s), index=1
  all = f32[8,64] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  w = f32[64] negate(v)
  row = f32[1,64] bitcast(w)
  zero = s32[] constant(0)
  more = f32[8,64] dynamic-update-slice(all, row, i, zero)
  ROOT t = (s32[], f32[64], f32[8,64]) tuple(next, w, more)
}
test {
  s = (s32[], f32[64], f32[8,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(8)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[64] parameter(0)
  start = s32[] constant(0)
  first = s32[] copy(start)
  empty = f32[8,64] broadcast(start), dimensions={}
  mine = f32[64] copy(x)
  state = (s32[], f32[64], f32[8,64]) tuple(first, mine, empty)
  loop = (s32[], f32[64], f32[8,64]) while(state), condition=test, body=body
  last = f32[64] get-tuple-element(loop), index=1
  stack = f32[8,64] get-tuple-element(loop), index=2
  sum = f32[64] reduce-window(stack)
  ROOT r = (f32[64]) tuple(last)
}
"""


def test_the_state_of_a_loop_keeps_its_buffers() -> None:
    live_values = read(LOOP)
    stack = of(live_values, "empty")
    assert stack is of(live_values, "more")
    assert span(live_values, "empty") == ("empty", "sum")
    # The result of the loop reuses the donated argument, as does the value that it carries.
    carried = of(live_values, "mine")
    assert carried is of(live_values, "w")
    assert (carried.parameter, carried.result) == (0, 0)
    sizes = sorted(buffer.bytes for buffer in live_values.buffers if buffer.bytes >= 256)
    assert sizes == [256, 256, 8 * 256]  # the argument, `sum` and the stack


def test_a_tpu_names_the_operands_that_it_overwrites() -> None:
    fusion = """HloModule m, is_scheduled=true
f { p = f32[8] parameter(0)  q = f32[8] parameter(1)  ROOT t = (f32[8], f32[8]) tuple(p, q) }
ENTRY e {
  x = f32[8] parameter(0)
  a = f32[8] negate(x)
  b = f32[8] abs(x)
  c = (f32[8], f32[8]) fusion(a, b), kind=kLoop, calls=f, \
backend_config={"aliasing_operands":{"lists":[{"indices":["1","2"]}]}}
  d = f32[8] get-tuple-element(c), index=0
  e = f32[8] get-tuple-element(c), index=1
  ROOT r = f32[8] add(d, e)
}
""".replace("\\\n", "")
    live_values = read(fusion)
    assert of(live_values, "b").writers != of(live_values, "a").writers
    assert span(live_values, "b") == ("b", "r")
    assert span(live_values, "a") == ("a", "c")


def test_both_ends_of_an_asynchronous_copy_share_a_buffer() -> None:
    live_values = read("""HloModule m, is_scheduled=true
ENTRY e {
  x = bf16[1024,8]{1,0:T(8,128)(2,1)} parameter(0)
  s = (bf16[1024,8]{1,0:T(8,128)(2,1)S(1)}, bf16[1024,8]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) copy-start(x)
  y = bf16[1024,8]{1,0:T(8,128)(2,1)} negate(x)
  d = bf16[1024,8]{1,0:T(8,128)(2,1)S(1)} copy-done(s)
  ROOT r = bf16[1024,8]{1,0:T(8,128)(2,1)} add(y, d)
}
""")
    copied = [buffer for buffer in live_values.buffers if buffer.space == VMEM]
    assert [(buffer.bytes, live_values.instructions[buffer.last][1].name) for buffer in copied] == [
        (1024 * 128 * 2, "r")  # 8 columns take a tile of 128
    ]
    assert of(live_values, "x").shape.bytes == 1024 * 8 * 2


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("f32[]{:T(128)}", 512),
        ("f32[100]{0:T(128)}", 512),
        ("f32[3,5]{1,0:T(8,128)}", 8 * 128 * 4),
        ("f32[3,5]{0,1:T(8,128)}", 8 * 128 * 4),
        ("f32[200,3]{0,1:T(4,128)}", 4 * 256 * 4),
        ("bf16[2,9,130]{2,1,0:T(8,128)(2,1)}", 2 * 16 * 256 * 2),
        ("f32[3,5]{1,0}", 60),
        ("s4[3,5]{1,0:E(4)}", 8),
    ],
)
def test_padding_of_tiles(written: str, size: int) -> None:
    shape = parse(written)
    assert shape is not None and shape.padded_bytes == size
