"""The collectives panel on runs and plans: headline, figures, tables, filters, and links to arrays."""

from __future__ import annotations

import dataclasses

import pytest
from streamlit.testing.v1 import AppTest

from inspector import layout as layouts
from inspector.answers import collectives as section
from inspector.compiling.run_layout import run_layout
from inspector.layout.plan import NOT_PARTITIONED, plan, with_programs
from inspector.partition.partition_layout import partitioned_programs
from inspector.records.snapshot import Collective, Finding, Snapshot
from inspector.text.formatting import bytes_text
from inspector.tracing.model.abstract import abstract_state
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.scripted_page import widget_of

SCRIPT = """
import streamlit as st
from inspector.records import snapshot
from inspector.media.streamlit.panels import program_panels
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import selection
from inspector.answers import collectives
found = snapshot.read(st.session_state["path"])
if "of" in st.session_state:
    render.show(collectives.of_array(found.array(st.session_state["of"]), found))
else:
    program_panels.show_collectives(found, None)
st.text(selection.selected(found).path)
"""

LAYOUT = layouts.parse({"layers": "2", "depth": "64", "steps": "1"}).unwrap()


@pytest.fixture(scope="module")
def found() -> Snapshot:
    return run_layout(LAYOUT, lambda *_, **__: None)


def charts(page: AppTest) -> list[str]:
    return [chart.key for chart in figures(page)]


def texts(elements) -> str:
    return " ".join(element.value.replace("\\", "") for element in elements)


def with_collectives(snapshot: Snapshot, collectives: tuple[Collective, ...] | None) -> Snapshot:
    programs = tuple(
        dataclasses.replace(program, collectives=collectives, schedule=None) for program in snapshot.programs
    )
    return dataclasses.replace(snapshot, programs=programs)


def test_headline_figures_and_tables_agree(shown, found: Snapshot) -> None:
    page = shown(found)
    collectives = found.program("train_step").collectives
    sent = sum(collective.executions * collective.wire_bytes_per_device for collective in collectives)
    assert texts(page.markdown).startswith(
        f"A train step runs {len(collectives)} all-reduces over `data`, `model`: "
        f"**{bytes_text(sent)}** leave each device"
    )
    assert charts(page) == ["collective_bars"]  # all devices send the same
    (every_one,) = (table.value for table in page.dataframe)
    assert sorted(every_one["Name"]) == sorted(collective.name for collective in collectives)
    assert list(every_one["On the wire"]) == sorted(every_one["On the wire"], reverse=True)
    assert every_one["On the wire"].sum() == sent
    assert set(every_one["Phase"]) <= {"forward", "backward", "forward + backward"}


def test_another_program_can_be_chosen(shown, found: Snapshot) -> None:
    page = shown(found, collectives_program="init")
    assert "Initialization runs no collective" in texts(page.markdown)
    assert not charts(page) and not page.dataframe
    widget_of(page.button_group, "collectives_program").set_value("apply").run()
    assert "An inference runs 2 all-reduces over `model`" in texts(page.markdown)
    assert charts(page) == ["collective_bars"]


def test_filter_by_axis(shown, found: Snapshot) -> None:
    page = shown(found)
    page.button_group(key="collective_axes:train_step").set_value(["data"]).run()
    assert set(page.dataframe[0].value["Mesh axes"]) == {"data"}


def test_missing_programs_and_unread_collectives_are_notices(shown, found: Snapshot) -> None:
    page = shown(plan(LAYOUT, abstract_state(LAYOUT)))
    assert "only planned" in texts(page.info) and not charts(page)
    page = shown(with_collectives(found, None))
    assert "unknown" in texts(page.info) and not charts(page)


@pytest.mark.nightly
def test_propagated_programs_of_an_opened_plan(shown) -> None:
    planned = plan(LAYOUT, abstract_state(LAYOUT))
    page = shown(with_programs(planned, partitioned_programs(LAYOUT)))
    assert charts(page) == ["collective_bars"]
    assert page.caption[0].value.startswith("Partitioned")
    failed = Finding("note", NOT_PARTITIONED, "No rule for op.")
    page = shown(dataclasses.replace(planned, findings=(failed,)))
    assert "No rule for op." in texts(page.warning)


def test_unknown_values_are_shown_as_unknown(shown, found: Snapshot) -> None:
    first, *others = found.program("train_step").collectives
    unknown = dataclasses.replace(first, executions=None, mesh_axes=None, op_name=None, arrays=None)
    page = shown(with_collectives(found, (unknown, *others)))
    assert "at least" in page.markdown[0].value
    assert "1 collective with unknown bytes" in page.markdown[0].value
    row = page.dataframe[0].value.iloc[-1]  # unknown traffic comes last
    for column in ("Executions", "On the wire", "Mesh axes", "Phase", "Arrays"):
        assert row[column] == "unknown"
    only = shown(with_collectives(found, (unknown,)))
    assert "bytes that leave each device are unknown" in only.markdown[0].value
    assert charts(only) == ["collective_bars"]


def test_a_selected_row_links_to_its_arrays(shown, found: Snapshot, monkeypatch) -> None:
    """AppTest cannot select a row, so the selection is put where Streamlit keeps it."""
    collectives = found.program("train_step").collectives
    in_order = section.matching(collectives)
    number = next(n for n, collective in enumerate(in_order) if collective.arrays)
    selected = {"selection": {"rows": [number], "columns": [], "cells": []}}
    page = shown(found, **{"collective_table:train_step": selected})
    if not any(one.key == "moved:params/DotReluDot_1/W2" for one in page.button):
        pytest.skip("this version of Streamlit takes no selection of a table from outside")
    page.button(key="moved:params/DotReluDot_1/W2").click().run()
    assert page.text[0].value == "params/DotReluDot_1/W2"


def test_collectives_of_one_array(shown, found: Snapshot) -> None:
    page = shown(found, of="params/DotReluDot_0/W2")
    (table,) = page.dataframe
    assert list(table.value["Op"]) == ["all-reduce"] and list(table.value["Mesh axes"]) == ["data"]
    # Its own part of a combined all-reduce of several gradients.
    assert table.value["Payload"][0] == bytes_text(found.array("params/DotReluDot_0/W2").bytes_per_device)
    none = shown(found, of="opt_state/0/count")
    assert "No collective is known to move this array" in texts(none.caption)
    planned = shown(plan(LAYOUT, abstract_state(LAYOUT)), of="params/DotReluDot_0/W2")
    assert not planned.dataframe and not planned.caption


def test_names_are_escaped(shown, found: Snapshot) -> None:
    first, *_ = found.program("train_step").collectives
    hostile = dataclasses.replace(
        first,
        op="<b>all</b>-reduce",
        wire_bytes_per_device=None,
        op_name="jit(step)/jvp(Net)/<img src=x>/[a](b)/dot_general",
        source="[x](http://example.org):1",
    )
    page = shown(with_collectives(found, (hostile,)))
    assert "1 \\<b\\>all" in page.markdown[0].value
    assert charts(page)[0] == "collective_bars"
    assert page.dataframe[0].value["Source"][0] == hostile.source
