"""The rows of the board against counts made another way, and what must not be compared."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.compare.compared import compared
from inspector.compare.question import Answer, Question, QuestionRow, Statement, change_text
from inspector.compare.questions import FINDINGS, questions
from inspector.compare.splits import split_of, without_idle_axes
from inspector.compiled.collective_roles import ACTIVATIONS, EXPERTS, GRADIENTS, PARAMETERS, ROLES
from inspector.jobs.inspection import Inspection
from inspector.machines import hardware
from inspector.prediction import memory
from inspector.records.snapshot import Memory, Snapshot, Source
from tests.compare.difference.layouts import planned
from tests.compare.difference.programs import collective, ran


def rows(*snapshots: Snapshot, baseline: int = 0, chip: str | None = None) -> dict[str, Question]:
    names = [f"layout {number}" for number in range(len(snapshots))]
    every = compared(list(zip(names, snapshots, strict=True)), hardware.chip(chip) if chip else None)
    result = questions(every, baseline)
    titles = [row.title for row in result]
    assert len(set(titles)) == len(titles)
    assert all(len(row.answers) == len(snapshots) for row in result)
    assert all(row.answers[baseline].verdict == "baseline" for row in result)
    return {row.title: row for row in result}


def test_bytes_are_what_devices_hold() -> None:
    before, after = planned(mesh="2x4"), planned(mesh="4x2")
    questions = rows(before, after)
    for title, groups in (
        ("Train state per device", ("params", "opt_state", "other")),
        ("Parameters per device", ("params",)),
        ("Optimizer state per device", ("opt_state",)),
    ):
        values = [answer.value for answer in questions[title].answers]
        assert values == [
            sum(math.prod(a.shard_shape) * 4 for a in snapshot.arrays if a.group in groups)
            for snapshot in (before, after)
        ]
        assert questions[title].answers[1].verdict == "worse" and questions[title].better == "less"
    everywhere = [
        sum(memory.bytes_everywhere(a, snapshot.mesh) - a.bytes for a in snapshot.arrays if a.group in
            ("params", "opt_state", "other"))
        for snapshot in (before, after)
    ]  # fmt: skip
    assert [answer.value for answer in questions["Duplicated on all devices"].answers] == everywhere


def test_collectives_are_summed_by_axes_with_loops_counted() -> None:
    before = ran(planned(), collective("all-reduce", ("data",), 100, 3), collective("all-gather", None, 7))
    after = ran(planned(), collective("all-reduce", ("data",), 100, 2))
    questions = rows(before, after)
    assert [answer.value for answer in questions["Traffic"].answers] == [307, 200]
    over = questions["Train step, over data"].answers
    assert [answer.value for answer in over] == [300, 200]
    assert (over[1].verdict, over[1].change) == ("better", "−33%")
    assert [answer.value for answer in questions["Train step, over unknown axes"].answers] == [7, 0]


def test_a_plan_has_no_answers_about_programs() -> None:
    questions = rows(ran(planned(), collective("all-reduce", ("data",), 100)), planned(), chip="v5e")
    for title, row in questions.items():
        if title.startswith("Train step"):
            assert row.answers[1].verdict == "not comparable", title
            assert row.answers[1].value is None and row.answers[1].remark
    # Both are lower bounds: the train state and the batch.
    assert all(answer.text.startswith("at least") for answer in questions["Memory per device"].answers)
    assert questions["Train state per device"].answers[1].verdict == "equal"


def test_times_of_separate_runs_have_no_verdict() -> None:
    before, after = ran(planned()), ran(planned(), steps=(9.0, 9.0))
    row = rows(before, after)["Train step, measured"]
    assert row.answers[1].verdict == "not comparable" and not row.answers[1].change
    assert row.answers[1].text.startswith("emulated: median 9.00 s") and "together" in row.answers[1].remark


RULES = "batch=data,embed=data,expert=model,heads=model,mlp=model,vocab=model"


def partitioned(service: Inspection, model: str, axes: str, rules: str) -> Snapshot:
    given = {"model": model, "mesh": "2x4", "axes": axes, "rules": rules, "layers": "1"}
    layout = layouts.parse(given).unwrap()
    return service.with_programs(service.plan(layout), layout)


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["transformer", "moe"])
def test_axes_with_other_names_are_compared_by_role(service: Inspection, model: str) -> None:
    """Another name of an axis changes nothing, so each row is equal. The rows add up to all collectives."""
    before = partitioned(service, model, "data,model", RULES)
    renamed = RULES.replace("=data", "=fsdp").replace("=model", "=tensor")
    questions = rows(before, partitioned(service, model, "fsdp,tensor", renamed))
    roles = [title for title in ROLES if f"Train step, {title}" in questions]
    assert {PARAMETERS, GRADIENTS, ACTIVATIONS} <= set(roles)
    assert (EXPERTS in roles) == (model == "moe")
    assert not any(title.startswith("Train step, over") for title in questions)
    for title in roles:
        assert [answer.verdict for answer in questions[f"Train step, {title}"].answers] == [
            "baseline",
            "equal",
        ]
    parts = [questions[f"Train step, {title}"].answers[0].value for title in roles]
    assert sum(parts) == questions["Traffic"].answers[0].value


def test_a_missing_mesh_axis_is_not_a_saving() -> None:
    """The arrays of these collectives were not looked for, so their roles are unknown."""
    before = ran(planned(axes="data,model", rules=""), collective("all-reduce", ("model",), 8))
    after = ran(planned(axes="data,tensor", rules=""), collective("all-reduce", ("tensor",), 8))
    dict_items = rows(before, after).items()
    collectives = [title for title, row in dict_items if row.section == "Collectives"]
    assert collectives == []


def test_other_models_compilers_and_device_counts_have_remarks() -> None:
    other = rows(planned(), planned(model="mlp", depth="128"))["Train state per device"].answers[1]
    assert (other.verdict, other.change) == ("not comparable", "") and "mlp" in other.remark
    fewer = rows(planned(mesh="2x4"), planned(mesh="2x2"))["Train state per device"].answers[1]
    assert fewer.remark == "another number of devices"
    used = Memory(10, 10, 0, 10, 0)
    emulated = ran(planned(), memory=used)
    compiled = ran(planned(), memory=Memory(10, 10, 0, 20, 0), kind="tpu", target="tpu:v5e:2x4")
    row = rows(emulated, compiled)["Memory per device"]
    assert (row.answers[1].value, row.answers[1].verdict) == (40, "not comparable")
    assert row.answers[1].remark


def test_memory_is_compared_with_the_chip() -> None:
    chip = hardware.chip("v5e")
    capacity = memory.capacity_of(chip)
    fits, not_fits = (
        replace(ran(planned(), memory=Memory(1, 1, 0, size, 0)), source=Source("tpu", None, "now"))
        for size in (10, capacity)
    )
    row = rows(fits, not_fits, chip="v5e")["Memory per device"]
    assert "does not fit" in row.answers[1].text and "does not fit" not in row.answers[0].text
    assert row.answers[1].verdict == "worse" and row.answers[1].value == capacity + 2


VALUES = st.one_of(st.integers(0, 10**15), st.floats(0, 1e6, allow_nan=False))


@given(VALUES, VALUES)
def test_verdicts_mirror(one: float, other: float) -> None:
    there, back = (
        QuestionRow("s", "t", "less", [Statement(str(value), value) for value in pair]).compared(0).answers[1]
        for pair in ((one, other), (other, one))
    )
    mirror = {"better": "worse", "worse": "better", "equal": "equal"}
    assert back.verdict == mirror[there.verdict]
    assert (there.verdict == "better") <= (other < one)
    # A difference below 1% is none.
    assert bool(there.change) == (there.verdict != "equal" and other != 0)
    assert (there.verdict == "equal") == (abs(one - other) < 0.01 * min(one, other) or one == other) or (
        abs(one - other) < 0.0101 * max(one, other)
    )


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (100, 75, "−25%"), (100, 200, "+100%"), (100, 1200, "×12"), (0, 5, "from 0"), (5, 0, "−100%"),
        (10**9, 10**9 + 1, ""), (1, 10**9, "more than ×100"), (10**9, 1, "nearly −100%"),
        (100, 104.4, "+4.4%"), (7, 7, ""),
    ],
)  # fmt: skip
def test_changes_as_text(before: float, after: float, text: str) -> None:
    assert change_text(before, after) == text


def test_elements_are_counted_if_bytes_are_unknown() -> None:
    vague = planned()
    arrays = tuple(dataclasses.replace(a, bytes=None, bytes_per_device=None) for a in vague.arrays)
    vague = dataclasses.replace(vague, arrays=arrays)
    questions = rows(vague, planned(mesh="4x2"))
    state = [a for a in vague.arrays if a.group in ("params", "opt_state", "other")]
    held = sum(math.prod(a.shard_shape) for a in state)
    assert questions["Elements per device"].answers[0].value == held
    assert questions["Elements per device"].answers[1].verdict == "worse"
    assert questions["Train state per device"].answers[1].verdict == "unknown"
    copies = held * 8 / sum(math.prod(a.shape) for a in state)
    assert questions["Copies of elements"].answers[0].value == pytest.approx(copies)
    assert "Elements per device" not in rows(planned(), planned(mesh="4x2"))


def test_answers_unknown_everywhere_do_not_differ() -> None:
    nowhere = [dataclasses.replace(planned(), layout=None) for _ in range(2)]
    row = rows(*nowhere)["Rules"]
    assert row.unknown and not row.differs
    known = rows(planned(), nowhere[0])["Rules"]
    assert known.differs and not known.unknown and known.answers[1].verdict == "unknown"


def test_copies_with_equal_text_are_equal() -> None:
    question = rows(planned(), planned(optimizer="sgd"))["Copies"]
    assert question.answers[0].value != question.answers[1].value  # by a step count on every device
    assert question.answers[1].verdict == "equal"


def test_a_negligible_change_is_neither_better_nor_worse() -> None:
    def answer(text: str, flops: float) -> Answer:
        row = QuestionRow("Time", "FLOPs", "less", [Statement("1.000", 1e9), Statement(text, flops)])
        return row.compared(0).answers[1]

    near, far = answer("1.001", 1.001e9), answer("1.02", 1.02e9)
    assert (near.verdict, near.change) == ("equal", "")
    assert far.verdict == "worse"


def test_missing_arrays_are_not_comparable() -> None:
    bare = dataclasses.replace(ran(planned()), arrays=())
    (_, answer) = rows(planned(), bare)["Arrays"].answers
    assert (answer.text, answer.verdict, answer.change) == ("none", "not comparable", "")


def test_mesh_axes_of_size_1_are_left_out_of_a_spec() -> None:
    wide = planned(mesh="2x4x1", axes="data,model,idle", rules="hidden=idle+model,embed=idle")
    for array in wide.arrays:
        short = without_idle_axes(array, wide.mesh)
        assert "idle" not in {name for axes in short.spec for name in axes or ()}
        assert split_of(short, wide.mesh) == split_of(array, wide.mesh)
    assert any("idle" in (axes or ()) for array in wide.arrays for axes in array.spec)


@pytest.mark.parametrize("baseline", [0, 1])
def test_no_number_of_a_layout_that_jax_rejects_is_better(baseline: int) -> None:
    shared = {"mesh": "4x2", "rules": "batch=data+model,embed=data+model,hidden="}
    works, rejected = planned(mesh="4x2", batch="8"), planned(**shared, batch="4")
    assert any(array.bytes_per_device is None for array in rejected.arrays)
    questions = rows(works, rejected, baseline=baseline)
    per_device = questions["Parameters per device"].answers
    # Fewer bytes on each device than the other: it would be better if it could be built.
    assert per_device[1].value < per_device[0].value
    of_other = [row.answers[1 - baseline] for row in questions.values() if row.section != FINDINGS]
    assert {answer.verdict for answer in of_other} <= {"not comparable", "unknown", "different", "equal"}
    assert per_device[1 - baseline].verdict == "not comparable"
    # The batch is one error for both of its arrays, as in the findings of `show`.
    assert len([finding for finding in rejected.findings if finding.level == "error"]) > 1
    assert questions["Errors"].answers[1].text == "1"
    assert questions["Errors"].answers[1 - baseline].verdict == ("worse" if baseline == 0 else "better")


def test_sizes_that_differ_have_a_row() -> None:
    found = rows(planned(batch="8"), planned(batch="16"))
    assert [answer.text for answer in found["Batch"].answers] == ["8", "16"]
    assert "Batch" not in rows(planned(), planned()) and "Layers" not in found
