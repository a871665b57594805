"""The Learn page: choice of a tutorial, its steps, its mesh, and errors."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from benchmarks.processes import PATIENCE
from inspector.guides import tutorials
from inspector.guides.tutorials import TutorialRequest, TutorialRun, TutorialStep
from inspector.jobs import inspection
from inspector.media.streamlit.pages import learn_page
from inspector.media.streamlit.pages.learn_page import Taken
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.picture_menus import drawn, offered
from tests.media.streamlit.scripted_page import widget_of


def script() -> None:
    """Draw the page alone; Streamlit runs the source of this function."""
    from inspector.media.streamlit.pages import learn_page

    learn_page.show()


class LearnPage:
    """One session of the page, without a browser."""

    def __init__(self, guide: str = "pieces", **state: Any) -> None:
        self.test = AppTest.from_function(script, default_timeout=PATIENCE)
        self.test.session_state["learn:guide"] = guide
        for key, value in state.items():
            self.test.session_state[f"learn:{key}"] = value
        self.run()

    def run(self) -> None:
        self.test.run()
        assert not self.test.exception, [error.value for error in self.test.exception]

    def choose(self, guide: str) -> None:
        widget_of(self.test.button_group, "learn:guide").set_value(guide)
        self.run()

    def type(self, guide: str, name: str, text: str) -> None:
        widget_of(self.test.text_input, f"learn:{guide}:{name}").set_value(text)
        self.run()

    def value(self, guide: str, name: str) -> str:
        return widget_of(self.test.text_input, f"learn:{guide}:{name}").value

    def press(self, key: str) -> None:
        self.test.button(key=f"learn:{key}").click()
        self.run()

    def steps(self) -> list[str]:
        return [plain(expander.label) for expander in self.test.expander]

    def code(self) -> list[str]:
        return [one.value for one in self.test.code]

    def said(self) -> str:
        """Return all text of the page, unescaped."""
        kinds = ("markdown", "caption", "error")
        return plain("\n".join(one.value for kind in kinds for one in self.test.get(kind)))

    def charts(self) -> dict[str, dict[str, Any]]:
        """Return every figure by the last three parts of its key: step, array and kind."""
        return {figure.key.split(":", 2)[2]: json.loads(figure.spec) for figure in figures(self.test)}

    def blocks(self, key: str) -> list[str]:
        """Return the texts in the cells of a block map, in order."""
        rows = self.charts()[key]["data"][0]["text"]
        return [re.sub(r"<br>|\s", " ", text) for row in rows for text in row]


def plain(markdown: str) -> str:
    return re.sub(r"\\(.)", r"\1", markdown)


@pytest.fixture
def open_learn(_shared_workers: None) -> type[LearnPage]:
    return LearnPage


def test_only_the_first_step_is_open(open_learn) -> None:
    page = open_learn()
    assert page.steps() == [
        "**1** · The index of each device",
        "**2** · Slice and put",
        "**3** · Join",
        "**4** · From a callback",
        "**5** · A batch sharded over all mesh axes",
        "**6** · The same in one call",
        "**7** · For tensor parallelism, reshard inside jit",
        "**8** · A piece of the wrong shape",
    ]
    code, output = page.code()
    assert code.startswith("import jax\n") and "addressable_devices_indices_map" in code
    assert output.splitlines()[0] == "device 0 0:4 0:2"
    assert "Run on mesh x 2 × y 4, emulated on this machine, with JAX" in page.said()
    assert set(page.charts()) == {"1:mesh:mesh_map"}


def test_all_steps_can_be_opened_and_closed(open_learn) -> None:
    page = open_learn()
    page.press("open_all")
    request = tutorials.parse("pieces", **tutorials.defaults("pieces")).unwrap()
    known = inspection.shared().tutorial(request).known()
    assert page.code() == [text for step in known.steps for text in (step.code, step.output)]
    assert "JAX raised `ValueError`" in page.said()
    assert set(page.charts()) == {
        f"{place}:{kind}"
        for place in ("3:joined", "5:batch", "7:resharded")
        for kind in ("block_map", "mesh_map")
    } | {"1:mesh:mesh_map"}
    assert page.blocks("3:joined:block_map") == [f"device {device}" for device in range(8)]
    figures = drawn(page.test)
    places = ("1:mesh", "3:joined", "5:batch", "7:resharded")
    assert offered(page.test, *(f"pictures:pieces:{place}" for place in places)) == figures
    request = tutorials.parse("pieces", **tutorials.defaults("pieces")).value
    (line,) = learn_page.provenance_lines(
        learn_page.Taken(request, known), known.steps[2], 3, known.steps[2].drawn[0]
    )
    assert line.startswith("Build an array from pieces, step 3: Join · joined P('x', 'y') · mesh ")
    page.press("open_all")
    assert page.code() == [] and page.charts() == {}


@pytest.mark.nightly
def test_another_mesh_runs_the_tutorial_again(open_learn) -> None:
    page = open_learn(**{"pieces:step_3": True})
    assert len(page.blocks("3:joined:block_map")) == 8
    page.type("pieces", "mesh", "1x2")
    assert page.blocks("3:joined:block_map") == ["device 0", "device 1"]
    assert "(8, 8) P('x', 'y') in shards of (8, 4)" in page.code()[-1]
    assert "Run on mesh x 1 × y 2" in page.said()
    page.type("pieces", "axes", "up, down")
    assert "Run on mesh up 1 × down 2" in page.said()
    assert "P('up', 'down')" in page.code()[-1]


def test_an_invalid_mesh_keeps_the_last_result(open_learn) -> None:
    page = open_learn()
    before = page.code()
    for name, text, sentence in (
        ("mesh", "3y", "mesh is '3y', but must be axis sizes joined by x, such as 2x4"),
        ("mesh", "8", "mesh 8 has 1 axis, but this tutorial needs 2"),
        ("mesh", "9x9", "mesh 9x9 makes 81 devices, but this tutorial needs 1 to 64"),
        ("axes", "x, <b>", "axes has '<b>', but a mesh axis must be ASCII letters"),
    ):
        page.type("pieces", name, text)
        assert sentence in page.said()
        assert page.code() == before
        assert "Run on mesh x 2 × y 4" in page.said()
        page.type("pieces", name, {"mesh": "2x4", "axes": "x, y"}[name])
        assert sentence not in page.said()


def test_each_tutorial_keeps_its_mesh(open_learn) -> None:
    page = open_learn()
    page.type("pieces", "mesh", "1x2")
    page.choose("arrays")
    assert (page.value("arrays", "mesh"), page.value("arrays", "axes")) == ("2x4", "data, model")
    page.type("arrays", "mesh", "2")
    assert page.value("arrays", "axes") == "data"
    assert "Run on mesh data 2" in page.said()
    page.type("arrays", "mesh", "1")
    assert "mesh 1 makes 1 device, but this tutorial needs 2 to 64" in page.said()
    page.choose("pieces")
    assert page.value("pieces", "mesh") == "1x2"
    assert "Run on mesh x 1 × y 2" in page.said()


def test_the_link_to_the_processes_page(open_learn) -> None:
    page = open_learn("arrays", **{"arrays:mesh": "2", "arrays:axes": "data", "arrays:step_10": True})
    assert "[Several processes](processes)" in page.said()


def test_a_failed_step_shows_its_error_and_the_others(open_learn) -> None:
    request = TutorialRequest("pieces", (1, 2), ("x", "y"))
    steps = (
        TutorialStep("One", "First words.", "one = 1", output="fine"),
        TutorialStep("Two", "Second words.", "1 / 0", problem="ZeroDivisionError: <b>division</b>"),
        TutorialStep("Three", "Third words.", "3", problem="not run, because step 2 failed"),
    )
    page = open_learn(
        taken={"pieces": Taken(request, TutorialRun(steps, {"jax": "1.2"}))},
        **{"pieces:mesh": "1x2", "pieces:step_2": True, "pieces:step_3": True},
    )
    assert page.test.error[0].value == r"Step 2 failed\: ZeroDivisionError\: \<b\>division\</b\>"
    assert page.code() == ["one = 1", "fine", "1 / 0", "3"]
    assert "Third words." in page.said() and "not run, because step 2 failed" in page.said()
    page.press("again")
    assert len(page.steps()) == 8 and not page.test.error
