"""Any text is parsed, or raises InvalidInput."""

from __future__ import annotations

import random

from hypothesis import given as for_all
from hypothesis import strategies as st

from inspector import hlo
from inspector.records import typed_json
from inspector.records.snapshot import Collective, Mesh, MeshAxis
from inspector.sharding.traffic import traffic
from inspector.text.errors import InvalidInput
from tests.hlo import given
from tests.hlo.test_loops import CARRIED, FUSED, PLAIN
from tests.hlo.test_parser import TABLES, WHOLE

GRID = Mesh((MeshAxis("data", 2), MeshAxis("model", 4)), tuple(range(8)))
LOOP = {
    "t": "s32", "start": 0, "step": 1, "limit": 9, "op": "add", "sides": "i, n",
    "direction": "LT", "negated": "GE",
}  # fmt: skip
SEEDS = [WHOLE + TABLES, *(form.format(**LOOP) for form in (PLAIN, FUSED, CARRIED))]
SEEDS += [given.text(name) for name in ("own scan", "own cond", "loops.hlo")]
SEEDS += [
    given.text(name)
    for name in ("scan_12_layers.compiled.hlo", "cond_with_collective.compiled.hlo", "cpu.hlo")
    if given.FOLDER.is_dir()
]
PIECES = [
    "{", "}", "(", ")", "[", "]", '"', "\\", "/*", "*/", "//", "// -----\n", "\n", ",", "=", "%", " ",
    "ROOT ", "ENTRY ", "HloModule m\n", "all-reduce(", "while(", "replica_groups=", "mesh['a'=2] {'a'}",
    "[2,4]<=[8]", "{{0,1}}", "f32[2]", "s4[99999999999999999999]", "(f32[2], u32[])", "to_apply=", "body=",
    "constant(", "99999999999999999999", "-1", "stack_frame_id=1", "StackFrames\n", "é", "\x00", "\r",
    'known_trip_count":{"n":"9"}', "channel_id=1, use_global_device_ids=true", "source_target_pairs={{0,1}}",
]  # fmt: skip


def read(text: str) -> None:
    """Run every analysis on a text, which may only raise InvalidInput."""
    try:
        collectives = [
            c for module in hlo.parser.parse(text) for c in hlo.collectives.collectives(module, GRID)
        ]
    except InvalidInput as refused:
        assert "\n" not in str(refused) and len(str(refused)) < 400
        return
    for collective in collectives:
        assert typed_json.decode(Collective, typed_json.encode(collective)) == collective
    traffic(collectives)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw a program with lines exchanged, text inserted or removed, or its end cut off."""
    text = draw(st.sampled_from(SEEDS))
    shuffled = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 4))):
        change = draw(st.sampled_from(["cut", "insert", "insert", "delete", "shuffle", "double"]))
        at = draw(st.integers(0, len(text)))
        if change == "cut":
            text = text[:at] if draw(st.booleans()) else text[at:]
        elif change == "insert":
            text = text[:at] + draw(st.sampled_from(PIECES)) + text[at:]
        elif change == "delete":
            text = text[:at] + text[at + draw(st.integers(1, 40)) :]
        else:
            lines = text.split("\n")
            if change == "shuffle":
                shuffled.shuffle(lines)
            else:
                lines += lines[: draw(st.integers(0, len(lines)))]
            text = "\n".join(lines)
    return text


@for_all(mutated())
def test_mutated_program(text: str) -> None:
    read(text)


@for_all(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_garbage(text: str) -> None:
    read(text)
    read(f"HloModule m\nENTRY e {{\n  a = f32[8] parameter(0)\n  b = f32[8] all-reduce(a), {text}\n}}\n")


def test_groups_of_too_many_devices_are_kept_as_written() -> None:
    mesh = Mesh((MeshAxis("data", 8), MeshAxis("model", 8)), tuple(range(64)))
    lines = [
        f"  ar.{number} = f32[4] all-reduce(p), channel_id={number + 1}, use_global_device_ids=true, "
        f"replica_groups=[32,2]<=[2,2,2,2,2,2]T({','.join(map(str, order))}), to_apply=add"
        for number in range(40)
        for order in [[*range(number % 5 + 1, 6), *range(number % 5 + 1)]]
    ]
    text = (
        "HloModule m, num_partitions=64\n\nENTRY main {\n  p = f32[4] parameter(0)\n"
        + "\n".join(lines)
        + "\n  ROOT r = f32[4] copy(p)\n}\n"
    )
    (module,) = hlo.parser.parse(text)
    assert all(one.device_groups for one in hlo.collectives.collectives(module, mesh))
    for room, listed in ((hlo.replica_groups.Room(keep=640), 10), (hlo.replica_groups.Room(expand=100), 16)):
        collectives = hlo.collectives.collectives(module, mesh, room=room)
        # The groups of the first two texts are expanded, and listed each time.
        assert sum(one.device_groups is not None for one in collectives) == listed
        assert {(one.group_size, one.groups) for one in collectives} == {(2, 32)}
        assert {one.wire_bytes_per_device for one in collectives} == {16}
        for collective in collectives:
            assert (collective.device_groups is None) == (
                str(collective.written_groups).startswith("[32,2]<=[2,")
            )
