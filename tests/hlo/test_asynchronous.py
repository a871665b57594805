"""Asynchronous collectives and products in several pieces count as one operation."""

from __future__ import annotations

import pytest

from inspector import hlo
from inspector.hlo.asynchronous import chains
from inspector.hlo.module import Module
from inspector.hlo.moved_arrays import Moved, moved_arrays
from inspector.hlo.work import work

ADD = "add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }\n"


def module(text: str) -> Module:
    (module,) = hlo.parser.parse(text)
    return module


def entry(*lines: str) -> Module:
    body = "\n  ".join(lines)
    return module(f"HloModule m, num_partitions=4\n{ADD}ENTRY e {{\n  {body}\n}}\n")


# The synchronous opcode, its parameters, the shapes of operands and result, and its attributes.
IN_ONE = {
    "dot": ("f32[8,16]", "f32[16,4]", "f32[8,4]",
            "dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "a library's product": ("f32[8,16]", "f32[16,4]", "f32[8,4]",
                            'custom-call(p, q), custom_call_target="__onednn$matmul"'),
    "slice": ("f32[128,64]", None, "f32[32,64]", "slice(p), slice={[0:32], [0:64]}"),
    "dynamic slice": ("f32[128]", "s32[]", "f32[32]",
                      "dynamic-slice(p, q), dynamic_slice_sizes={32}"),
    "all-to-all": ("f32[8,8]", None, "f32[8,8]",
                   "all-to-all(p), channel_id=1, replica_groups={{0,1},{2,3}}, dimensions={0}"),
    "reduce-scatter": ("f32[64]", None, "f32[16]",
                       "reduce-scatter(p), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}, "
                       "use_global_device_ids=true, to_apply=add"),
    "all-gather": ("f32[16]", None, "f32[64]",
                   "all-gather(p), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}, "
                   "use_global_device_ids=true"),
    "all-reduce": ("f32[64]", None, "f32[64]",
                   "all-reduce(p), channel_id=1, replica_groups=[1,4]<=[4], "
                   "use_global_device_ids=true, to_apply=add"),
    "all-reduce of two": ("f32[64]", "f32[32]", "(f32[64], f32[32])",
                          "all-reduce(p, q), channel_id=1, replica_groups=[1,4]<=[4], "
                          "use_global_device_ids=true, to_apply=add"),
    "collective-permute": ("f32[64]", None, "f32[64]",
                           "collective-permute(p), channel_id=1, source_target_pairs={{0,1}}"),
    "an unknown custom call": ("f32[8]", None, "f32[8]",
                                        'custom-call(p), custom_call_target="kernel"'),
}  # fmt: skip


@pytest.mark.parametrize("contexts", ["", ", s32[]", ", u32[], u32[]"])
@pytest.mark.parametrize("name", IN_ONE)
def test_abbreviated_asynchronous_operation(name: str, contexts: str) -> None:
    first, second, result, written = IN_ONE[name]
    given = [f"p = {first} parameter(0)"]
    operands = first
    if second is not None:
        given.append(f"q = {second} parameter(1)")
        operands += f", {second}"
    at_once = entry(*given, f"ROOT r = {result} {written}")
    opcode, _, rest = written.partition("(")
    started = f"(({operands}), {result}{contexts})"
    in_pieces = entry(
        *given,
        f"s = {started} {opcode}-start({rest}",
        f"u = {started} {opcode}-update(s)",
        f"ROOT r = {result} {opcode}-done(u)",
    )
    assert work(in_pieces) == work(at_once)
    moved = [[(c.op, c.payload_bytes) for c in hlo.collectives.collectives(m)] for m in (in_pieces, at_once)]
    assert moved[0] == moved[1]


@pytest.mark.parametrize("started", ["f32[64]", "((f32[64]), f32[64])", "((f32[64]), f32[64], s32[])"])
def test_both_forms_of_an_all_reduce_start(started: str) -> None:
    """GPU compilers of 2025 and 2026 write different shapes. The text lacks the operand `lost`."""
    rest = "channel_id=1, replica_groups=[1,4]<=[4], use_global_device_ids=true, to_apply=add"
    module = entry(f"s = {started} all-reduce-start(lost), {rest}", "ROOT r = f32[64] all-reduce-done(s)")
    (reduction,) = hlo.collectives.collectives(module)
    assert (reduction.payload_bytes, reduction.wire_bytes_per_device) == (256, 384)
    assert work(module).flops == 64


