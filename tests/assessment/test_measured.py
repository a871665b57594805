"""A measured step next to the prediction: the same parts of both, and what the machine achieved."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from inspector.answers import time, verdict_bars
from inspector.answers.section import Section, Table
from inspector.assessment import assess, because
from inspector.assessment.because import part_text
from inspector.assessment.measured import MeasuredStep, measured_step
from inspector.compare.compared import compared
from inspector.compare.questions import questions
from inspector.figures.timeline import timeline, trace_events
from inspector.machines import hardware, targets
from inspector.machines.links import collective_time
from inspector.machines.mesh_links import links_of
from inspector.media import report as reports
from inspector.prediction.evidence import for_chip
from inspector.prediction.predicted import predicted_in
from inspector.prediction.simulation import MEASURED
from inspector.prediction.step_parts import measured_spans
from inspector.readers import profile
from inspector.records import snapshot as snapshots
from inspector.records.assessment import LayoutFigures
from inspector.records.snapshot import Program, Snapshot
from inspector.text.formatting import seconds_text
from tests.readers.profiles.tpu_files import Profile, usual_run

pytestmark = pytest.mark.first_jax_is_enough

V5E = hardware.CHIPS["v5e"]


@pytest.fixture(scope="module")
def tpu(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("profile")
    # All runs are equal, so that the mean run is the median one.
    runs = {number: [usual_run(1000 * run) for run in range(3)] for number in range(4)}
    Profile(runs).write(folder / "host.xplane.pb")
    return profile.read(folder, "trace")


def step_of(snapshot: Snapshot) -> tuple[Program, MeasuredStep]:
    (program,) = snapshot.programs
    measured = measured_step(snapshot, program, targets.chip_of(snapshot))
    assert measured is not None
    return program, measured


def test_the_parts_of_a_measured_step_add_up_to_it(tpu: Snapshot) -> None:
    _, measured = step_of(tpu)
    assert measured.measured.kind == "measured"
    assert measured.measured.seconds == pytest.approx(240e-6)
    parts = measured.measured.parts
    assert math.fsum(part.seconds for part in parts) == measured.measured.seconds
    seconds = {(part.kind, part.axes): part.seconds for part in parts}
    assert seconds["compute", None] == pytest.approx(112e-6)  # both iterations of the product
    assert seconds["memory", None] == pytest.approx((20 + 40 + 8) * 1e-6)  # sine, sum, and the loop itself
    assert seconds["inside", "axis_0"] == pytest.approx(41e-6)
    assert seconds["rest", None] == pytest.approx((240 - 112 - 68 - 41) * 1e-6)
    (communication,) = (part for part in parts if part.is_communication)
    assert communication.hidden == pytest.approx(20e-6)


def test_rows_have_the_prediction_for_the_same_part(tpu: Snapshot) -> None:
    program, measured = step_of(tpu)
    predicted = predicted_in(tpu, program, V5E)
    assert predicted.totals is not None and measured.rows[0].predicted == predicted.seconds
    rows = {(row.name, row.whole): row for row in measured.rows}
    assert rows["matrix products", False].predicted == pytest.approx(predicted.totals.matrix)
    assert rows["axis_0", False].predicted == pytest.approx(predicted.totals.exposed["axis_0"])
    assert rows["axis_0", False].measured == pytest.approx(41e-6)
    assert rows["axis_0", True].measured == pytest.approx(61e-6)
    assert rows["matrix products", False].measured == pytest.approx(112e-6)
    assert "matrix products" in measured.sentence  # 112 of 240 µs, nearly none of which is predicted


def test_achieved_rates_are_of_the_work_and_the_peaks(tpu: Snapshot) -> None:
    program, measured = step_of(tpu)
    products, hbm = measured.achieved
    flops = 2 * 2 * 8**3  # two products of 8×8
    assert products.per_second == pytest.approx(flops / 240e-6)
    assert products.share == pytest.approx(flops / 240e-6 / V5E.flops_per_second["bf16"])
    assert products.busy_share == pytest.approx(flops / 112e-6 / V5E.flops_per_second["bf16"])
    assert program.work is not None and program.work.bytes_accessed is not None
    assert hbm.share == pytest.approx(program.work.bytes_accessed / 240e-6 / V5E.hbm_bytes_per_second)


def test_a_collective_has_the_share_of_its_links(tpu: Snapshot) -> None:
    _, measured = step_of(tpu)
    (collective,) = measured.collectives
    assert tpu.mesh is not None and collective.executions == 1
    link = links_of(tpu.mesh, V5E, [("axis_0",)])[("axis_0",)]
    ideal = collective_time("all-reduce", 256, link).seconds  # type: ignore[arg-type]
    assert collective.seconds == pytest.approx(61e-6) and collective.exposed == pytest.approx(41e-6)
    assert collective.link_share == pytest.approx(ideal / 61e-6)
    assert collective.bytes_per_second == pytest.approx(2 * 256 * 3 / 4 / 61e-6)


def test_both_parts_of_an_asynchronous_collective_are_one_operation(tpu: Snapshot) -> None:
    _, measured = step_of(tpu)
    operations = {operation.name: operation for operation in measured.operations}
    assert operations["all-reduce-start.4"].seconds == pytest.approx(41e-6)
    assert "all-reduce-done.4" not in operations
    assert operations["all-reduce-start.4"].predicted == pytest.approx(measured.rows[0].predicted, rel=0.01)
    assert [own.seconds for own in measured.operations] == sorted(
        (own.seconds for own in measured.operations), reverse=True
    )


def test_the_assessment_has_the_measured_parts(tpu: Snapshot) -> None:
    assessed = assess(tpu)
    assert assessed.chip == "v5e" and assessed.evidence is not None and assessed.evidence.stage == "measured"
    assert assessed.step is not None and assessed.step.kind == "measured" and assessed.step.parts
    assert "Matrix products" in because(assessed)


def test_an_emulated_step_has_parts_and_no_prediction(tpu: Snapshot) -> None:
    assert tpu.mesh is not None
    emulated = replace(tpu, mesh=replace(tpu.mesh, device_kind="cpu"))
    (program,) = emulated.programs
    measured = measured_step(emulated, program, None)
    assert measured is not None and measured.predicted is None and measured.sentence == ""
    assert all(row.predicted is None for row in measured.rows)
    assert measured_step(emulated, program, V5E) is None  # which is another machine


def test_a_chip_leaves_what_was_measured_on_emulated_devices(tpu: Snapshot) -> None:
    """The program that counts on the chip is another one, which did not run."""
    assert tpu.mesh is not None
    (program,) = tpu.programs
    partitioned = replace(program, stage="partitioned", platform="tpu", trace=None, seconds=None)
    emulated = replace(
        tpu,
        mesh=replace(tpu.mesh, device_kind="cpu"),
        programs=(replace(program, stage="compiled", platform="cpu"),),
        partitioned=(partitioned,),
    )
    assert for_chip(emulated, V5E).programs[0].before_compile

    def measured_parts(section: Section) -> list[Section]:
        return [part for part in section.blocks if isinstance(part, Section) and part.key == "measured-step"]

    without_chip = measured_parts(time.section(emulated, None))
    assert without_chip and without_chip == measured_parts(time.section(emulated, V5E))
    rows = {row.title: row for row in questions(compared([("a", emulated), ("b", emulated)], V5E))}
    answers = [answer.text for title, row in rows.items() if "predicted" in title for answer in row.answers]
    assert len(answers) == 2 and not any("not profiled" in answer for answer in answers)


def test_the_markdown_report_has_the_measured_parts(tpu: Snapshot) -> None:
    step = assess(tpu).step
    assert step is not None and len(step.parts) > 2
    alone = reports.content([("a", tpu)], ".md")
    for part in sorted(step.parts, key=lambda part: -part.seconds)[:3]:
        name = part_text(part, measured=True)
        assert f" {name} {seconds_text(part.seconds)}" in alone
    compared_with = "time the layouts together"
    assert compared_with not in alone and "it has no such arrays" not in alone
    assert compared_with in reports.content([("a", tpu), ("b", tpu)], ".md")


def test_a_program_without_a_profile_has_no_measured_step(tpu: Snapshot) -> None:
    (program,) = tpu.programs
    without = replace(tpu, programs=(replace(program, trace=None),))
    assert measured_step(without, without.programs[0], V5E) is None


def test_the_timeline_has_a_row_of_the_profile(tpu: Snapshot) -> None:
    program, measured = step_of(tpu)
    assert measured.prediction is not None and measured.prediction.simulated is not None
    spans = {(span.position, span.basis): span for span in measured_spans(program)}
    periods = sorted((span.start, span.end) for span in spans.values())
    microseconds = [(round(start * 1e6, 3), round(end * 1e6, 3)) for start, end in periods]
    # The first product, the other iteration, start of the all-reduce, sine, its end, sum.
    assert microseconds == [(2, 58), (58, 120), (121, 122), (125, 145), (146, 182), (200, 240)]
    figure = timeline(measured.prediction.simulated, program, None, measured_spans(program))
    assert figure is not None and figure.layout.xaxis.range[1] == pytest.approx(240e-6)
    assert list(figure.layout.yaxis.ticktext)[:2] == [MEASURED, "core"]
    events = trace_events(measured.prediction.simulated, program, measured_spans(program))
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    (row,) = (row for row, name in names.items() if name == MEASURED)
    assert len([event for event in events if event["ph"] == "X" and event["tid"] == row]) == 6


def test_a_profile_is_the_same_after_it_was_written(tpu: Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(snapshots.dumps(tpu))
    assert snapshots.read(path) == tpu


def test_what_the_clock_of_a_profile_cannot_tell_is_not_hidden(tpu: Snapshot) -> None:
    (program,) = tpu.programs
    assert program.trace is not None and tpu.mesh is not None
    emulated = replace(tpu, mesh=replace(tpu.mesh, device_kind="cpu"))
    own = math.fsum(time.own for time in program.trace.instructions if time.collective is not None)
    for hidden, is_known in ((0.4e-9, False), (40e-9, True)):
        times = tuple(
            time if time.elapsed is None or time.collective is None else replace(time, elapsed=own + hidden)
            for time in program.trace.instructions
        )
        traced = replace(program, trace=replace(program.trace, instructions=times))
        measured = measured_step(replace(emulated, programs=(traced,)), traced, None)
        assert measured is not None
        (communication,) = (part for part in measured.measured.parts if part.is_communication)
        assert (communication.hidden > 0) == is_known
        assert any(row.whole for row in measured.rows) == is_known
        (table,) = verdict_bars.picture([LayoutFigures(step=measured.measured)], "bars").in_text
        assert isinstance(table, Table)
        assert any(column.heading == "Hidden" for column in table.columns) == is_known


def test_a_measured_step_claims_neither_hbm_nor_a_cause_of_idle_time(tpu: Snapshot) -> None:
    assert tpu.mesh is not None
    emulated = replace(tpu, mesh=replace(tpu.mesh, device_kind="cpu"))
    measured = measured_step(emulated, emulated.programs[0], None)
    assert measured is not None
    seconds = {row.name: row.measured for row in measured.rows if not row.whole}
    assert seconds["other operations"] == pytest.approx((20 + 40 + 8) * 1e-6)
    assert seconds["no operation"] == pytest.approx((240 - 112 - 68 - 41) * 1e-6)
    assert not {"HBM", "overhead"} & seconds.keys()
    assert [achieved.name for achieved in measured.achieved] == ["matrix products", "memory"]


@pytest.mark.parametrize("executions", [3.0, None])  # an older Snapshot has only the number of events
def test_bytes_and_seconds_of_a_collective_are_of_all_its_executions(
    tpu: Snapshot, executions: float | None
) -> None:
    (program,) = tpu.programs
    assert program.trace is not None
    times = tuple(
        time if time.collective is None else replace(time, events=3 * time.events, executions=executions)
        for time in program.trace.instructions
    )
    traced = replace(program, trace=replace(program.trace, instructions=times))
    measured = measured_step(replace(tpu, programs=(traced,)), traced, V5E)
    assert measured is not None
    (collective,) = measured.collectives
    assert collective.executions == 3 and collective.seconds is not None
    assert collective.sent == 3 * 2 * 256 * 3 / 4
    assert collective.bytes_per_second == pytest.approx(collective.sent / collective.seconds)


def test_an_instruction_has_one_source_in_all_tables(tpu: Snapshot) -> None:
    (program,) = tpu.programs
    assert program.collectives
    collectives = tuple(replace(own, source="model.py:7") for own in program.collectives)
    sourced = replace(program, collectives=collectives)
    measured = measured_step(replace(tpu, programs=(sourced,)), sourced, V5E)
    assert measured is not None
    sources = {operation.name: operation.source for operation in measured.operations}
    assert {sources[own.collective.name] for own in measured.collectives} == {"model.py:7"}
