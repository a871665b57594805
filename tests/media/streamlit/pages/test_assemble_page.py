"""The Assemble page on real workers: texts, figures and downloads."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from inspector.guides import assembly as assemblies
from inspector.guides.assembly.script import script
from inspector.jobs import inspection
from inspector.media.streamlit.pages import assemble_page
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.picture_menus import drawn, offered
from tests.media.streamlit.scripted_page import PATIENCE, LonePage, widget_of

PAGE = """
import streamlit as st
from inspector.media.streamlit.pages import assemble_page
if "other_page" not in st.session_state:
    assemble_page.show()
"""
FIELDS = ("mesh", "axes", "shape", "spec", "batch_axes", "target")


class AssemblePage(LonePage):
    def __init__(self) -> None:
        super().__init__(AppTest.from_string(PAGE, default_timeout=PATIENCE))

    def press(self, field: str, value: str) -> None:
        widget_of(self.test.button_group, f"assemble:{field}").set_value(value)
        self.run()

    def put(self, field: str, value: str | int | None) -> None:
        widgets = self.test.text_input if field in FIELDS else self.test.number_input
        widget_of(widgets, f"assemble:{field}").set_value(value)
        self.run()

    def break_it(self, mistake: str) -> None:
        widget_of(self.test.selectbox, "assemble:mistake").set_value(mistake)
        self.run()

    def texts(self) -> list[str]:
        return [plain(text.value) for text in self.test.markdown]

    def figures(self) -> dict[str, dict]:
        charts = figures(self.test)
        return {chart.key.removeprefix("assemble:"): json.loads(chart.spec) for chart in charts}

    def numbers(self, figure: str) -> list[str]:
        found = []
        for trace in self.figures()[figure]["data"]:
            if trace["type"] == "heatmap":
                found += [text for text in np.ravel(trace["text"]) if text]
        return found

    def code(self) -> list[str]:
        return [block.value for block in self.test.code]

    def said(self) -> list[str]:
        outcomes = [*self.test.error, *self.test.warning, *self.test.success]
        return [plain(outcome.value) for outcome in outcomes]


def plain(markdown: str) -> str:
    return re.sub(r"\\(.)", r"\1", markdown)


@pytest.fixture
def page(_shared_workers: None) -> AssemblePage:
    return AssemblePage()


@pytest.mark.nightly
def test_the_default_array_has_three_figures(page: AssemblePage) -> None:
    assert "Global shape **(8, 8)**, per device **(4, 2)**." in page.texts()
    assert list(page.figures()) == ["good:host", "good:devices", "good:array"]
    for figure in ("good:host", "good:array"):
        assert sorted(map(int, page.numbers(figure))) == list(range(64))
    assert sorted(page.numbers("good:devices")) == [f"piece {number}" for number in range(8)]
    assert page.said() == []
    assert page.code() == [script(assemblies.parse({}).unwrap()).strip()]


@pytest.mark.parametrize("way", ["callback", "device_put"])
def test_all_functions_make_the_same_array(page: AssemblePage, way: str) -> None:
    page.press("way", way)
    assert sorted(map(int, page.numbers("good:array"))) == list(range(64))
    assert f"jax.{assemblies.WAYS[way]}(" in page.code()[-1]


def test_the_global_shape_of_a_batch_is_explained(page: AssemblePage) -> None:
    page.press("loading", "batch")
    assert (
        "Global shape **(16, 32)**, per device **(2, 32)**: 2 rows × 8 devices along the batch = 16 rows."
    ) in page.texts()
    page.put("batch_axes", "y")
    page.put("rows", 3)
    assert (
        "Global shape **(12, 32)**, per device **(3, 32)**: "
        "3 rows × 4 devices along the batch = 12 rows. Each part is on 2 devices."
    ) in page.texts()


def test_a_tensor_parallel_batch_is_resharded_inside_jit(page: AssemblePage) -> None:
    page.press("loading", "reshard")
    assert "resharded" in page.figures()
    (sentence,) = [text for text in page.texts() if "reshards with" in text]
    assert "all-to-all: 1.5 KiB move" in sentence and "512 B stay" in sentence
    shardings = page.code()[0]
    assert re.search(r"^before .*spec=P\(\('x', 'y'\), None\)", shardings, re.MULTILINE)
    assert re.search(r"^after .*spec=P\('x', 'y'\)", shardings, re.MULTILINE)
    table = page.test.dataframe[0].value
    assert list(table["Kept"]) == [64] * 8 and list(table["Received"]) == [192] * 8
    assert table["From"][0] == "1 (64 B), 2 (64 B), 3 (64 B)"


def test_a_mistake_that_jax_reports(page: AssemblePage) -> None:
    page.break_it("shape")
    (outcome,) = page.said()
    assert outcome == (
        "JAX refused to make the array. The piece for device 3 is 3×2, but each must be "
        "4×2: that is 8×8 with dimension 0 cut over x and dimension 1 cut over y."
    )
    assert page.code()[0].startswith("ValueError: Expected shard shape (4, 2) doesn't match")
    assert "# The mistake:" in page.code()[-1]
    assert "broken:array" not in page.figures() and "broken:devices" in page.figures()


def test_a_mistake_that_jax_does_not_report(page: AssemblePage) -> None:
    page.break_it("swapped")
    page.put("device", 0)
    (outcome,) = [plain(warning.value) for warning in page.test.warning]
    assert outcome.startswith(
        "JAX made the array without an error, but 16 numbers on 2 devices (0, 1) are wrong. "
        "Device 0 holds 2 … 27, but [0:4, 0:2] of the array is 0 … 25;"
    )
    assert page.numbers("broken:array") != page.numbers("good:array")


def test_the_order_of_pieces_does_not_matter(page: AssemblePage) -> None:
    page.break_it("list_order")
    assert [plain(success.value) for success in page.test.success] == [
        "JAX made the array, and every number is on the right device. JAX ignores the order of the "
        "list: only the device of each piece matters."
    ]


def test_an_impossible_mistake_is_reset(page: AssemblePage) -> None:
    page.put("spec", "x")
    page.break_it("copies")
    assert page.said()
    page.put("spec", "x, y")
    assert widget_of(page.test.selectbox, "assemble:mistake").value == "nothing"
    assert page.said() == []


def test_an_indivisible_shape_is_an_error_of_jax(page: AssemblePage) -> None:
    page.put("shape", "9x8")
    assert page.said() == [
        "JAX refused to compute the part of each device. Dimension 0 of 9×8 of "
        "size 9 is not divisible by 2 (x), so the pieces cannot have equal shapes."
    ]
    assert page.code()[0].startswith("IndivisibleError:")
    assert not page.test.selectbox, "there is nothing left to break"


def test_an_invalid_field_is_reported_until_corrected(page: AssemblePage) -> None:
    page.put("mesh", "3x")
    assert page.said() == ["mesh is '3x', but must be axis sizes joined by x, such as 2x4"]
    assert page.figures() == {}
    page.put("mesh", "2x4")
    assert page.said() == [] and len(page.figures()) == 3
    page.press("loading", "batch")
    page.put("rows", 0)
    assert page.said() == ["rows is '0', but must be an integer from 1 to 4,096"]


def test_a_mesh_of_another_rank_changes_axis_names(page: AssemblePage) -> None:
    page.put("mesh", "2x2x2")
    assert widget_of(page.test.text_input, "assemble:axes").value == "x, y, z"
    assert page.said() == [] and len(page.figures()) == 3
    page.put("mesh", "8")
    assert widget_of(page.test.text_input, "assemble:axes").value == "x"
    assert widget_of(page.test.text_input, "assemble:spec").value == "x, None"
    assert page.said() == [] and "Global shape **(8, 8)**, per device **(1, 8)**" in str(page.texts())


def test_each_mistake_is_run_once(page: AssemblePage, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    pool = inspection.shared().pool
    submit = pool.submit

    def counted(kind: str, *arguments: Any, **settings: Any) -> Any:
        started.append(kind)
        return submit(kind, *arguments, **settings)

    monkeypatch.setattr(pool, "submit", counted)
    page.break_it("missing")
    page.break_it("nothing")
    page.break_it("missing")
    assert started.count("assemble") <= 1, "another page can have asked before"


def test_fields_keep_their_values_while_another_page_is_open(_shared_workers: None) -> None:
    page = AssemblePage()
    page.put("shape", "16x8")
    page.break_it("missing")
    page.test.session_state["other_page"] = True
    page.run()
    assert not page.test.text_input
    del page.test.session_state["other_page"]
    page.run()
    assert widget_of(page.test.text_input, "assemble:shape").value == "16x8"
    assert widget_of(page.test.selectbox, "assemble:mistake").value == "missing"


def test_every_figure_has_downloads_with_provenance(page: AssemblePage) -> None:
    page.press("loading", "reshard")
    page.break_it("swapped")
    keys = drawn(page.test)
    assert "assemble:resharded" in keys and "assemble:broken:array" in keys
    assert sorted(offered(page.test, "pictures", "pictures_of_mistake")) == sorted(keys)
    assembly = assemblies.parse(assemblies.DEFAULTS).unwrap().with_mistake("swapped", 3)
    service = inspection.shared()
    line = assemble_page.provenance_line(assembly, service.assembly(assembly).answer())
    assert line.startswith(
        "An array made by make_array_from_single_device_arrays · mistake: Two pieces swapped · "
        "global shape 8×8 · P('x', 'y') · mesh "
    )
    assert " · run on emulated devices · versions jax 0." in line
