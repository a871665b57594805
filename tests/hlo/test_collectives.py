"""Collectives of programs match handwritten answers, and mesh axes match NumPy."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from inspector import hlo
from inspector.hlo.replica_groups import axes_of_groups, axes_of_pairs
from inspector.machines.hardware import CHIPS
from inspector.prediction.step_model import modelled
from inspector.records.collectives import OPERATIONS
from inspector.records.snapshot import Collective, Mesh, MeshAxis, Program
from inspector.text.errors import InvalidInput
from tests.hlo import given, own_programs


def mesh(**sizes: int) -> Mesh:
    axes = tuple(MeshAxis(name, size) for name, size in sizes.items())
    return Mesh(axes, tuple(range(math.prod(sizes.values()))))


GRID = mesh(data=2, model=4)


def found(name: str, on: Mesh | None = GRID) -> list[Collective]:
    return [
        collective
        for module in hlo.parser.parse(given.text(name))
        for collective in hlo.collectives.collectives(module, on)
    ]


def in_short(collective: Collective) -> tuple:
    return (
        collective.op,
        collective.executions,
        collective.mesh_axes,
        collective.payload_bytes,
        collective.wire_bytes_per_device,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "own every collective",
            [
                ("all-gather", 1, ("model",), 4096, 3072),
                ("reduce-scatter", 1, ("model",), 4096, 3072),
                ("all-to-all", 1, ("model",), 1024, 768),
                ("collective-permute", 1, ("data",), 1024, 1024),
                ("all-reduce", 1, ("data", "model"), 1024, 1792),
            ],
        ),
        ("own scan", [("all-gather", 12, ("model",), 4096, 3072)]),
        (
            "own scan and gradient",
            [
                ("all-gather", 12, ("model",), 4096, 3072),
                ("reduce-scatter", 12, ("model",), 4096, 3072),
                ("all-reduce", 1, ("data",), 12288, 12288),
            ],
        ),
        (
            "own cond",
            [
                ("collective-permute", 1, ("model",), 1024, 1024),
                ("all-reduce", 1, ("data",), 1024, 1024),
            ],
        ),
        given.shared(
            "fsdp_tp_mlp.compiled.hlo",
            [
                ("all-gather", 1, ("data",), 65536, 32768),
                ("all-gather", 1, ("data",), 65536, 32768),
                ("all-reduce", 1, ("model",), 16384, 24576),
            ],
        ),
        given.shared(
            "matmul_relu_sum.compiled.hlo",
            [
                ("all-reduce", 1, ("model",), 32768, 49152),
                ("all-reduce", 1, ("data",), 1024, 1024),
            ],
        ),
        given.shared("scan_12_layers.compiled.hlo", [("all-gather", 12, ("model",), 16384, 12288)]),
        given.shared(
            "scan_12_layers_grad.compiled.hlo",
            [
                ("all-gather", 12, ("model",), 16384, 12288),
                ("all-reduce", 12, ("model",), 16384, 24576),
                ("all-reduce", 12, ("data",), 16384, 16384),
            ],
        ),
        given.shared(
            "shard_map_all_collectives.compiled.hlo",
            [
                ("collective-permute", 1, ("model",), 256, 256),
                ("all-gather", 1, ("model",), 1024, 768),
                ("all-to-all", 1, ("model",), 256, 192),
                ("reduce-scatter", 1, ("model",), 1024, 768),
                ("all-reduce", 1, ("data", "model"), 256, 448),
                ("all-to-all", 1, ("model",), 256, 192),
            ],
        ),
        given.shared(
            "cond_with_collective.compiled.hlo",
            [
                ("all-reduce", 1, ("data",), 65536, 65536),
                ("all-gather", 1, ("data",), 32768, 16384),
            ],
        ),
    ],
)
def test_program_of_jax(name: str, expected: list[tuple]) -> None:
    collectives = found(name)
    assert [in_short(collective) for collective in collectives] == expected
    assert {collective.conditional for collective in collectives} == {"cond" in name}
    assert not any(collective.asynchronous for collective in collectives)


def test_op_name_and_source_of_our_programs() -> None:
    (gather,) = found("own scan")
    lines = Path(own_programs.__file__).read_text(encoding="utf-8").splitlines()
    (line,) = (n for n, text in enumerate(lines, 1) if text.endswith("# source of a gather"))
    assert gather.source == f"own_programs.py:{line}"
    assert gather.op_name.startswith("jit(") and gather.op_name.endswith("/all_gather")
    # The name of an instruction can differ from its opcode. XLA's text has it before the opcode.
    printed = dict(
        re.findall(r"%(\S+) = \S+ (all-reduce|collective-permute)\(", given.text("own every collective"))
    )
    names = {c.name: c.op for c in found("own every collective") if c.name in printed}
    assert names == printed and not any(name.startswith("all-reduce") for name in names)


NAMED_BY_ARGUMENT = """HloModule jit_step, num_partitions=2, entry_computation_layout={()->f32[]}

