"""The tab, array and program in the URLs of pages, and boards that the library keeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inspector import layout as layouts
from inspector.compare.board import Board
from inspector.compare.paired_times import Candidates
from inspector.files import private_database
from inspector.jobs.inspection import Inspection
from inspector.jobs.library import Library
from inspector.jobs.request import Request
from inspector.media.streamlit.panels import snapshot_panels
from inspector.media.streamlit.session import pins, selection, view_link
from inspector.text.errors import InvalidInput
from tests.figures import samples
from tests.media.streamlit.scripted_page import PATIENCE, go_back, widget_of

pytestmark = pytest.mark.usefixtures("without_programs")

FOUND = samples.snapshot()
LARGEST = selection.largest_parameter(FOUND).path
OTHER = next(array.path for array in FOUND.arrays if array.path != LARGEST)

BOARD_PAGE = """
from inspector.media.streamlit.pages import board_page
from inspector.media.streamlit.session import current_layout
current_layout.begin(on_layout_page=False)
board_page.show()
"""
OPEN_PAGE = """
from inspector.media.streamlit.pages import open_page
from inspector.jobs.request import Request
open_page.show()
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _shared_workers: None) -> Library:
    monkeypatch.setenv(private_database.VARIABLE, str(tmp_path))
    return Library()


def drawn(script: str, **query: str | list[str]) -> AppTest:
    page = AppTest.from_string(script, default_timeout=PATIENCE)
    page.query_params.update(query)
    return again(page)


def again(page: AppTest) -> AppTest:
    page.run()
    assert not page.exception, [error.value for error in page.exception]
    return page


def value(page: AppTest, name: str) -> str | None:
    result = page.query_params.get(name)
    return result[-1] if isinstance(result, list) else result


def test_a_link_to_a_layout_has_tab_and_array(open_page) -> None:
    page = open_page(depth="64", layers="2")
    assert not {"tab", "array", "program"} & set(page.test.query_params)
    page.open_panel("Arrays")
    chosen = page.test.session_state[selection.KEY]
    array = next(
        option for option in widget_of(page.test.selectbox, selection.KEY).options if option != chosen
    )
    page.choose(selection.KEY, array)
    page.open_panel("Arrays", "Tree")
    assert value(page.test, "tab") == "arrays" and value(page.test, "array") == array
    assert value(page.test, "view") == "tree"
    linked = open_page(depth="64", layers="2", tab="arrays", view="tree", array=array)
    state = linked.test.session_state
    assert (state["panel"], state[selection.KEY]) == ("Arrays", array)
    assert not linked.test.warning
    assert value(linked.test, "view") == "tree"


def test_an_unknown_view_of_a_link_is_named(monkeypatch) -> None:
    state: dict[str, str] = {}
    monkeypatch.setattr(view_link.st, "session_state", state)
    link = {"tab": "arrays", "view": "x"}
    assert set(view_link.read(link, snapshot_panels.PANELS, "panel")) == {"view"}
    assert state[selection.VIEW_KEY] == view_link.VIEWS[0]


def test_unknown_values_of_a_link_are_ignored_with_a_note(open_page) -> None:
    page = open_page(depth="64", layers="2", tab="nowhere", array="params/$x$", program="p" * 5000)
    state = page.test.session_state
    assert state["panel"] == "Summary"
    (warning,) = page.test.warning
    assert "tab is" in warning.value and "array is" in warning.value
    assert not {"tab", "array", "program"} & set(page.test.query_params)


def test_a_kept_board_has_a_short_link(library: Library) -> None:
    other = dataclasses.replace(FOUND, findings=())
    board = Board().pinned("one", FOUND).pinned("two", other).compared_to(1)
    library.save("review 7", "for the review", dataclasses.replace(board, chip="h100"))
    page = drawn(BOARD_PAGE, board="review 7", tab="arrays", array=OTHER)
    opened = pins_of(page)
    assert opened.names == ("one", "two") and opened.baseline == 1
    assert page.session_state["chip"] == "h100" and page.session_state[pins.TABS_KEY] == "Arrays"
    assert value(page, "board") == "review 7" and value(page, "tab") == "arrays"
    assert value(page, "array") == OTHER == page.selectbox(key="board_array").value
    assert "pin" not in page.query_params and not page.warning
    page.selectbox(key="board_array").set_value(LARGEST)
    again(page)
    assert value(page, "array") is None and page.session_state[selection.KEY] == LARGEST
    # A changed board is another one.
    page.button(key="pin_baseline:0").click()
    again(page)
    assert "board" not in page.query_params and pins_of(page).baseline == 0


