"""The Processes page: its fields, and downloads of its figures."""

from __future__ import annotations

import json

import pytest
from streamlit.testing.v1 import AppTest

from inspector.guides import processes
from inspector.jobs import inspection
from inspector.media.streamlit.pages import processes_page
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.picture_menus import drawn, offered
from tests.media.streamlit.scripted_page import PATIENCE, widget_of

PAGE = "from inspector.media.streamlit.pages import processes_page\nprocesses_page.show()\n"


@pytest.mark.nightly
def test_every_figure_has_downloads_with_provenance(_shared_workers: None) -> None:
    page = AppTest.from_string(PAGE, default_timeout=PATIENCE)
    page.run()
    assert not page.exception, [error.value for error in page.exception]
    names = ("given", "global", "returned", "mesh")
    assert offered(page) == drawn(page) == [f"processes:{name}_figure" for name in names]
    wanted = processes.parse(processes.DEFAULTS).unwrap()
    exchanged = inspection.shared().exchange(wanted).answer()
    line = processes_page.provenance_line(wanted, exchanged)
    assert line.startswith(
        "Host-local arrays through host_local_array_to_global_array · host-local shape 4×2 · "
        "values different per process · P('x', None) · mesh "
    )
    assert f" · run on emulated devices of 2 processes · versions jax {versions(exchanged)}" in line


@pytest.mark.nightly
def test_another_mesh_and_four_processes(_shared_workers: None) -> None:
    page = AppTest.from_string(PAGE, default_timeout=PATIENCE).run()
    widget_of(page.text_input, "processes:mesh").set_value("4x2").run()
    assert widget_of(page.text_input, "processes:axes").value == "x, y"
    widget_of(page.text_input, "processes:spec").set_value("x, y").run()
    widget_of(page.button_group, "processes:processes").set_value("4").run()
    assert not page.exception, [error.value for error in page.exception]
    (verdict,) = page.success
    said = verdict.value.replace("\\", "")
    assert said.startswith("4 processes with (4, 2) each make one global array of (16, 2)")
    traces = spec(page, "processes:global_figure")["data"]
    (labels,) = [trace["text"] for trace in traces if trace.get("mode") == "text"]
    assert labels == [f"{4 * number}:{4 * number + 4} process {number}" for number in range(4)]


def spec(page: AppTest, key: str) -> dict:
    (figure,) = (one for one in figures(page) if one.key == key)
    return json.loads(figure.spec)


def versions(exchanged: processes.Exchanged) -> str:
    return exchanged.versions["jax"]