%rows (p: f32[8,8], i: s32[2,1]) -> f32[2,8] {
  %p = f32[8,8] parameter(0), metadata={op_name="p['w']"}
  %i = s32[2,1] parameter(1)
  %copied = f32[8,8] copy(%p), metadata={op_name="p['w']"}
  ROOT %read = f32[2,8] gather(%copied, %i), offset_dims={1}, metadata={op_name="jit(step)/jvp()/gather"}
}

ENTRY %main (w: f32[4,8], v: f32[4,8], i: s32[2,1]) -> f32[8,8] {
  %w = f32[4,8] parameter(0), metadata={op_name="p['w']"}
  %v = f32[4,8] parameter(1), metadata={op_name="p['v']"}
  %i = s32[2,1] parameter(2)
  %g = f32[8,8] all-gather(%w), replica_groups={{0,1}}, dimensions={0}, metadata={op_name="p['w']"}
  %r = f32[2,8] fusion(%g, %i), kind=kLoop, calls=%rows, metadata={op_name="jit(step)/jvp()/select"}
  %small = bf16[4,8] convert(%v), metadata={op_name="p['v']"}
  %h = bf16[8,8] all-gather(%small), replica_groups={{0,1}}, dimensions={0}, metadata={op_name="p['v']"}
  %large = f32[8,8] convert(%h), metadata={op_name="p['v']"}
  %sum = f32[8,8] add(%large, %large), metadata={op_name="jit(step)/transpose(jvp())/add"}
  ROOT %a = f32[16,8] all-gather(%sum), replica_groups={{0,1}}, dimensions={0}, metadata={op_name="jit(f)/x"}
}
"""


def test_a_collective_with_the_name_of_an_argument_has_that_of_its_first_user() -> None:
    (module,) = hlo.parser.parse(NAMED_BY_ARGUMENT)
    names = {c.name: c.op_name for c in hlo.collectives.collectives(module, None)}
    assert names == {
        "g": "jit(step)/jvp()/gather",
        "h": "jit(step)/transpose(jvp())/add",
        "a": "jit(f)/x",
    }
    # Without a user with another name, the name stays.
    (module,) = hlo.parser.parse(re.sub(r'"jit[^"]*"', "\"p['w']\"", NAMED_BY_ARGUMENT))
    assert {c.op_name for c in hlo.collectives.collectives(module, None)} == {"p['w']", "p['v']"}


@given.needs_cases
def test_op_name_and_source() -> None:
    (gather,) = found("scan_12_layers.compiled.hlo")
    assert gather.op_name == "jit(scanf)/while/body/closed_call/tanh"
    assert gather.source == "make.py:16" and gather.computation == "region_0.1_spmd"
    # The name of an instruction can differ from its opcode.
    names = [collective.name for collective in found("shard_map_all_collectives.compiled.hlo")]
    assert names[0] == "ppermute.3" and names[4] == "psum.7"


@pytest.mark.parametrize("name", ["own permuted mesh", given.shared("permuted_mesh.compiled.hlo")])
def test_permuted_mesh(name: str) -> None:
    (reduce,) = found(name, mesh(a=4, b=2))
    assert (reduce.mesh_axes, reduce.group_size, reduce.groups) == (("b",), 2, 4)
    assert reduce.device_groups is None
    (elsewhere,) = found(name, GRID)
    assert elsewhere.mesh_axes is None
    assert elsewhere.device_groups == ((0, 1), (2, 3), (4, 5), (6, 7))


@pytest.mark.parametrize(
    ("name", "size", "axes"),
    [
        ("asynchronous.hlo", 120, ["b", "a", "b", "ab", "b", "ab"]),
        given.shared("import_async_collectives.hlo", 32, ["b", "b", "b", "ab", "b", "b"]),
    ],
)
def test_asynchronous_collectives_count_once(name: str, size: int, axes: list[str]) -> None:
    """size: the bytes of each operand. An all-gather over two devices gives twice as many."""
    collectives = found(name, mesh(a=2, b=2))
    assert [(c.op, c.asynchronous, c.executions, c.payload_bytes) for c in collectives] == [
        ("all-gather", True, 1, 2 * size),
        ("all-reduce", True, 1, size),
        ("all-to-all", True, 1, size),
        ("collective-permute", True, 1, size),
        ("reduce-scatter", True, 1, size),
        ("collective-broadcast", True, 1, size),
    ]
    assert ["".join(collective.mesh_axes or ()) for collective in collectives] == axes


@pytest.mark.parametrize("name", ["asynchronous.hlo", given.shared("import_async_collectives.hlo")])
def test_asynchronous_collective_printed_by_xla(name: str) -> None:
    """XLA prints the wrapped collective as part of the async-start."""
    hlo_of_jaxlib = pytest.importorskip("jaxlib._hlo")
    for module in given.text(name).split("// -----"):
        (written,) = hlo.collectives.collectives(hlo.parser.parse(module)[0])
        bare = "\n".join(line for line in module.splitlines() if not line.startswith("//"))
        printed = hlo_of_jaxlib.hlo_module_from_text(bare).to_string()
        (again,) = hlo.collectives.collectives(hlo.parser.parse(printed)[0])
        for key in ("op", "asynchronous", "payload_bytes", "wire_bytes_per_device", "executions"):
            assert getattr(again, key) == getattr(written, key)


def test_sub_byte_elements_of_our_texts() -> None:
    sizes = [(c.op, c.payload_bytes) for c in found("sub_byte.hlo")]
    assert sizes == [("all-gather", 120), ("all-to-all", 42), ("collective-permute", 33)]
    (gather,) = found("u4_gather.hlo", mesh(x=8))
    assert (gather.payload_bytes, gather.wire_bytes_per_device) == (98304, 86016)


@given.needs_cases
def test_sub_byte_elements() -> None:
    sizes = [(c.op, c.payload_bytes) for c in found("sub_byte_collectives.hlo")]
    assert sizes == [
        ("all-gather", 32 * 16 // 2),
        ("all-gather", 4 * 4 // 2),
        ("all-to-all", 80 * 20 // 2),
        ("collective-broadcast", 5 * 14 * 6 // 2),
        ("collective-permute", 18 // 2),
    ]
    (gather,) = found("u4_all_gather_1x8.hlo", mesh(x=8))
    assert (gather.payload_bytes, gather.wire_bytes_per_device) == (2**21, 2**21 * 7 // 8)


@given.needs_cases
def test_whole_models() -> None:
    layers = {80: 30, 1: 45}
    collectives = found("hlo_llama31_70b_bf16_16x8.hlo", mesh(fsdp=2, tensor=64))
    counts = {times: sum(c.executions == times for c in collectives) for times in (80, 1)}
    assert counts == layers and len(collectives) == 16 + 59
    by_axes = dict.fromkeys((("tensor",), ("fsdp",), ("fsdp", "tensor")), 0)
    for collective in collectives:
        by_axes[collective.mesh_axes] += 1
    assert by_axes == {("tensor",): 45 + 16, ("fsdp",): 9, ("fsdp", "tensor"): 5}
    gather = next(c for c in collectives if c.op == "all-gather")
    assert gather.wire_bytes_per_device == gather.payload_bytes * 63 // 64


def one(instruction: str, header: str = "HloModule m, num_partitions=8", on: Mesh | None = None):
    (module,) = hlo.parser.parse(
        f"{header}\nENTRY e {{\n  a = f32[64]{{0}} parameter(0)\n  b = bf16[32]{{0}} parameter(1)\n"
        f"  z = s32[8]{{0}} parameter(2)\n  {instruction}\n}}\n"
    )
    (collective,) = hlo.collectives.collectives(module, on)
    return collective


FLAT = "channel_id=1, use_global_device_ids=true"


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        (f"r = f32[64] all-reduce(a), {FLAT}, replica_groups=[2,4]<=[8]", (4, 2, 256, 384)),
        (f"r = (f32[64], bf16[32]) all-reduce(a, b), {FLAT}, replica_groups=[1,8]<=[8]",
         (8, 1, 320, 560)),
        (f"r = (f32[512], bf16[256]) all-gather(a, b), {FLAT}, replica_groups=[1,8]<=[8]",
         (8, 1, 2560, 2240)),
        (f"r = ((f32[64], bf16[32]), (f32[512], bf16[256])) all-gather-start(a, b), {FLAT}, "
         "replica_groups=[1,8]<=[8]", (8, 1, 2560, 2240)),
        (f"r = (f32[64], f32[256], u32[], u32[]) all-gather-start(a), {FLAT}, "
         "replica_groups=[2,4]<=[8]", (4, 2, 1024, 768)),
        (f"r = f32[16] reduce-scatter(a), {FLAT}, replica_groups=[2,4]<=[8]", (4, 2, 256, 192)),
        ("r = f32[64] all-to-all(a), channel_id=1, replica_groups=[2,4]<=[8]", (4, 2, 256, 192)),
        ("r = (f32[64], f32[64]) all-to-all(a, a), channel_id=1, replica_groups=[4,2]<=[8]",
         (2, 4, 512, 256)),
        ("r = f32[64] ragged-all-to-all(a, a, z, z, z, z), channel_id=1, replica_groups=[1,8]<=[8]",
         (8, 1, 256, 224)),
        ("r = f32[64] collective-permute(a), channel_id=1, source_target_pairs={{0,1},{1,0}}",
         (2, 1, 256, 256)),
        ("r = f32[64] collective-permute(a), channel_id=1, source_target_pairs={{0,0},{1,1}}",
         (1, 2, 256, 0)),
        ("r = f32[64] collective-permute(a), channel_id=1, source_target_pairs={}",
         (None, 0, 256, 0)),
        ("r = f32[64] collective-permute(a, a, z, z), channel_id=1, source_target_pairs={{0,1}}, "
         "slice_sizes={{16}}", (2, 1, 64, 64)),
        ("r = (f32[64], bf16[32]) collective-permute(a, b), channel_id=1, "
         "source_target_pairs={{0,1}}", (2, 1, 320, 320)),
        ("r = f32[64] collective-broadcast(a), channel_id=1, replica_groups={{3,0,1}}",
         (3, 1, 256, 256)),
        # The second operand is the index of the device.
        ("r = f32[64] collective-broadcast(a, z), channel_id=1, replica_groups={{3,0,1}}, "
         "has_dynamic_root=true", (3, 1, 256, 256)),
        (f"r = f32[64] collective-reduce(a), {FLAT}, replica_groups={{{{0,1}},{{2,3}}}}, "
         "has_dynamic_root=false", (2, 2, 256, 256)),
        (f"r = f32[64] collective-reduce(a, z), {FLAT}, replica_groups=[2,4]<=[8], "
         "has_dynamic_root=true", (4, 2, 256, 256)),
        ("t = (bf16[32], bf16[32]) tuple(b, b)\n  r = (bf16[32], bf16[32]) collective-permute(t, t, z, "
         "z), channel_id=1, source_target_pairs={{0,1}}, slice_sizes={{8},{16}}", (2, 1, 48, 48)),
        ("t = (f32[64], bf16[32]) tuple(a, b)\n  r = (f32[64], bf16[32]) collective-permute(t, t, z, "
         "z), channel_id=1, source_target_pairs={{0,1}}, slice_sizes={{8},{16}}",
         (2, 1, None, None)),
        (f"m = b(f32[64]) custom-call(a)\n  r = b(f32[64]) all-reduce(m), {FLAT}, "
         "replica_groups=[2,4]<=[8]", (4, 2, 256, 384)),
        (f"r = f32[64] all-reduce(a), {FLAT}, replica_groups={{{{0}},{{1}}}}", (1, 2, 256, 0)),
        (f"r = f32[64] all-reduce(a), {FLAT}, replica_groups={{{{0,2,4}},{{1,3,5,6}}}}",
         (None, 2, 256, None)),
        # Texts without groups or shapes.
        (f"r = f32[64] all-reduce(lost), {FLAT}, replica_groups=[2,4]<=[8]", (4, 2, 256, 384)),
        (f"r = f32[16] reduce-scatter(lost), {FLAT}, replica_groups=[2,4]<=[8]", (4, 2, 256, 192)),
        (f"r = all-gather(a), {FLAT}, replica_groups=[2,4]<=[8]", (4, 2, None, None)),
        (f"r = new7[64] all-reduce(lost), {FLAT}, replica_groups=[2,4]<=[8]", (4, 2, None, None)),
    ],
)  # fmt: skip
def test_groups_and_bytes(instruction: str, expected: tuple) -> None:
    got = one(instruction)
    assert (got.group_size, got.groups, got.payload_bytes, got.wire_bytes_per_device) == expected
    assert got.asynchronous == ("-start" in instruction)


@pytest.mark.parametrize(
    ("flags", "groups", "header", "expected"),
    [
        # Ids are replicas per partition, partitions, or replicas with all partitions.
        ("", "{{0,1}}", "replica_count=2, num_partitions=4", (2, 4)),
        ("channel_id=1,", "{{0,1}}", "replica_count=2, num_partitions=4", (8, 1)),
        ("", "{}", "replica_count=2, num_partitions=4", (2, 4)),
        ("channel_id=1,", "{}", "replica_count=2, num_partitions=4", (8, 1)),
        ("", "{}", "num_partitions=4", (1, 4)),
        ("", "{}", "is_scheduled=true", (None, None)),
        ("channel_id=1,", "{{0,1,2,3},{4,5,6,7}}", "num_partitions=8", (4, 2)),
        ("channel_id=1,", "{{0,1,2,3},{4,5,6,7}}", "is_scheduled=true", (4, 2)),
    ],
)
def test_meaning_of_ids(flags: str, groups: str, header: str, expected: tuple) -> None:
    got = one(f"r = f32[64] all-reduce(a), {flags} replica_groups={groups}", f"HloModule m, {header}")
    assert (got.group_size, got.groups) == expected


def test_empty_groups_mean_the_whole_mesh() -> None:
    got = one("r = f32[64] all-reduce(a), replica_groups={}", "HloModule m", GRID)
    assert (got.group_size, got.groups, got.mesh_axes) == (8, 1, ("data", "model"))


def test_spmd_generated() -> None:
    call = f"r = f32[64] all-reduce(a), {FLAT}, replica_groups=[2,4]<=[8]"
    assert one(call).spmd_generated is None
    assert one(f'{call}, frontend_attributes={{is_spmd_generated="true"}}').spmd_generated is True
    assert one(f'{call}, frontend_attributes={{is_spmd_generated="false"}}').spmd_generated is None


def test_invalid_groups_name_the_instruction() -> None:
    with pytest.raises(InvalidInput, match=r"^r: replica_groups .* is not a valid axis name"):
        one(f"r = f32[64] all-reduce(a), {FLAT}, replica_groups=mesh['x'=8] {{'y'}}")
    with pytest.raises(InvalidInput, match=r"^r: use_global_device_ids"):
        one("r = f32[64] all-reduce(a), use_global_device_ids=true, replica_groups={{0,1}}")


def test_collective_in_an_applied_computation_has_unknown_executions() -> None:
    (module,) = hlo.parser.parse(
        "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n r = f32[] all-reduce(a)\n}\n"
        "unused {\n c = f32[] parameter(0)\n r = f32[] all-reduce(c)\n}\n"
        "ENTRY e {\n x = f32[8] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT y = f32[] reduce(x, z), dimensions={0}, to_apply=add\n}\n"
    )
    assert [(c.computation, c.executions) for c in hlo.collectives.collectives(module)] == [
        ("add", None),
        ("unused", 0),
    ]


@for_all(st.integers(0, 2**40), st.integers(1, 512))
def test_wire_bytes_of_a_ring(payload: int, group: int) -> None:
    """Simulate a ring: in each of g − 1 steps, a device sends one of g parts."""
    part = payload / group
    steps = {"all-reduce": 2 * (group - 1), "reduce-scatter": group - 1, "all-gather": group - 1}
    for op, sent in steps.items():
        got = OPERATIONS[op].wire_bytes(payload, group)
        assert math.floor(sent * payload / group * (1 - 1e-12)) <= got <= sent * part + 1e-3 * payload
    gather, exchange = OPERATIONS["all-gather"], OPERATIONS["all-to-all"]
    assert exchange.wire_bytes(payload, group) == gather.wire_bytes(payload, group)


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@for_all(shapes, st.data())
def test_axes_of_groups(shape: list[int], data: st.DataObject) -> None:
    names = [f"axis{number}" for number in range(len(shape))]
    on = mesh(**dict(zip(names, shape, strict=True)))
    chosen = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))
    others = [number for number in range(len(shape)) if number not in chosen]
    members = math.prod(shape[number] for number in chosen)
    table = np.arange(on.size).reshape(shape).transpose(others + chosen).reshape(-1, members)
    order = data.draw(st.permutations(range(len(table))))
    groups = tuple(tuple(table[row].tolist()) for row in order)
    expected = tuple(names[number] for number in sorted(chosen) if shape[number] > 1)
    assert axes_of_groups(groups, on) == expected
    # If two groups exchange a member, no axes form them, unless each group is one device.
    if 1 < members < on.size:
        first, second = (list(group) for group in groups[:2])
        first[0], second[-1] = second[-1], first[0]
        wrong = axes_of_groups((tuple(first), tuple(second), *groups[2:]), on)
        if wrong is not None:  # another set of axes can form the same groups
            assert {frozenset(group) for group in product_groups(on, wrong)} == {
                frozenset(group) for group in (first, second, *groups[2:])
            }


def product_groups(on: Mesh, axes: tuple[str, ...]) -> list[list[int]]:
    """Return the groups of mesh axes by comparing the coordinates of all devices."""
    coordinates = list(itertools.product(*(range(axis.size) for axis in on.axes)))
    groups: dict[tuple, list[int]] = {}
    for position, place in enumerate(coordinates):
        key = tuple(at for axis, at in zip(on.axes, place, strict=True) if axis.name not in axes)
        groups.setdefault(key, []).append(position)
    return list(groups.values())


def test_groups_without_all_devices_have_no_axes() -> None:
    assert axes_of_groups(((0, 1, 2, 3),), GRID) is None
    assert axes_of_groups(((0, 1, 2, 3), (4, 5, 6)), GRID) is None
    assert axes_of_groups(((0, 1, 2, 3), (4, 5, 6, 8)), GRID) is None
    assert axes_of_groups(((0, 1), (2, 3), (4, 5), (6, 7)), GRID) is None
    assert axes_of_groups((), GRID) is None


def test_axes_of_pairs() -> None:
    shift = tuple((4 * row + column, 4 * row + column + 1) for row in (0, 1) for column in range(3))
    assert axes_of_pairs(shift, GRID) == ("model",)
    assert axes_of_pairs(((0, 4), (4, 0)), GRID) == ("data",)
    assert axes_of_pairs(((0, 2),), GRID) == ("model",)
    assert axes_of_pairs(((0, 5),), GRID) == ("data", "model")
    assert axes_of_pairs((), GRID) == axes_of_pairs(((3, 3),), GRID) == ()
    assert axes_of_pairs(((0, 8),), GRID) is None


# The same groups of GRID in different words, by mesh axes.
WRITTEN = {
    ("model",): ("{{0,1,2,3},{4,5,6,7}}", "[2,4]<=[8]", "{{7,6,5,4},{0,1,2,3}}"),
    ("data",): ("{{0,4},{1,5},{2,6},{3,7}}", "[4,2]<=[2,4]T(1,0)"),
}
OPS = {"all-reduce": ", use_global_device_ids=true, to_apply=%add", "all-to-all": ""}
STEPS = st.one_of(
    st.none(),
    st.tuples(
        st.sampled_from(tuple(OPS)),
        st.sampled_from([(axes, text) for axes, texts in WRITTEN.items() for text in texts]),
    ),
)


@for_all(st.lists(st.tuples(STEPS, st.sets(st.integers(0, 9))), max_size=10))
def test_the_depth_is_the_longest_path_of_equal_collectives(nodes: list[Any]) -> None:
    """An instruction has an operation and groups, or is an addition, and the earlier ones that it adds.

    A prediction combines those of one depth: to no fewer than the longest path along these mesh axes.
    """
    sources = [[number for number in needs if number < place] for place, (_, needs) in enumerate(nodes)]
    lines, kinds = [], []
    for place, (step, _) in enumerate(nodes):
        operands = ", ".join(f"%v{number}" for number in sources[place]) or "%p"
        kinds.append(step and (step[0], step[1][0]))
        if step is None:
            lines.append(f"%v{place} = f32[8] fusion({operands}), kind=kLoop")
            continue
        op, (_, groups) = step
        options = f"channel_id={place + 1}, replica_groups={groups}{OPS[op]}"
        lines.append(f"%v{place} = f32[8] {op}({operands}), {options}")
    body = "\n".join(("%p = f32[8] parameter(0)", *lines))
    head = "HloModule m, num_partitions=8"
    (module,) = hlo.parser.parse(f"{head}\n\nENTRY %main (p: f32[8]) -> f32[8] {{\n{body}\n}}\n")

    def chain(place: int, wanted: list[Any]) -> int:
        own = (chain(number, wanted) + (kinds[number] in wanted) for number in sources[place])
        return max(own, default=0)

    found = hlo.collectives.collectives(module, GRID)
    expected = {f"v{place}": chain(place, [kind]) for place, kind in enumerate(kinds) if kind}
    assert {c.name: c.depth for c in found} == expected
    for term in modelled(Program("f", collectives=found), GRID, CHIPS["v5e"]).terms:
        wanted = [(op, term.axes) for op in OPS]
        if places := [place for place, kind in enumerate(kinds) if kind in wanted]:
            assert max(chain(place, wanted) for place in places) < term.messages <= len(places)
