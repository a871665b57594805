"""The time panel on runs and plans: the modelled step with its formulas, and measured times."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from inspector import layout as layouts
from inspector.answers import catalogue, time
from inspector.answers.catalogue import Subject
from inspector.answers.section import Block, Folded, Picture, Section
from inspector.compiling.run_layout import run_layout
from inspector.files import private_database
from inspector.machines import hardware, out_of_memory
from inspector.media.markdown import render
from inspector.media.streamlit.page.plain_text import plain
from inspector.prediction import calibration
from inspector.prediction.step_model import bound_text, modelled
from inspector.records.snapshot import Snapshot
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.scripted_page import widget_of

SCRIPT = """
import streamlit as st
from inspector.records import snapshot
from inspector.media.streamlit.panels import program_panels
program_panels.show_time(snapshot.read(st.session_state["path"]), None)
"""


@pytest.fixture(scope="module")
def found() -> Snapshot:
    fields = {"layers": "2", "depth": "64", "steps": "2", "rules": "batch=data", "trace": "true"}
    return run_layout(layouts.parse(fields).unwrap(), lambda *_, **__: None)


def charts(page: AppTest) -> list[str]:
    return [chart.key for chart in figures(page)]


def words(page: AppTest) -> str:
    return " ".join(element.value.replace("\\", "") for element in (*page.markdown, *page.caption))


def test_what_was_measured_comes_first_then_the_predicted_step(shown, found: Snapshot) -> None:
    page = shown(found, chip="v5p")
    # A program that was compiled for CPUs has no timeline on a chip.
    assert charts(page) == ["measured-bars:train_step", "timing_steps", "operation_times:train_step"]
    result = modelled(found.program("train_step"), found.mesh, hardware.chip("v5p"))
    assert f"At the peaks of 8 devices of TPU v5p: **{bound_text(result)}**" in words(page)
    # Four devices along `model` repeat the same work.
    assert "Repeated matrix products: 75.0%" in words(page)


def test_without_a_chip_only_measured_times_are_shown(shown, found: Snapshot) -> None:
    page = shown(found)
    assert not page.exception and [one.value for one in page.selectbox if one.label == "Chip"] == ["none"]
    assert charts(page) == [
        *("measured-bars:train_step", "timing_steps", "operation_times:train_step"),
    ]


@pytest.mark.parametrize("chip", [None, hardware.CHIPS["v5p"]])
def test_show_and_reports_have_the_times_of_the_page(
    shown, found: Snapshot, chip: hardware.Chip | None
) -> None:
    """The pictures of `show` are those of *Time*, with a chip and without one."""
    page = {
        key for key in charts(shown(found, chip=chip and chip.name)) if key.startswith(("measured", "op"))
    }
    for blocks in (catalogue.blocks(Subject.of(found, chip)), catalogue.reported(Subject.of(found, chip))):
        assert page and page <= pictures(blocks)


def pictures(blocks: Iterable[Block]) -> set[str]:
    keys = set()
    for block in blocks:
        match block:
            case Picture():
                keys.add(block.key)
            case Section(blocks=inside) | Folded(blocks=inside):
                keys |= pictures(inside)
    return keys


def test_a_profiled_step_has_one_length(found: Snapshot) -> None:
    """The median of the steps is named. The mean, which is another number, is that of parts alone."""
    program = found.program("train_step")
    assert program is not None and program.trace is not None
    trace = replace(program.trace, seconds=program.trace.steps * 7.77)
    written = render(time.by_operation(replace(found, programs=(replace(program, trace=trace),))))
    assert "Time by operation" in written and "7.77" not in written


def test_another_chip_and_program_can_be_chosen(shown, found: Snapshot) -> None:
    page = shown(found)
    page.selectbox(key="chip").set_value("h100").run()
    widget_of(page.button_group, "modelled_program").set_value("apply").run()
    assert not page.exception
    result = modelled(found.program("apply"), found.mesh, hardware.chip("h100"))
    assert f"At the peaks of 8 devices of NVIDIA H100 SXM: **{bound_text(result)}**" in words(page)


def test_every_term_has_its_formula(shown, found: Snapshot) -> None:
    page = shown(found, chip="v5p")
    result = modelled(found.program("train_step"), found.mesh, hardware.chip("v5p"))
    table = next(element.value for element in page.markdown if "| Term |" in element.value)
    assert [row.split(" | ")[0] for row in table.splitlines()[2:]] == [
        f"| {plain(term.name)}" for term in result.terms
    ]
    assert all(plain(term.formula) in table for term in result.terms)
    for assumption in result.assumptions:
        assert assumption.replace("*", "") in words(page).replace("*", "")


def test_unknown_work_is_shown_as_unknown(shown, found: Snapshot) -> None:
    programs = tuple(replace(program, work=None, ideal=None, trace=None) for program in found.programs)
    page = shown(replace(found, programs=programs), chip="v5p")
    assert "unknown, because compute and HBM are" in words(page)
    assert not page.metric and "Repeated matrix products" not in words(page)
    assert "operation_times:train_step" not in charts(page)


def test_a_compiled_target_has_no_measured_steps(shown, found: Snapshot) -> None:
    programs = tuple(replace(program, trace=None) for program in found.programs)
    source = replace(found.source, kind="tpu", target="tpu:v5e:2x4")
    page = shown(replace(found, source=source, programs=programs))
    assert "No step was run" in words(page)
    assert "emulated" not in words(page) and "run again" not in words(page)


def test_a_program_that_does_not_fit_has_no_modelled_step(shown, found: Snapshot) -> None:
    short = out_of_memory.Shortage(96 * 2**30, 16 * 2**30, "HBM", "")
    refused = out_of_memory.finding("train_step", "tpu:v5e:2x4", short)
    programs = tuple(
        replace(program, work=None, ideal=None, trace=None, collectives=None) for program in found.programs
    )
    page = shown(replace(found, programs=programs, findings=(refused,)), chip="v5p")
    assert "the train step is unknown" in page.info[0].value
    assert not page.metric and "step_parts" not in charts(page)
    widget_of(page.button_group, "modelled_program").set_value("apply").run()
    assert "of the inference is unknown" in page.info[0].value and not page.metric


def test_a_plan_has_no_times(shown, found: Snapshot) -> None:
    page = shown(replace(found, programs=()))
    assert "only planned" in page.info[0].value
    assert not charts(page)


def test_a_run_on_this_machine_is_added_to_the_own_runs(
    shown, found: Snapshot, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv(private_database.VARIABLE, str(tmp_path))
    assert found.mesh is not None
    mesh = replace(found.mesh, device_kind=hardware.chip("v5e").device_kind)
    page = shown(replace(found, source=replace(found.source, kind="local"), mesh=mesh))
    assert not calibration.path().exists()
    page.button(key="add_own_run").click().run()
    assert not page.exception and "add_own_run" not in [one.key for one in page.button]
    measured = {own_run.program: own_run.measured for own_run in calibration.read()}
    assert measured == {
        program.name: statistics.median(program.seconds.steps)
        for program in found.programs
        if program.seconds and program.seconds.steps
    }
