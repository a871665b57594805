"""The History page: what it lists, reopens and deletes."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inspector.compare.board import Board
from inspector.media.streamlit.page import page_switch
from inspector.service.engine import LOCAL
from inspector.service.history import History
from tests.media.streamlit.scripted_page import PATIENCE, LonePage
from tests.service.test_history import LAYOUT, TPU, found, run

SCRIPT = """
from inspector.media.streamlit.pages import history_page
history_page.show()
"""

SEARCH = """
from inspector.media.streamlit.pages import search_page
search_page.show()
"""


@pytest.fixture
def history(user_files: Path) -> History:
    return History()


def opened(**state: str) -> LonePage:
    return LonePage(AppTest.from_string(SCRIPT, default_timeout=PATIENCE), **state)


def test_an_empty_history(history: History) -> None:
    assert len(opened().test.info) == 1


def test_a_run_is_reopened_with_its_answer(history: History) -> None:
    history.record_answer(LAYOUT, run(), LOCAL)
    page = opened()
    (listed,) = page.test.dataframe
    assert list(listed.value["Kind"]) == ["Run"] and "500" in listed.value["Step"][0]
    page.test.button(key="history_open").click()
    page.run()
    state = page.test.session_state
    assert state["went_to"] == page_switch.LAYOUT and state["last_layout"] == LAYOUT
    assert state["finished_runs"][LAYOUT.key()] == run()


def test_a_search_is_reopened_with_its_result(history: History) -> None:
    history.record_search(TPU, found(), LOCAL)
    page = opened()
    page.test.button(key="history_open").click()
    page.run()
    state = page.test.session_state
    assert state["went_to"] == page_switch.SEARCH and state["last_layout"] == TPU
    kept = {key: state[key] for key in ("last_layout", "search_reopened")}
    page = LonePage(AppTest.from_string(SEARCH, default_timeout=PATIENCE), **kept)
    (listed,) = (dataframe.value for dataframe in page.test.dataframe if len(dataframe.value) == 1)
    assert "500" in listed["Step"][0]
    page.test.button(key="search_new").click()
    page.run()
    assert "search_reopened" not in page.test.session_state
    assert page.test.button(key="start_search").label == "Start search"


@pytest.mark.parametrize("kind", ["run", "search", "candidate"])
def test_an_entry_with_a_layout_that_is_not_valid_opens_as_a_sentence(history: History, kind: str) -> None:
    if kind == "run":
        history.record_answer(LAYOUT, run(), LOCAL)
    else:
        result = found()
        wrong = replace(result.candidates[0], layout={"model": "no such model"})
        candidates = (wrong,) if kind == "candidate" else result.candidates
        history.record_search(TPU, replace(result, candidates=candidates), LOCAL)
    if kind != "candidate":
        with contextlib.closing(sqlite3.connect(history.path, isolation_level=None)) as database:
            database.execute("""UPDATE history SET parameters = '{"layout": {"model": 7}}'""")
    page = opened()
    page.test.button(key="history_open").click()
    page.run()
    (error,) = page.test.error
    assert "model" in error.value and not page.test.exception
    assert "went_to" not in page.test.session_state


def test_a_comparison_opens_the_board(history: History) -> None:
    history.record_comparison(Board().pinned("one", run()).pinned("two", run(TPU)), LOCAL)
    page = opened()
    page.test.button(key="history_open").click()
    page.run()
    state = page.test.session_state
    assert state["went_to"] == page_switch.BOARD
    assert [text.partition("~~")[0] for text in state["reopened_board"]["pin"]] == ["one", "two"]


def test_entries_are_deleted_by_size_with_their_number_said_before(history: History) -> None:
    for _ in range(2):
        history.record_answer(LAYOUT, run(), LOCAL)
    page = opened()
    assert page.test.button(key="history_delete_age").disabled
    page.test.number_input(key="history_size").set_value(0)
    page.run()
    assert "2 entries" in page.test.button(key="history_delete_size").label
    page.test.button(key="history_delete_size").click()
    page.run()
    assert history.entries() == ()