def test_asynchronous_product() -> None:
    hlo_of_jaxlib = pytest.importorskip("jaxlib._hlo")
    text = """HloModule m
wrapped {
  p = f32[8,16] parameter(0)
  q = f32[16,4] parameter(1)
  ROOT d = f32[8,4] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY e {
  p = f32[8,16] parameter(0)
  q = f32[16,4] parameter(1)
  s = ((f32[8,16], f32[16,4]), f32[8,4], s32[]) async-start(p, q), calls=wrapped
  ROOT d = f32[8,4] async-done(s)
}
"""
    printed = hlo_of_jaxlib.hlo_module_from_text(text).to_string()
    assert work(module(printed)) == work(module(text))
    assert work(module(printed)).flops == 2 * 8 * 16 * 4


GATHER = """all-gather(p), channel_id=6, replica_groups=[1,4]<=[4], dimensions={0},
    use_global_device_ids=true, frontend_attributes={chain_id="0"}"""
# The pieces of one gather, and another gather with the same channel and devices.
FUSED = (
    """HloModule m, num_partitions=4
begins {
  p = f32[16] parameter(0)
  g = f32[64] GATHER
  ROOT c = (f32[16], f32[64], u32[]) custom-call(g), custom_call_target="AsyncCollectiveStart"
}
between {
  p = f32[16] parameter(0)
  w = f32[64] parameter(1)
  c = u32[] parameter(2)
  x = f32[8,8] parameter(3)
  d = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[64] GATHER
  ROOT t = (f32[8,8], f32[16], f32[64], u32[]) tuple(d, p, g, c)
}
ends {
  p = f32[16] parameter(0)
  w = f32[64] parameter(1)
  c = u32[] parameter(2)
  g = f32[64] GATHER
  ROOT r = f32[64] custom-call(p, w, g, c), custom_call_target="AsyncCollectiveDone"
}
ENTRY e {
  p = f32[16] parameter(0)
  x = f32[8,8] parameter(1)
  a = (f32[16], f32[64], u32[]) fusion(p), kind=kCustom, calls=begins
  a0 = f32[16] get-tuple-element(a), index=0
  a1 = f32[64] get-tuple-element(a), index=1
  a2 = u32[] get-tuple-element(a), index=2
  b = (f32[8,8], f32[16], f32[64], u32[]) fusion(a0, a1, a2, x), kind=kCustom, calls=between
  b0 = f32[8,8] get-tuple-element(b), index=0
  b1 = f32[16] get-tuple-element(b), index=1
  b2 = f32[64] get-tuple-element(b), index=2
  b3 = u32[] get-tuple-element(b), index=3
  whole = f32[64] fusion(b1, b2, b3), kind=kCustom, calls=ends
  other = f32[64] """.replace("GATHER", GATHER)
    + GATHER.replace('"0"', '"1"')
    + "\n  ROOT t = (f32[64], f32[64], f32[8,8]) tuple(whole, other, b0)\n}\n"
)


def test_collective_in_several_fusions_counts_once() -> None:
    """For a TPU v5e the compiler splits the gather of a layer's weights; for a v5p it writes one gather."""
    result = module(FUSED)
    collectives = hlo.collectives.collectives(result)
    assert [(c.computation, c.asynchronous, c.executions) for c in collectives] == [
        ("begins", True, 1),
        ("e", False, 1),
    ]
    assert {c.wire_bytes_per_device for c in collectives} == {4 * 48}
    assert work(result).not_counted == ()
    assert chains(result).carried_on == {
        ("between", "g"): (("begins", "g"),),
        ("ends", "g"): (("begins", "g"),),
    }


def test_moved_arrays_of_a_collective_in_several_fusions() -> None:
    paths = ["params/w", "batch/x"], ["output/w", "output/v", "output/x"]
    assert moved_arrays(module(FUSED), *paths) == {
        ("begins", "g"): (Moved(("params/w",), ("output/w",)),),
        ("e", "other"): (Moved(("params/w",), ("output/v",)),),
    }


def test_flops_of_a_collective_in_several_fusions() -> None:
    gather = GATHER.replace("all-gather", "all-reduce").replace("dimensions={0}", "to_apply=add")
    text = FUSED.replace(GATHER, gather).replace("HloModule m, num_partitions=4\n", "")
    result = module("HloModule m, num_partitions=4\n" + ADD + text.replace("f32[16]", "f32[64]"))
    assert work(result).flops == 2 * 8 * 8 * 8 + 64


def test_truncated_text_without_the_start() -> None:
    cut = FUSED[FUSED.index("ends {") : FUSED.index("ENTRY")]
    result = module("HloModule m, entry_computation_layout={()->f32[]}\n\n" + cut)
    assert result.truncated is not None
    assert hlo.collectives.collectives(result) == ()
