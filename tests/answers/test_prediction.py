"""The inputs of a prediction before a compile are those of its number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector.answers.prediction import blocks, interval_text, operations, sentence
from inspector.answers.section import plain
from inspector.media.markdown import render
from inspector.prediction.predicted import CLAIMED, before_compile, predicted
from inspector.records.assessment import BEFORE_COMPILE
from inspector.records.snapshot import ScheduledOperation
from inspector.text.formatting import seconds_text
from tests.accuracy import test_fitting
from tests.prediction import schedules


def test_what_a_program_assumes_is_among_the_inputs() -> None:
    clause = "the loop f.py:9 runs 334 times, as measured"
    program = replace(test_fitting.program(1, 1e9, 10**6), stage="propagated")
    predicted = before_compile(program, test_fitting.MESH, test_fitting.CHIP)
    for own, named in ((program, False), (replace(program, assumptions=(clause,)), True)):
        assert (clause in render(blocks(predicted, own, test_fitting.MESH))) == named


@pytest.mark.parametrize(("flops", "outside"), [(1e9, True), (1e16, False)])
def test_the_first_sentence_says_whether_the_prediction_was_checked(flops: float, outside: bool) -> None:
    program = replace(test_fitting.program(1, flops, 10**6), stage="propagated")
    predicted = before_compile(program, test_fitting.MESH, test_fitting.CHIP)
    first = plain(sentence(predicted, 16).parts).partition(". ")[0]
    assert ("outside of what was checked" in first) == outside
    ends = (predicted.low, predicted.seconds, *([] if outside else [predicted.high]))
    assert all(seconds_text(end) in first for end in ends)
    assert (f"with {CLAIMED:.0%}" in first) != outside


def test_latency_is_named_where_it_is_the_cost() -> None:
    many = replace(test_fitting.program(1, 1e9, 1000), stage="propagated")
    (sum_,) = many.collectives
    many = replace(many, collectives=(replace(sum_, executions=5000),))
    few = replace(many, collectives=(replace(sum_, payload_bytes=10**9),))
    for program, named in ((many, True), (few, False)):
        predicted = before_compile(program, test_fitting.MESH, test_fitting.CHIP)
        written = render(blocks(predicted, program, test_fitting.MESH))
        assert ("latency is the cost: 5,000 collectives" in written) == named
        assert predicted.totals.messages["data", False] == (5000 if named else 1)


def test_an_unknown_interval_comes_from_no_runs() -> None:
    program = replace(test_fitting.program(1, 1e16, 10**6), stage="propagated")
    predicted = before_compile(program, test_fitting.MESH, test_fitting.CHIP)
    assert interval_text(predicted).startswith("The interval comes from")


def test_bytes_name_their_stage_and_no_machine_that_they_are_not_for() -> None:
    program = test_fitting.program(1, 1e16, 10**6)
    for stage, platform in (("compiled", "tpu"), ("partitioned", "tpu"), ("partitioned", None)):
        changed = replace(program, stage=stage, platform=platform)
        found = predicted(changed, test_fitting.MESH, test_fitting.CHIP)
        written = render(blocks(found, changed, test_fitting.MESH))
        assert (BEFORE_COMPILE in written) == (stage == "partitioned") and "CPU" not in written


def test_the_joined_names_of_merged_operations_are_cut_in_the_table() -> None:
    name = "jit(step)/(" + ":".join(f"jvp(Net)/layers_{n}/gather" for n in range(500)) + ")"
    scheduled_operation = ScheduledOperation("all", "fusion", cycles=1000, op_name=name)
    program = replace(test_fitting.program(1, 1e9, 1), schedule=schedules.schedule(scheduled_operation))
    table = operations(predicted(program, test_fitting.MESH, test_fitting.CHIP), program)
    (cell,) = (row[-1] for row in table.rows)
    assert len(cell) <= 120 and cell.startswith("jit(step)") and cell.endswith("/gather)")
