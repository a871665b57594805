"""The sections of collectives: sums by mesh axes, unknown values, filters."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.answers import collectives
from inspector.answers.section import Section, Table
from inspector.compiled.device_traffic import device_traffic
from inspector.media.terminal import explain_verb, render
from inspector.recording.capture import capture_compiled
from inspector.records.snapshot import Program, Snapshot, Source
from tests.figures.samples import mesh
from tests.records.test_collectives import collective

PROGRAM = Program(
    "train_step",
    collectives=(
        collective("all-reduce", ("data", "model"), 12, 2048),
        collective("all-gather", None, None, 5),
        collective("all-to-all", (), 1, 0, conditional=True),
    ),
)
SNAPSHOT = Snapshot(Source("cpu", "cpu", "2026-01-01"), None, None, (), (Program("apply"), PROGRAM))


def test_rows_by_mesh_axes_keep_unknown_values() -> None:
    (table,) = [
        block
        for block in collectives.of_program(PROGRAM, SNAPSHOT, figures=False)
        if isinstance(block, Table)
    ]
    assert table.rows == (
        ("data × model", "all-reduce", 24 * 1024, 24 * 1024, 1, 12, "no"),
        ("no axis", "all-to-all", 0, 0, 1, 1, "yes"),
        ("unknown axes", "all-gather", None, None, 1, None, "no"),
    )
    assert "unknown axes  all-gather" in render.text([table])


def test_what_sends_most_counts_one_iteration_of_a_loop_without_a_trip_count() -> None:
    """The order is that of the compiled text, by the bytes of the results: one iteration is the least."""
    devices = np.array(jax.devices()[:4])
    by = {axes: NamedSharding(Mesh(devices, ("x",)), PartitionSpec(*axes)) for axes in (("x",), ())}

    @jax.jit
    def search(small: Any, large: Any) -> Any:
        def body(carry: Any) -> Any:
            gathered = jax.lax.with_sharding_constraint(carry * 2, by[()])
            return jax.lax.with_sharding_constraint(gathered @ gathered, by["x",])

        looped = jax.lax.while_loop(lambda carry: carry[0, 0] < 1e6, body, large)
        return looped, jax.lax.with_sharding_constraint(small, by[()])

    arguments = [jax.device_put(np.ones(shape, np.float32), by["x",]) for shape in ((16,), (64, 64))]
    compiled = search.lower(*arguments).compile()
    found = capture_compiled(compiled, name="search")
    (program,) = found.programs
    moved = {
        name: 4 * math.prod(map(int, shape.split(",")))
        for name, shape in re.findall(r"%(all-gather[.\w-]*) = f32\[([\d,]+)\]", compiled.as_text())
    }
    assert len(set(moved.values())) > 1 and program.collectives
    assert {one.executions for one in program.collectives if one.name in moved} == {None, 1}
    ranked = [one.name for one in collectives.matching(program.collectives) if one.name in moved]
    assert [moved[name] for name in ranked] == sorted(moved.values(), reverse=True)
    rows = collectives.moves(program)
    assert isinstance(rows[0], Table) and rows[0].rows[0][:2] == (None, max(moved.values()) * 3 // 4)
    plain, _ = explain_verb._largest(found, None)
    assert plain["collective"]["name"] == max(moved, key=moved.__getitem__)


def test_devices_that_send_less_are_a_range() -> None:
    """A permute sends nothing from a device to itself, and counts against a device-to-device table."""
    on = mesh(data=2, model=4)
    permute = replace(
        collective("collective-permute", None, 3, 1000),
        source_target_pairs=((0, 1), (1, 0), (2, 2), (3, 3), (4, 5), (5, 4)),
    )
    each = (permute, collective("all-reduce", ("data",), 1, 500))
    table = device_traffic(each, on).sent.sum(axis=1)
    assert collectives.range_of_run(each, 8) == (table.min(), table.max())
    assert table.max() - table.min() == 3000
    snapshot = replace(SNAPSHOT, mesh=on, programs=(Program("step", collectives=each),))
    (rows,) = [
        block
        for block in collectives.of_program(snapshot.programs[0], snapshot, figures=False)
        if isinstance(block, Table)
    ]
    least = [heading.heading for heading in rows.columns].index("Least, per device")
    assert [row[least] for row in rows.rows] == [0, each[1].wire_bytes_per_device]
    assert [row[least - 1] for row in rows.rows] == [3000, each[1].wire_bytes_per_device]


def test_known_bytes_beside_a_loop_are_known() -> None:
    """One all-reduce runs before a loop, another in it: the bytes of the first are counted."""
    outside = collective("all-reduce", ("data",), 1, 500)
    inside = replace(outside, executions=None, executions_per_iteration=1)
    said = str(collectives.headline("solve", (outside, inside), 8))
    assert f"at least ', Strong(text='{outside.wire_bytes_per_device} B')" in said
    assert "unknown bytes" not in said


def test_the_program_of_a_step_comes_first() -> None:
    section = collectives.section(SNAPSHOT)
    assert [block.heading for block in section.blocks if isinstance(block, Section)] == [
        "Train step",
        "Inference",
    ]


def test_filters_keep_any_match_and_put_unknown_traffic_last() -> None:
    each = PROGRAM.collectives or ()
    assert [collective.op for collective in collectives.matching(each)] == [
        "all-reduce",
        "all-to-all",
        "all-gather",
    ]
    assert [collective.op for collective in collectives.matching(each, ["data"])] == ["all-reduce"]
    assert {collective.op for collective in collectives.matching(each, ["unknown"])} == {
        "all-gather",
        "all-to-all",
    }


def test_the_lines_of_a_reason_are_ordered_by_their_bytes() -> None:
    sizes = {"a.py:1": (2, 1), "b.py:2": (1, 64), "c.py:3": (40, 1), "d.py:4": (1, 8)}
    parts = [
        replace(collective("all-reduce", ("data",), times, payload), name=source, source=source)
        for source, (times, payload) in sizes.items()
    ]
    (table, *_) = collectives.moves(Program("step", collectives=tuple(parts)), computing=True)
    text = render.text([table])
    ranked = sorted(sizes, key=lambda source: -sizes[source][0] * sizes[source][1])
    assert [source for source in ranked[:2] if source in text] == ranked[:2]
    assert text.index(ranked[0]) < text.index(ranked[1]) and ranked[-1] not in text
