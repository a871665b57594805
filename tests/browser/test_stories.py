"""The tasks of first-time users take few clicks, and no two places give different answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from inspector.machines import targets
from tests.browser import stories
from tests.browser.dashboard import Dashboard
from tests.browser.server import Server

pytestmark = pytest.mark.nightly

V5E = "tpu:v5e:2x4"
MOST_CLICKS_OF_STUDENT = 2  # for each answer
MOST_CLICKS_OF_STAFF = 15
MOST_CLICKS_OF_OWN_MODEL = 5
# A time, and bytes, as the verdict and the picture write them.
FIGURE = re.compile(r"\d[\d.,]* (?:µs|ms|s|B|[KMG]iB)")


@pytest.fixture
def tell(open_tab: Callable, server: Server) -> Callable[[str], stories.Story]:
    """Open a dashboard that counts clicks."""

    def make(query: str, url: str = server.url) -> stories.Story:
        page = open_tab()
        page.add_init_script(stories.COUNT_CLICKS)
        dashboard = Dashboard(page, url).open(query)
        return stories.Story(dashboard, dashboard.screenshot)

    return make


def test_a_student_sees_each_answer_within_two_clicks(tell) -> None:
    story = tell(stories.OF_STUDENT)
    stories.student(story)
    assert len(story.clicks) == 3
    assert max(story.clicks.values()) <= MOST_CLICKS_OF_STUDENT


@pytest.mark.skipif(
    targets.missing_compiler(targets.parse(V5E)) is not None, reason="needs the compiler for TPUs"
)
def test_three_compiled_layouts_get_one_answer_in_fifteen_clicks(tell, tmp_path: Path) -> None:
    story = tell(stories.OF_STAFF)
    texts = stories.staff(story, tmp_path)
    assert sum(story.clicks.values()) <= MOST_CLICKS_OF_STAFF
    (verdict,) = re.findall(r".* has the shortest step\b.*", texts["page"])
    assert len(FIGURE.findall(verdict)) == 3
    for place, text in texts.items():
        assert verdict in text, place
        assert FIGURE.search(text), place


def test_an_own_model_gets_the_code_of_its_best_layout_in_five_clicks(tell) -> None:
    server = Server(serve=["--model", stories.OWN_MODEL])
    try:
        story = tell(stories.OF_OWN_MODEL, server.url)
        code = stories.own_model(story, stories.OWN_MODEL)
    finally:
        server.stop()
    assert sum(story.clicks.values()) <= MOST_CLICKS_OF_OWN_MODEL
    assert "examples.linen_mlp" in code
    compile(code, "layout.py", "exec")
