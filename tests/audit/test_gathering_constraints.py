"""A constraint of a product's result that leaves out a mesh axis of an operand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector.answers.improvements import ranked
from inspector.audit import audit
from inspector.audit.gathering_constraints import CODE
from inspector.records.snapshot import (
    Conflict,
    ConflictSide,
    Mesh,
    MeshAxis,
    Origin,
    Program,
    RepeatedWork,
    Snapshot,
    Source,
    Work,
)

MESH = Mesh((MeshAxis("data", 2), MeshAxis("model", 4)), tuple(range(8)))
LINE = "constraint train.py:46, called at train.py:70"


def side(value: str, shape, spec, used, **origins: str) -> ConflictSide:
    return ConflictSide(
        value, shape, "f32", spec, used, tuple(Origin(axis, from_) for axis, from_ in origins.items())
    )


INPUT = side("operand 0", (16, 64), (("data",), None), (("data",), None), data="x")
HEAD = side("operand 1", (64, 256), (None, ("model",)), (None, None), model="params/head")
LOGITS = side("result 0", (16, 256), (("data",), None), (("data",), None), data=LINE)


def snapshot_of(*sides: ConflictSide, operation: str = "dot_general") -> Snapshot:
    conflict = Conflict(operation, sides, ("all-gather.1",), source="train.py:45")
    work = Work(None, (), None, repeated=(RepeatedWork(3e6, 4, ("model",), "dot"),))
    program = Program("step", conflicts=(conflict,), work=work, flops_per_device=6e6, collectives=())
    return Snapshot(Source("capture", None, "2026-01-01"), None, MESH, (), (program,))


def test_the_finding_has_the_line_the_array_and_the_spec_and_is_first() -> None:
    snapshot = snapshot_of(INPUT, HEAD, LOGITS)
    (finding,) = [one for one in audit(snapshot) if one.code == CODE]
    assert (finding.level, finding.source, finding.axes) == ("warning", "train.py:46", ("model",))
    assert "params/head" in finding.message and "P('data', 'model')" in finding.remedy
    assert finding.ratio == pytest.approx(1 / (1 - 3e6 * 3 / 4 / 6e6))
    assert ranked(snapshot, audit(snapshot))[0].finding == finding


@pytest.mark.parametrize(
    "sides",
    [
        (INPUT, HEAD, replace(LOGITS, origins=(Origin("data", "x"),))),  # no constraint decides the result
        (INPUT, HEAD, replace(LOGITS, spec=(("data", "model"), None))),  # it has the axis, as with FSDP
        (replace(INPUT, used=(("data", "model"), None)), HEAD, LOGITS),  # devices along it share the work
        (INPUT, replace(HEAD, spec=(None, None)), LOGITS),  # the operand lacks it
    ],
)
def test_other_gathers_have_no_finding(sides) -> None:
    assert CODE not in {finding.code for finding in audit(snapshot_of(*sides))}


def test_a_spec_is_proposed_only_if_one_dimension_has_the_size() -> None:
    square = replace(LOGITS, shape=(256, 256), spec=(None, None), origins=(Origin("data", LINE),))
    (finding,) = [one for one in audit(snapshot_of(INPUT, HEAD, square)) if one.code == CODE]
    assert "P(" not in finding.remedy
    other = snapshot_of(INPUT, HEAD, LOGITS, operation="add")
    assert CODE not in {finding.code for finding in audit(other)}
