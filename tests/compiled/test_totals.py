"""No table of the communication of a program exceeds its total, whatever a compiler combines."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.random_layouts import random_layouts
from inspector.answers import reasons, sharding_errors
from inspector.answers.section import Table
from inspector.assessment import assess_candidate
from inspector.compiled.causes import conflicts_of, wire_bytes_of_conflicts
from inspector.compiled.collective_roles import by_role
from inspector.compiled.matched_origins import with_origins
from inspector.partition.partition_layout import partitioned_programs
from inspector.records.snapshot import (
    Collective,
    CollectivePart,
    Conflict,
    ConflictSide,
    Mesh,
    MeshAxis,
    Program,
    ShardingChoice,
    ShardingError,
    Snapshot,
    Source,
)
from inspector.sharding.traffic import parts_of, sent_of_busiest, traffic, wire_bytes_of_run

SOURCE = Source("plan", None, "2026-01-01T00:00:00+00:00", {})


def check_totals(program: Program, arrays: tuple = ()) -> None:
    """Check the sum of each table of a program, with all bytes known, against its total."""
    collectives = program.collectives or ()
    total = wire_bytes_of_run(*collectives)
    assert total is not None
    for collective in collectives:
        parts = parts_of(collective)
        assert sum(part.payload_bytes or 0 for part in parts) == collective.payload_bytes
        rounding = len(parts) - 1
        sent = sum(part.wire_bytes_per_device or 0 for part in parts)
        assert 0 <= (collective.wire_bytes_per_device or 0) - sent <= rounding
    # Of the device that sends most in all; another one can send more of a row.
    rows = traffic(collectives)
    assert sum(row.of_busiest or 0 for row in rows) == total
    assert all((row.of_busiest or 0) <= (row.wire_bytes_per_device or 0) <= total for row in rows)
    roles = by_role(program, Snapshot(SOURCE, None, None, arrays, (program,)))
    assert sum(sent or 0 for sent in sent_of_busiest([*roles.values()])) <= total
    assert sum(row.sent or 0 for row in reasons.shared(program)) <= total
    groups = conflicts_of(program)
    resharded = wire_bytes_of_conflicts(program)
    assert (resharded or 0) <= total
    alone = sum(group.wire_bytes or 0 for group in groups)
    assert alone <= (resharded or 0)
    for group in groups:
        assert alone + (group.shared_bytes or 0) <= (resharded or 0)
        # Unknown is not 0 B.
        assert (group.wire_bytes is None) or group.collectives
    assert (resharded is None) == all(not group.collectives for group in groups)


def named(number: int) -> str:
    return f"jit(step)/jvp(Model)/block_{number}/dot_general"


@st.composite
def programs(draw: Any) -> tuple[Program, Program]:
    """Draw a partitioned program with conflicts, and what a compiler can make of its collectives."""
    source = random.Random(draw(st.integers(0, 2**32)))
    before = []
    for number in range(source.randint(1, 8)):
        op = source.choice(("all-gather", "all-to-all", "all-reduce"))
        payload = 8 * source.choice((1, 1, 2, 100))
        arrays = source.choice(((), (f"params/{source.randint(0, 3)}",)))
        sent = payload * 7 // 8 * (2 if op == "all-reduce" else 1)
        axes = (source.choice("ab"),)
        part = CollectivePart(payload, arrays)
        before.append(
            Collective(
                op, False, f"{op}.{number}", "main", source.randint(1, 4), False, axes, 8, 1,
                payload, sent, op_name=named(source.randint(0, 3)), source=f"f.py:{number}",
                arrays=arrays, parts=(part,) if arrays else None,
            )
        )  # fmt: skip
    conflicts = []
    for collective in before:
        if collective.op != "all-reduce" and source.random() < 0.8:
            line = source.choice((collective.source, "f.py:0"))
            sides = (ConflictSide("operand 0", (8,), "f32", (("a",),), (None,)),)
            conflicts.append(Conflict("dot_general", sides, (collective.name,), collective.op_name, line))
    return (
        Program("step", stage="partitioned", collectives=tuple(before), conflicts=tuple(conflicts)),
        Program("step", collectives=tuple(_as_compiled(before, source))),
    )


def _as_compiled(before: list[Collective], source: random.Random) -> list[Collective]:
    """Return collectives that are combined, repeated, narrowed, renamed or removed."""
    alike: dict[Any, list[Collective]] = {}
    for collective in before:
        if source.random() < 0.1:
            continue
        narrowed = replace(collective, payload_bytes=(collective.payload_bytes or 0) // 2)
        changed = source.choice((collective, narrowed))
        for _ in range(source.choice((1, 1, 2))):
            key = (changed.op, changed.mesh_axes, changed.executions, source.randint(0, 1))
            alike.setdefault(key, []).append(changed)
    compiled = []
    for number, members in enumerate(alike.values()):
        first = members[0]
        payload = sum(member.payload_bytes or 0 for member in members)
        rounds = 2 if first.op == "all-reduce" else 1
        parts = tuple(
            CollectivePart(member.payload_bytes, member.arrays or (), (), member.op_name)
            for member in members
        )
        arrays = dict.fromkeys(itertools.chain.from_iterable(m.arrays or () for m in members))
        compiled.append(
            replace(
                first, name=f"c.{number}", payload_bytes=payload, arrays=tuple(arrays),
                wire_bytes_per_device=rounds * payload * 7 // 8,
                op_name=source.choice((first.op_name, None)),
                parts=parts if len(parts) > 1 or arrays else None,
            )
        )  # fmt: skip
    return compiled


@given(programs())
def test_no_table_of_a_compiled_program_exceeds_its_total(drawn: tuple[Program, Program]) -> None:
    partitioned, compiled = drawn
    check_totals(partitioned)
    (matched,) = with_origins((compiled,), (partitioned,))
    check_totals(matched)
    # A compiled collective of which one conflict is known is known to be resolved by it.
    names = {collective.name for collective in matched.collectives or ()}
    assert {name for conflict in matched.conflicts or () for name in conflict.collectives} <= names


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.integers(1, 9),
            st.dictionaries(st.integers(0, 3), st.integers(0, 3), max_size=4),
        ),
        max_size=8,
    )
)
def test_bytes_of_permutes_add_up_to_those_of_the_device_that_sends_most(
    permutes: list[tuple[str, int, dict[int, int]]],
) -> None:
    """In a search by mesh axes, and for the changes of an operation that JAX refuses."""
    collectives = tuple(
        Collective(
            "collective-permute", False, f"permute.{number}", "main", 1, False, (axis,), 4, 1, size, size,
            source_target_pairs=tuple(pairs.items()),
        )
        for number, (axis, size, pairs) in enumerate(permutes)
    )  # fmt: skip
    everyone = Collective("all-gather", False, "g", "main", 1, False, ("a",), 4, 1, 8, 6)
    most = 6 + max(
        sum(size for _, size, pairs in permutes if pairs.get(device, device) != device) for device in range(4)
    )
    mesh = Mesh((MeshAxis("a", 4),), (0, 1, 2, 3))
    program = Program("step", collectives=(*collectives, everyone))
    sent = assess_candidate(program, mesh, None, None, None).traffic
    assert sent is not None and sent.bytes == sum(sent.by_axes.values()) == most
    choice = ShardingChoice("out_sharding=P()", (), (*collectives, everyone))
    refused = Program("step", sharding_error=ShardingError("E", "refused", choices=(choice,)))
    (table,) = (block for block in sharding_errors.refusals((refused,)) if isinstance(block, Table))
    assert table.rows[0][-1] == most


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["cpu", "tpu:v5e:2x4", "gpu:h100:8", "tpu:v5e:2x4*2"])
def test_no_table_of_a_random_layout_exceeds_its_total(target: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    builtin = (pair for pair in random_layouts(target, seed) if not pair[1].entry.own)
    for name, layout in itertools.islice(builtin, 4):
        planned = partitioned_programs(layout, only=("train_step",))
        for program in planned.programs:
            assert program.collectives is not None, (seed, name)
            check_totals(program, planned.arrays)
