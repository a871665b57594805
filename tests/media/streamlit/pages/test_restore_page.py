"""The Restore page: both layouts and the planned transfer."""

from __future__ import annotations

import json
import re

import pytest
from streamlit.testing.v1 import AppTest

from benchmarks.processes import PATIENCE
from inspector import layout as layouts
from inspector.guides import transfer
from inspector.jobs import inspection
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.picture_menus import drawn, offered
from tests.media.streamlit.scripted_page import LonePage, widget_of

SMALL = {"layers": "2", "depth": "64"}


def script() -> None:
    """Draw the page alone; Streamlit runs the source of this function."""
    from inspector.media.streamlit.pages import restore_page

    restore_page.show()


class RestorePage(LonePage):
    def __init__(self, **fields: str) -> None:
        # The state that the Layout page leaves.
        layout = layouts.parse(SMALL | fields).unwrap()
        super().__init__(AppTest.from_function(script, default_timeout=PATIENCE), last_layout=layout)

    def type(self, name: str, text: str) -> None:
        widget_of(self.test.text_input, f"restore:{name}").set_value(text)
        self.run()

    def value(self, name: str) -> str:
        return widget_of(self.test.text_input, f"restore:{name}").value

    def said(self) -> str:
        """Return all text of the page, unescaped."""
        kinds = ("markdown", "caption", "error", "success", "info")
        texts = [element.value for kind in kinds for element in self.test.get(kind)]
        return re.sub(r"\\(.)", r"\1", "\n".join(texts))

    def metrics(self) -> dict[str, str]:
        return {metric.label: metric.value for metric in self.test.metric}


@pytest.fixture
def open_restore(_shared_workers: None) -> type[RestorePage]:
    return RestorePage


def test_the_transfer_is_planned_without_a_run(open_restore) -> None:
    page = open_restore()
    assert (page.value("mesh"), page.value("axes")) == ("4x2", "data, model")
    assert page.value("rules") == "batch=data, hidden=model"
    service = inspection.shared()
    plans = [service.plan(layouts.parse(SMALL | fields).unwrap()) for fields in ({}, {"mesh": "4x2"})]
    result = transfer.transfer(*plans)
    assert transfer.in_words(result) in page.said()
    assert page.metrics()["Receiving devices"] == str(transfer.totals(result).receivers)
    table = page.test.dataframe[0].value
    assert table["To move"].sum() == transfer.totals(result).moved
    assert table["Stays"].sum() == transfer.totals(result).kept


def test_transfer_of_one_array(open_restore) -> None:
    page = open_restore()
    path = "params/DotReluDot_0/W2"
    page.test.selectbox(key="restore_array").set_value(path)
    page.run()
    (row,) = page.test.dataframe[0].value.query("Path == @path").to_dict("records")
    assert (row["To move"], row["Stays"]) == (49_152, 16_384)
    assert "75% of 64.0 KiB on 8 devices must move: 48.0 KiB" in page.said()
    (chart,) = figures(page.test)
    assert offered(page.test) == drawn(page.test) == ["transfer_map"]
    title = json.loads(chart.spec)["layout"]["title"]["text"]
    assert title == f"{path}: bytes from device to device"
    page.type("mesh", "1x8")
    assert page.test.selectbox(key="restore_array").value == path


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("mesh", "0x4", "mesh 0x4 has an axis of size 0, each must be at least 1"),
        ("axes", "data", "axes gives 1 name (data), but mesh 4x2 has 2 axes"),
        (
            "rules",
            "hidden=expert",
            "rule hidden names mesh axis 'expert', but the mesh has data, model",
        ),
    ],
)
def test_an_invalid_field_is_reported_and_stays(open_restore, field: str, text: str, sentence: str) -> None:
    page = open_restore()
    page.type(field, text)
    assert sentence in page.said() and page.value(field) == text
    assert not page.metrics() and not page.test.button


def test_an_indivisible_mesh_is_reported(open_restore) -> None:
    page = open_restore()
    page.type("mesh", "2x3")
    assert "hidden of size 64 is not divisible by 3 (model)" in page.test.error[0].value.replace("\\", "")
    assert not page.metrics()


def test_a_new_rank_changes_axis_names_and_a_preset_all_fields(open_restore) -> None:
    page = open_restore()
    page.type("mesh", "2x2x2")
    assert page.value("axes") == "data, model, fsdp"
    assert page.metrics()
    widget_of(page.test.button_group, "restore:preset").set_value("FSDP")
    page.run()
    assert (page.value("mesh"), page.value("axes")) == ("8", "fsdp")
    assert page.value("rules") == "batch=fsdp, embed=fsdp"
    assert page.metrics()


def test_a_model_with_device_axes_has_specs(open_restore) -> None:
    page = open_restore(model="mlp")
    assert page.value("mesh") == "4x2" and "W1=None.model" in page.value("specs")
    assert page.metrics()["Bytes to move"] != "0 B"


@pytest.mark.parametrize(("mesh", "suggested"), [("2x4", "4x2"), ("8", "4"), ("3x3", "3x3")])
def test_the_suggested_layout_differs_if_possible(open_restore, mesh: str, suggested: str) -> None:
    page = open_restore(mesh=mesh, rules="")
    assert page.value("mesh") == suggested
    assert page.metrics()
