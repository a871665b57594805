"""The memory panel on runs and plans: the verdict, the numbers, and replicated data."""

from __future__ import annotations

import dataclasses

import pytest

from inspector import layout as layouts
from inspector.answers import memory as section
from inspector.compiling.run_layout import run_layout
from inspector.layout.plan import plan
from inspector.machines import hardware
from inspector.prediction import memory
from inspector.records.snapshot import Snapshot, Source
from inspector.text.formatting import bytes_text
from inspector.tracing.model.abstract import abstract_state
from tests.media.streamlit.drawn_figures import figures

SCRIPT = """
import streamlit as st
from inspector.records import snapshot
from inspector.media.streamlit.panels import program_panels
program_panels.show_memory(snapshot.read(st.session_state["path"]), None)
"""

LAYOUT = layouts.parse({"layers": "2", "depth": "64", "steps": "1"}).unwrap()


@pytest.fixture(scope="module")
def found() -> Snapshot:
    return run_layout(LAYOUT, lambda *_, **__: None)


def on_tpu(snapshot: Snapshot) -> Snapshot:
    """The same figures as if a compiler for TPUs had given them."""
    return dataclasses.replace(snapshot, source=Source("tpu", None, "2026-01-01T00:00:00Z"))


def test_the_figures_of_cpus_say_nothing_about_a_chip(shown, found: Snapshot) -> None:
    page = shown(found, chip="v5p")
    said = texts(page.info)
    assert "at least" in said and "of the 95.7 GiB of a TPU v5p chip" in said
    assert not page.success and not page.error


def texts(elements) -> str:
    return " ".join(element.value.replace("\\", "") for element in elements)


def numbers_of(page, program: str) -> dict:
    table = next(one.value for one in page.dataframe if program in one.value)
    return dict(zip(table["Part"], table[program], strict=True))


def test_verdict_and_figure(shown, found: Snapshot) -> None:
    page = shown(on_tpu(found), chip="v5p")
    assert not page.error and not page.info  # the head says that it fits
    assert {chart.key for chart in figures(page)} == {
        f"memory_over_{program.name}" for program in found.programs
    }


def test_the_chosen_chip_is_kept_in_the_session(shown, found: Snapshot) -> None:
    page = shown(on_tpu(found))
    titles = [chip.title for chip in hardware.CHIPS.values()]
    assert page.selectbox(key="chip").options == ["No chip", *titles]
    assert not page.info and not page.success  # the head has the need
    page.selectbox(key="chip").set_value("v5e").run()
    assert not page.info
    assert page.session_state["chip"] == "v5e"
    assert shown(found, chip="no such chip").selectbox(key="chip").value == "none"


def test_a_layout_that_does_not_fit_is_an_error_notice(shown, found: Snapshot) -> None:
    large = tuple(
        dataclasses.replace(
            program,
            memory=dataclasses.replace(program.memory, temporaries=200 * 2**30),
            memory_use=None,
        )
        for program in found.programs
    )
    page = shown(dataclasses.replace(on_tpu(found), programs=large), chip="v5p")
    said = texts(page.error)
    assert "of the 95.7 GiB of a TPU v5p chip: 104 GiB too much" in said


def test_numbers_are_those_of_the_compiler(shown, found: Snapshot) -> None:
    page = shown(found)
    # A column has text if a part is unknown: the loss is no array of the layout.
    figures = numbers_of(page, "Train step")
    told = found.program("train_step").memory
    assert figures["Arguments"] == bytes_text(told.arguments)
    assert figures["Outputs"] == bytes_text(told.outputs)
    assert figures["Temporaries"] == bytes_text(told.temporaries)
    use = found.program("train_step").memory_use.peak_bytes
    reserved = told.arguments + told.outputs + told.temporaries - told.aliased
    assert figures["Peak"] == bytes_text(min(use, reserved))
    assert figures["Reserved"] == bytes_text(reserved)
    held = sum(a.bytes_per_device for a in found.arrays if a.group == "params")
    assert figures["Arguments: parameters"] == bytes_text(held)
    # The random key is an argument of init alone, and no array.
    init = numbers_of(page, "Initialization")
    assert (init["Arguments: not matched with arrays, of any group or none"], init["Arguments: batch"]) == (
        "8 B",
        "unknown",
    )
    assert figures["Arguments: not matched with arrays, of any group or none"] == bytes_text(0)


def test_without_a_peak_a_program_needs_what_it_reserves(shown, found: Snapshot) -> None:
    unknown = tuple(
        dataclasses.replace(
            program,
            memory=dataclasses.replace(program.memory, peak=None),
            memory_use=None,
        )
        for program in found.programs
    )
    page = shown(dataclasses.replace(found, programs=unknown))
    told = found.program("train_step").memory
    reserved = told.arguments + told.outputs + told.temporaries - told.aliased
    assert numbers_of(page, "Train step")["Reserved"] == bytes_text(reserved)


def test_rows_add_up(found: Snapshot) -> None:
    for program in memory.breakdowns(found):
        rows = dict(section.rows(program))
        assert sum(size for _, size in program.parts) == rows["Peak"] <= rows["Reserved"]
        for name in ("Arguments", "Outputs"):
            assert sum(n for key, n in rows.items() if key.startswith(f"{name}: ")) == rows[name]


@pytest.mark.nightly
def test_savings_of_donation(shown, found: Snapshot) -> None:
    state = sum(a.bytes_per_device for a in found.arrays if a.group in ("params", "opt_state", "other"))
    assert "could be written over arguments" in texts(shown(found).caption)
    (step,) = [breakdown for breakdown in memory.breakdowns(found) if breakdown.program == "train_step"]
    assert step.not_donated == state
    donating = layouts.parse({"layers": "2", "depth": "64", "steps": "1", "donate": "true"}).unwrap()
    said = texts(shown(run_layout(donating, lambda *_, **__: None)).caption)
    assert "donated arguments" in said and "could be written over" not in said


def test_a_plan_needs_at_least_the_train_state(shown) -> None:
    page = shown(plan(LAYOUT, abstract_state(LAYOUT)))
    said = texts(page.info)
    assert "at least" in said and "only planned" in said
    assert not figures(page)
