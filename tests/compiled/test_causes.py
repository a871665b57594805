"""What depends on a rule, and the origins of compiled collectives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.compiled.causes import dependents
from inspector.compiled.matched_origins import with_origins
from inspector.hlo.op_name import parse_op_name
from inspector.layout.plan import plan, with_programs
from inspector.partition.partition_layout import partitioned_programs
from inspector.records.snapshot import Collective, CollectivePart, Origin, Program, Snapshot
from inspector.sharding.traffic import parts_of
from inspector.tracing.model.abstract import abstract_state
from tests.partition.test_partition_layout import CASES, compiled, layout_of, train_step


def planned() -> Snapshot:
    layout = layouts.parse({"mesh": "2x4", "depth": "64"}).unwrap()
    programs = partitioned_programs(layout, only=("train_step", "apply"))
    return with_programs(plan(layout, abstract_state(layout)), programs)


def without_origins(snapshot: Snapshot) -> Snapshot:
    """As after a compile, whose text has no origins."""
    return replace(
        snapshot,
        programs=tuple(
            replace(
                program,
                collectives=tuple(
                    replace(collective, origins=None) for collective in program.collectives or ()
                ),
            )
            for program in snapshot.programs
        ),
    )


def test_collectives_without_recorded_origins_are_unknown() -> None:
    snapshot = planned()
    every = sum(len(program.collectives or ()) for program in snapshot.programs)
    rules = [dependents(snapshot, f"{name} → {axis}") for name, axis in
             (("hidden", "model"), ("batch", "data"))]  # fmt: skip
    assert all(rule.collectives and rule.unknown == 0 for rule in rules)
    assert sum(len(rule.collectives) for rule in rules) == every
    unknown = dependents(without_origins(snapshot), "hidden → model")
    assert (len(unknown.collectives), unknown.unknown) == (0, every)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", ["mlp, data and tensor", "mlp, fsdp", "transformer, data and tensor"])
def test_compiled_collectives_have_the_origins_of_propagated_ones(name: str) -> None:
    layout = layout_of(CASES[name][0])
    rules = {f"{logical} → {' + '.join(axes)}" for logical, axes in layout.rules}
    (program,) = with_origins([compiled(layout, "train_step")], [train_step(layout)])
    assert program.collectives
    for collective in program.collectives:
        axes = {origin.mesh_axis for origin in collective.origins or ()}
        merged = len(parse_op_name(collective.op_name)) > 1
        assert axes == set(collective.mesh_axes or ()) or (merged and not axes), collective.name
        assert {origin.rule for origin in collective.origins or ()} <= rules
    # Those that the compiler did not merge have the path of the partitioned one.
    paths = [origin.steps is not None for one in program.collectives for origin in one.origins or ()]
    assert any(paths)


def test_a_combined_collective_has_the_origins_of_its_parts_and_of_no_other() -> None:
    """Two sums are one instruction, and a third one of another source is another instruction."""
    one = Collective(
        "all-reduce", False, "one", "main", 1, False, ("data",), 2, 4, 4, 4, "jit(f)/dot_general", "a.py:1",
        origins=(Origin("data", "batch/x"),),
    )  # fmt: skip
    other = replace(one, name="other", source="a.py:2", origins=(Origin("data", "batch/y"),))
    third = replace(one, name="third", source="a.py:3", origins=(Origin("data", "batch/z"),))
    parts = [CollectivePart(4, (), (), part.op_name, part.source) for part in (one, other)]
    combined = replace(one, payload_bytes=8, arrays=(), origins=None, parts=tuple(parts))
    before = Program("step", collectives=(one, other, third))
    (program,) = with_origins([Program("step", collectives=(combined,))], [before])
    (result,) = program.collectives or ()
    assert [origin.from_ for origin in result.origins or ()] == ["batch/x", "batch/y"]
    assert {part.source for part in parts_of(result)} == {"a.py:1", "a.py:2"}
    # Of a part without its own name, it can be any of them.
    unknown = replace(combined, source=None, parts=(parts[0], CollectivePart(4)))
    (program,) = with_origins([Program("step", collectives=(unknown,))], [before])
    assert program.collectives == (unknown,)


def test_a_collective_over_other_mesh_axes_has_no_origins() -> None:
    layout = layout_of(CASES["mlp, data and tensor"][0])
    program, other = compiled(layout, "train_step"), train_step(layout)
    moved = tuple(replace(collective, mesh_axes=("elsewhere",)) for collective in program.collectives or ())
    (result,) = with_origins([replace(program, collectives=moved)], [other])
    assert result.collectives == moved