def test_an_unknown_board_leaves_a_note(library: Library) -> None:
    page = drawn(BOARD_PAGE, board="<b>absent</b>")
    assert pins_of(page) == Board() and "absent" in page.warning[0].value
    library.save("mine", "", Board().pinned("one", FOUND))
    page = drawn(BOARD_PAGE, board="mine", tab="x", array="params/absent")
    assert "array is" in page.warning[0].value and "tab is" in page.warning[0].value


def pins_of(page: AppTest) -> Board:
    return page.session_state["board"] if "board" in page.session_state else Board()


def test_the_back_button_opens_the_tab_before(library: Library) -> None:
    library.save("mine", "", Board().pinned("one", FOUND))
    page = drawn(BOARD_PAGE, board="mine")
    page.session_state[pins.TABS_KEY] = "Arrays"
    again(page)
    assert value(page, "tab") == "arrays"
    again(page)
    del page.query_params["tab"]
    go_back(page)
    assert page.session_state[pins.TABS_KEY] == "Side by side"


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every comparison have the tab *Times*."""
    layout = layouts.parse({}).unwrap()
    candidates = Candidates({0: layout, 1: layout}, ())
    monkeypatch.setattr(Inspection, "timing_candidates", lambda *_: candidates)


def test_a_click_before_the_browser_has_the_url_is_no_link(library: Library, timed: None) -> None:
    library.save("mine", "", Board().pinned("one", FOUND))
    page = drawn(BOARD_PAGE, board="mine")
    page.session_state[pins.TABS_KEY] = "Times"
    again(page)
    del page.query_params["tab"]  # the browser still has the URL before
    page.session_state[pins.TABS_KEY] = "Arrays"
    again(page)
    assert page.session_state[pins.TABS_KEY] == "Arrays"
    assert value(page, "tab") == "arrays"


def test_no_url_on_its_way_to_the_browser_brings_an_earlier_tab_back(library: Library, timed: None) -> None:
    library.save("mine", "", Board().pinned("one", FOUND))
    page = drawn(BOARD_PAGE, board="mine")

    def clicked(tab: str, sent: str | None) -> None:
        """Click a tab while the browser still has the URL of the tab `sent`."""
        page.query_params.pop("tab", None)
        if sent is not None:
            page.query_params["tab"] = sent
        page.session_state[pins.TABS_KEY] = tab
        again(page)
        assert page.session_state[pins.TABS_KEY] == tab

    clicked("Arrays", None)
    clicked("Side by side", None)
    clicked("Times", "arrays")
    assert value(page, "tab") == "times"
    # Back to the first tab, whose URL the browser still has; that of another tab is on its way.
    again(page)
    clicked("Arrays", "times")
    clicked("Times", "times")
    clicked("Side by side", "arrays")
    # All have arrived: another URL is a link.
    again(page)
    page.query_params["tab"] = "arrays"
    go_back(page)
    assert page.session_state[pins.TABS_KEY] == "Arrays"


def test_a_board_is_kept_from_its_page(library: Library) -> None:
    page = AppTest.from_string(BOARD_PAGE, default_timeout=PATIENCE)
    page.session_state["board"] = Board().pinned("one", FOUND)
    again(page)
    page.button(key="keep_board:open").click()
    again(page)
    page.button(key="keep_board").click()
    again(page)
    (entry,) = library.entries()
    assert entry.is_board and entry.name == "one" and library.board("one").names == ("one",)
    assert value(page, "board") == "one"


def test_a_snapshot_of_the_library_has_a_link(library: Library) -> None:
    library.save("mine", "", FOUND)
    page = drawn(OPEN_PAGE, snapshot="mine", tab="memory", array=OTHER)
    assert page.session_state["opened_snapshot"] == ("mine", FOUND)
    assert page.session_state["opened_panel"] == "Memory"
    assert page.session_state[selection.KEY] == OTHER
    assert (value(page, "snapshot"), value(page, "tab")) == ("mine", "memory")
    page = drawn(OPEN_PAGE, snapshot="absent", x="y")
    assert "opened_snapshot" not in page.session_state
    assert "absent" in page.warning[0].value and "x" in page.warning[0].value


def test_all_plans_of_a_board_are_run_at_once(library: Library, service) -> None:
    first, second = (
        f"mesh.{mesh} axes.data layers.1 depth.8 batch.4 steps.1 rules.batch.data" for mesh in ("1", "2")
    )
    page = drawn(BOARD_PAGE, pin=[f"a~~{first}", f"b~~{second}"])
    assert {snapshot.source.kind for snapshot in pins_of(page).snapshots} == {"plan"}
    started = []

    def run(_, layout, planned):
        def start():
            started.append(layout.mesh_shape)
            raise refused

        return Request(layout.key(), start)

    refused = InvalidInput("not today")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(service), "run", run)
        page.button(key="board_compile_all").click()
        again(page)
    assert started == [(1,), (2,)]
    assert sum("not today" in error.value for error in page.error) == 2
