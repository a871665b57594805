"""Partitioned programs after the passes send what the real compilers for TPUs and GPUs send."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from inspector import hlo
from inspector.hlo.later_passes import as_compiled_for
from inspector.hlo.module import Module, operand_names
from inspector.records.collectives import BY_OPCODE
from inspector.records.snapshot import Mesh, MeshAxis, Platform
from tests.hlo.later_programs import FILE, SHAPES

CASES: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
SLICES = [0] * 8 + [1] * 8
each_case = pytest.mark.parametrize(
    "case", CASES, ids=[f"{case['program']}, {case['kind']}" for case in CASES]
)


def module_of(case: dict[str, Any]) -> Module:
    (module,) = hlo.parser.parse(case["text"])
    return module


def passed(case: dict[str, Any]) -> Module:
    several = case["kind"] == "slices"
    kind = "gpu" if case["kind"] == "gpu" else "tpu"
    return as_compiled_for(module_of(case), kind, SLICES if several else None)


def mesh_of(case: dict[str, Any]) -> Mesh:
    sizes = SHAPES[case["kind"]]
    axes = tuple(MeshAxis(name, size) for name, size in zip("ab", sizes, strict=True))
    slices = tuple(SLICES) if case["kind"] == "slices" else None
    return Mesh(axes, tuple(range(sizes[0] * sizes[1])), slice_index=slices)


def sent(rows: list[list[Any]]) -> Counter[tuple[Any, ...]]:
    """Return the wire bytes by operation and mesh axes."""
    total: Counter[tuple[Any, ...]] = Counter()
    for op, axes, wire_bytes in rows:
        total[op, None if axes is None else tuple(axes)] += wire_bytes
    return +total


@each_case
def test_a_program_sends_what_the_compiled_one_does(case) -> None:
    collectives = hlo.collectives.collectives(passed(case), mesh_of(case))
    rows = [
        [collective.op, collective.mesh_axes, collective.wire_bytes_per_device] for collective in collectives
    ]
    assert sent(rows) == sent(case["collectives"])


@each_case
def test_operands_come_before_their_users_and_roots_stay(case) -> None:
    before, after = module_of(case), passed(case)
    for computation in after.computations:
        known: set[str | None] = set()
        for instruction in computation.instructions:
            if instruction.opcode not in ("parameter", "constant"):
                assert known.issuperset(operand_names(instruction))
            assert instruction.name not in known
            known.add(instruction.name)
        (root,) = [one for one in computation.instructions if one.root]
        assert computation.root == root
        old = before.by_name[computation.name].root
        assert old is not None and root.shape == old.shape


@each_case
def test_emulated_devices_change_nothing(case) -> None:
    module = module_of(case)
    assert as_compiled_for(module, None) is module


SUM = """HloModule m, num_partitions=4
sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y) }
"""
REDUCED = "use_global_device_ids=true, to_apply=sum"


def collectives_after(
    entry: str, kind: Platform = "gpu", torus: tuple[int, ...] | None = None, partitions: int = 4
) -> list[str]:
    """Return the operations of the collectives of a program after the passes."""
    text = SUM.replace("=4", f"={partitions}")
    (module,) = hlo.parser.parse(f"{text}ENTRY e {{\n{entry}\n}}\n")
    after = as_compiled_for(module, kind, torus=torus)
    return [operation.opcode for _, operation in after.instructions if operation.opcode in BY_OPCODE]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (f"all-reduce(b), channel_id=2, replica_groups=[2,2]<=[4], {REDUCED}", 1),
        # Other groups, or another user of the result.
        (f"all-reduce(b), channel_id=2, replica_groups=[2,2]<=[2,2]T(1,0), {REDUCED}", 2),
        ("multiply(first, b)", 1),
    ],
)
def test_sums_are_reduced_together_if_their_groups_are_equal(second, expected) -> None:
    entry = f"""a = f32[8] parameter(0)
      b = f32[8] parameter(1)
      first = f32[8] all-reduce(a), channel_id=1, replica_groups=[2,2]<=[4], {REDUCED}
      second = f32[8] {second}
      ROOT r = f32[8] add(first, second)"""
    assert collectives_after(entry) == ["all-reduce"] * expected
    assert collectives_after(entry, "tpu") == ["all-reduce"] * expected


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("{0, 4, 0, 4}", "reduce-scatter"),
        ("{4, 0, 4, 0}", "all-reduce"),  # each device keeps the part of another one
        ("{0, 0, 4, 4}", "all-reduce"),
    ],
)
def test_an_all_reduce_is_scattered_if_each_device_keeps_its_part(table, expected) -> None:
    entry = f"""a = f32[8] parameter(0)
      whole = f32[8] all-reduce(a), channel_id=1, replica_groups=[2,2]<=[4], {REDUCED}
      table = s32[4] constant({table})
      id = u32[] partition-id()
      start = s32[1] dynamic-slice(table, id), dynamic_slice_sizes={{1}}
      offset = s32[] reshape(start)
      ROOT r = f32[4] dynamic-slice(whole, offset), dynamic_slice_sizes={{4}}"""
    assert collectives_after(entry) == [expected]
    assert collectives_after(entry, "tpu") == ["all-reduce"]


@pytest.mark.parametrize(
    ("torus", "groups", "expected"),
    [
        ((2, 4), "[1,8]<=[8]", "reduce-scatter"),
        (None, "[1,8]<=[8]", "reduce-scatter"),
        # The compiler for TPUs reduces over a whole square or three-dimensional slice in several phases.
        ((4, 4), "[1,8]<=[8]", "all-reduce"),
        ((2, 2, 2), "[1,8]<=[8]", "all-reduce"),
        ((4, 4), "[2,4]<=[8]", "reduce-scatter"),
        ((2, 2, 2), "[2,4]<=[8]", "reduce-scatter"),
    ],
)
def test_tpus_scatter_over_a_whole_slice_if_one_ring_joins_it(torus, groups, expected) -> None:
    devices = 8 if groups.startswith("[1") else 4
    table = [number % devices * 64 for number in range(8)]
    entry = f"""a = f32[{64 * devices},512] parameter(0)
      whole = f32[{64 * devices},512] all-reduce(a), channel_id=1, replica_groups={groups}, {REDUCED}
      table = s32[8] constant({{{", ".join(map(str, table))}}})
      id = u32[] partition-id()
      start = s32[1] dynamic-slice(table, id), dynamic_slice_sizes={{1}}
      offset = s32[] reshape(start)
      zero = s32[] constant(0)
      ROOT r = f32[64,512] dynamic-slice(whole, offset, zero), dynamic_slice_sizes={{64,512}}"""
    assert collectives_after(entry, "tpu", torus, 8) == [expected]


# Sums over 4 devices of a slice of v5e 2×4, the dimension along which each keeps a part, and whether the
# compiler (libtpu 0.0.42) makes a reduce-scatter of it.
SCATTERED = [
    ((4, 32, 128), 1, True), ((2, 64, 64), 1, True), ((16, 128, 8, 64), 2, False),
    ((16, 128, 64, 64), 2, False), ((16, 128, 8, 128), 2, False), ((16, 128, 32, 128), 2, True),
    ((16, 128, 16, 64), 1, False), ((16, 128, 16, 64), 0, True), ((16, 64, 32, 128), 1, False),
    ((4, 8, 1024), 1, False), ((16, 16, 20, 512), 0, True), ((16, 16, 20, 512), 1, False),
    ((16, 16, 20, 512), 3, True), ((16, 16, 32, 64), 2, True), ((8, 128, 64), 1, False),
    ((16, 512, 64), 2, True), ((16, 32, 128, 64), 1, False),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "cut", "scattered"), SCATTERED)
def test_tpus_scatter_whole_tiles_of_arrays_of_several_dimensions(sizes, cut, scattered) -> None:
    part = [size // 4 if number == cut else size for number, size in enumerate(sizes)]
    starts = ["offset" if number == cut else "zero" for number in range(len(sizes))]
    whole, kept = (f"f32[{','.join(map(str, shape))}]" for shape in (sizes, part))
    table = ", ".join(str(number % 4 * part[cut]) for number in range(8))
    entry = f"""a = {whole} parameter(0)
      whole = {whole} all-reduce(a), channel_id=1, replica_groups=[2,4]<=[8], {REDUCED}
      table = s32[8] constant({{{table}}})
      id = u32[] partition-id()
      start = s32[1] dynamic-slice(table, id), dynamic_slice_sizes={{1}}
      offset = s32[] reshape(start)
      zero = s32[] constant(0)
      ROOT r = {kept} dynamic-slice(whole, {", ".join(starts)}), dynamic_slice_sizes={{{kept[4:-1]}}}"""
    expected = "reduce-scatter" if scattered else "all-reduce"
    assert collectives_after(entry, "tpu", (2, 4), 8) == [expected]


# Transfers between 16 devices, and the operations that the compiler for two slices of v5e 2×4 makes of them
# (libtpu 0.0.42): those between slices, and inside of slices those that differ by slice.
TRANSPOSED = [(n, 2 * n % 16 + (n >= 8)) for n in range(16)]
PERMUTES = [
    (
        TRANSPOSED,
        {
            ((4, 8), (5, 10), (6, 12), (7, 14), (8, 1), (9, 3), (10, 5), (11, 7)),
            ((0, 0), (1, 2), (2, 4), (3, 6), (8, 8), (9, 10), (10, 12), (11, 14)),
            ((4, 1), (5, 3), (6, 5), (7, 7), (12, 9), (13, 11), (14, 13), (15, 15)),
        },
    ),
    ([(n, (n + 8) % 16) for n in range(16)], None),  # all between slices
    ([(n, n ^ 1) for n in range(16)], None),  # all inside
]


@pytest.mark.parametrize(("transfers", "expected"), PERMUTES)
def test_transfers_between_slices_are_apart_from_those_inside(transfers, expected) -> None:
    written = ",".join(f"{{{sender},{receiver}}}" for sender, receiver in transfers)
    entry = f"""a = f32[8] parameter(0)
      moved = f32[8] collective-permute(a), channel_id=1, source_target_pairs={{{written}}}
      ROOT r = f32[8] add(moved, a)"""
    (module,) = hlo.parser.parse(f"HloModule m, num_partitions=16\nENTRY e {{\n{entry}\n}}\n")
    result = as_compiled_for(module, "tpu", SLICES)
    mesh = Mesh((MeshAxis("a", 16),), tuple(range(16)))
    permutes = hlo.collectives.collectives(result, mesh)
    assert {permute.source_target_pairs for permute in permutes} == (expected or {tuple(transfers)})
    assert all(permute.wire_bytes_per_device == 32 for permute in permutes)


def sent_over_slices(entry: str) -> list[tuple[str, int | None]]:
    """Return the operations and payloads of a program on two slices of 8 devices."""
    (module,) = hlo.parser.parse(f"{SUM.replace('=4', '=16')}ENTRY e {{\n{entry}\n}}\n")
    mesh = Mesh((MeshAxis("a", 16),), tuple(range(16)))
    collectives = hlo.collectives.collectives(as_compiled_for(module, "tpu", SLICES), mesh)
    return [(collective.op, collective.payload_bytes) for collective in collectives]


# Sums over two slices of v5e 2×4, the operation inside of a slice, and the bytes between slices, as compiled
# with libtpu 0.0.42.
TWO_LEVELS = [
    ("1024,512", "reduce-scatter", 262_144), ("65536", "reduce-scatter", 32_768),
    ("4,64,128", "reduce-scatter", 16_384), ("24,16,8,64", "reduce-scatter", 196_608),
    ("4,1024", "all-reduce", 2_048), ("16,128", "all-reduce", 1_024), ("64,64", "all-reduce", 4_096),
    ("20,512", "all-reduce", 12_288), ("4,64", "all-reduce", 2_048),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "inside", "between"), TWO_LEVELS)
def test_sums_over_slices_are_cut_inside_and_sent_in_whole_tiles(sizes, inside, between) -> None:
    entry = f"""a = f32[{sizes}] parameter(0)
      ROOT r = f32[{sizes}] all-reduce(a), channel_id=1, replica_groups=[1,16]<=[16], {REDUCED}"""
    first, second, third = sent_over_slices(entry)
    assert (first[0], second, third[0]) == (inside, ("all-reduce", between), "all-gather")


def test_sums_that_no_slice_can_cut_are_whole_tiles_on_both_levels() -> None:
    entry = f"""a = f32[2,3,5] parameter(0)
      ROOT r = f32[2,3,5] all-reduce(a), channel_id=1, replica_groups=[1,16]<=[16], {REDUCED}"""
    assert sent_over_slices(entry) == [("all-reduce", 3_072)] * 2


@pytest.mark.parametrize(("after", "narrow"), [("maximum(moved, zeros)", True), ("add(moved, zeros)", False)])
def test_only_transfers_inside_of_slices_are_bfloat16_before_a_product(after, narrow) -> None:
    """A maximum is exact in the precision of its operand, a sum is not."""
    written = ",".join(f"{{{sender},{receiver}}}" for sender, receiver in TRANSPOSED)
    entry = f"""a = f32[8,8] parameter(0)
      zeros = f32[8,8] parameter(1)
      moved = f32[8,8] collective-permute(a), channel_id=1, source_target_pairs={{{written}}}
      used = f32[8,8] {after}
      ROOT r = f32[8,8] dot(used, zeros), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""
    inside = 128 if narrow else 256
    assert sorted(payload or 0 for _, payload in sent_over_slices(entry)) == [inside, inside, 256]


