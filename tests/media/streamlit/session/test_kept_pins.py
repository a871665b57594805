"""What the server does with the pins that a browser sends."""

from __future__ import annotations

import json
import urllib.parse

import pytest
from streamlit.components.v2.bidi_component.main import _make_trigger_id
from streamlit.testing.v1 import AppTest

from inspector.compare import board as boards
from inspector.compare.board import MOST_PINS, Board
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.engine import Requester
from inspector.jobs.inspection import Inspection
from inspector.layout import layout_of
from inspector.media.streamlit.session import pins, user
from tests.media.streamlit.scripted_page import PATIENCE

pytestmark = pytest.mark.usefixtures("without_programs")

SCRIPT = """
import streamlit as st
from inspector.media.streamlit.session import pins
st.text(len(pins.board().pins))
pins.draw_kept()
"""
SIZES = "depth.64 layers.2 batch.8"
TWO = {"pin": [f"A~~{SIZES}", f"B~~mesh.8 {SIZES} was.cpu"], "baseline": ["B"]}


@pytest.fixture(autouse=True)
def _own_cache(service: Inspection, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache without the results of other tests, which would be restored instead of plans."""
    monkeypatch.setattr(service, "compiled", CompileCache(tmp_path / "compiled.sqlite3"))


def begin(**query: str) -> AppTest:
    page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE)
    page.query_params.update(query)
    return checked(page.run())


def checked(page: AppTest) -> AppTest:
    assert not page.exception, [error.value for error in page.exception]
    return page


def component(page: AppTest):
    (element,) = page.get("bidi_component")
    return element


def data(page: AppTest) -> dict:
    return json.loads(component(page).proto.json)


def send(page: AppTest, value: object) -> AppTest:
    """Run the script as the browser does when the component sends what it has kept."""
    states = page._tree.get_widget_states()
    trigger = _make_trigger_id(component(page).proto.id, "events")
    event = json.dumps([{"event": "kept", "value": value}])
    states.widgets.add(id=trigger, json_trigger_value=event)
    return checked(page._run(states))


def text(query: dict[str, list[str]]) -> str:
    return urllib.parse.urlencode(query, doseq=True)


def board_of(page: AppTest) -> Board:
    return page.session_state["board"] if "board" in page.session_state else Board()


def test_a_session_without_pins_asks_and_restores_the_layouts():
    page = begin()
    assert data(page)["text"] is None
    send(page, text(TWO))
    board = board_of(page)
    assert board.names == ("A", "B") and board.baseline == 1
    sent = boards.parse_link(TWO)
    assert [layout_of(snapshot) for snapshot in board.snapshots] == [pin.layout for pin in sent.pins]
    assert page.text[0].value == "2"  # drawn again with the pins
    kept = boards.parse_link(urllib.parse.parse_qs(data(page)["text"]))
    assert [(pin.name, pin.layout) for pin in kept.pins] == [(pin.name, pin.layout) for pin in sent.pins]
    assert kept.baseline == "B"


def test_without_pins_the_entry_is_removed_and_not_asked_for():
    page = send(begin(), text(TWO))
    page.session_state["board"] = Board()
    checked(page.run())
    assert data(page)["text"] == ""
    send(page, text(TWO))
    assert board_of(page).pins == ()


def test_what_is_sent_later_does_not_replace_pins():
    page = send(begin(), text({"pin": [f"A~~{SIZES}"]}))
    send(page, text(TWO))
    assert board_of(page).names == ("A",)


def test_pins_that_come_before_the_answer_follow_the_restored_ones():
    page = send(begin(), text({"pin": [f"A~~mesh.4 {SIZES}"]}))
    early = board_of(page)
    other = begin()
    other.session_state["board"] = early
    other.session_state["pins_to_restore"] = TWO
    checked(other.run())
    assert board_of(other).names == ("A", "B", "A (2)")
    assert board_of(other).snapshots[2] == early.snapshots[0]


@pytest.mark.parametrize("named", [{"pin": f"C~~{SIZES}"}, {"board": "kept"}])
def test_a_link_to_a_board_wins(named: dict[str, str]):
    page = send(begin(**named), text(TWO))
    assert board_of(page).pins == ()


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        {"pin": TWO["pin"]},
        "",
        "\ud800",
        "pin=%ff%00",
        "pin=A",
        f"pin=A~~mesh.0 {SIZES}",
        "pin=A~~model.no_such_model",
        "board=mine",
        "chip=v5e&pin=",
        "pin=é~~mesh.8",
        "&".join(["pin=A~~mesh.8"] * 100),
        text({"pin": [f"A~~{SIZES}", "x" * pins.MOST_CHARACTERS]}),
        "[" * 10_000,
    ],
)
def test_anything_else_is_dropped_without_a_word(value: object):
    page = send(begin(), value)
    assert board_of(page).pins == ()
    assert not page.warning and not page.error
    assert data(page)["text"] is None
    assert "chip" not in page.session_state or page.session_state["chip"] == "none"


def test_valid_pins_remain_when_others_are_not():
    hostile = "<img src=x onerror=alert(1)>"
    pins = [f"{hostile}~~{SIZES}", "B~~mesh.0", *[f"{n}~~{SIZES}" for n in range(MOST_PINS - 2)]]
    page = send(begin(), text({"pin": pins, "chip": ["v5e"], "tab": ["x"]}))
    assert board_of(page).names == (hostile, *map(str, range(MOST_PINS - 2)))
    assert "chip" not in page.session_state


def test_a_signed_in_user_has_an_entry_that_no_other_user_gets(monkeypatch: pytest.MonkeyPatch):
    keys = []
    for owner in ("ann@my.org", "ben@my.org", "ann@my.org"):
        who = Requester(owner, owner, "session", signed_in=True)
        monkeypatch.setattr(user, "current", lambda who=who: who)
        keys.append(data(begin())["key"])
    assert keys[0] == keys[2] != keys[1]
    assert not any("my.org" in key for key in keys)
    monkeypatch.undo()
    assert data(begin())["key"] not in keys


def test_the_problem_of_the_opened_link_stays_after_the_layouts_are_restored():
    page = begin()
    page.session_state["board_link_problems"] = ("no entry of this name",)
    send(page, text(TWO))
    assert board_of(page).names == ("A", "B")
    assert page.session_state["board_link_problems"] == ("no entry of this name",)