def test_an_array_is_gathered_again_for_the_operation_that_needs_it() -> None:
    """The compiler for TPUs names the second all-gather after the product of the backward pass."""

    def line(name: str, opcode: str, operands: str, op_name: str, dtype: str = "bf16", more: str = "") -> str:
        return f'%{name} = {dtype}[8,8]{{1,0}} {opcode}({operands}){more}, metadata={{op_name="{op_name}"}}'

    forward, backward = "jit(step)/jvp(M)/dot_general", "jit(step)/transpose(jvp(M))/dot_general"
    product = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    between = [line("n0", "negate", "%first", forward)]
    between += [line(f"n{n}", "negate", f"%n{n - 1}", forward) for n in range(1, 250)]
    lines = [
        "%x = bf16[8,8]{1,0} parameter(0)",
        "%w = f32[1,8]{1,0} parameter(1)",
        line("gather", "all-gather", "%w", forward, "f32",
             ", channel_id=1, replica_groups=[1,8]<=[8], dimensions={0}, use_global_device_ids=true"),
        line("narrow", "convert", "%gather", forward),
        line("first", "dot", "%x, %narrow", forward, more=product),
        *between,
        line("narrow_again", "convert", "%gather", forward),
        "ROOT " + line("second", "dot", "%n249, %narrow_again", backward, more=product),
    ]  # fmt: skip
    header = "HloModule step, is_scheduled=false, num_partitions=8"
    (module,) = hlo.parser.parse(
        "\n".join([header, "", "ENTRY %main {", *(f"  {each}" for each in lines), "}"])
    )
    mesh = Mesh((MeshAxis("a", 8),), tuple(range(8)))
    gathers = hlo.collectives.collectives(as_compiled_for(module, "tpu", None), mesh)
    assert [gather.op_name for gather in gathers] == [forward, backward]
