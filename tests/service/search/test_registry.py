"""Searches of several owners: turns, limits, who stops what, and sessions that end."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from benchmarks.processes import PATIENCE, until
from inspector import layout as layouts
from inspector.compare.search.progress import Progress
from inspector.compare.search.result import Counts
from inspector.core.errors import InvalidInput
from inspector.service.engine import Limits, Requester
from inspector.service.search import registry
from inspector.service.search.registry import Searches

ANN, BEN = Requester("ann", "Ann", "tab 1", signed_in=True), Requester("session b", "b", "tab 2")
LAYOUT = layouts.parse({}).unwrap()


class FakeSearch:
    """A search that runs until it is stopped."""

    def __init__(self, *_: object, **__: object) -> None:
        self.executor = None
        self._stop = threading.Event()

    def run(self) -> str:
        assert self._stop.wait(PATIENCE)
        return "found"

    def stop(self) -> None:
        self._stop.set()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def progress(self) -> Progress:
        return Progress("propagate", 0, 0, Counts(), None, 0)

    def result(self) -> str:
        return "found"


def request(name: str) -> SimpleNamespace:
    space = SimpleNamespace(layout=LAYOUT)
    fields = {"chip": None, "budget": 0, "objective": "time", "sensitivity": False}
    return SimpleNamespace(key=lambda: name, space=space, **fields)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "Search", FakeSearch)
    made = Searches(lambda: nullcontext(None), Limits(queued=2))
    yield made
    for one in made._active():
        one.stop()


def test_owners_take_turns_and_have_limits(searches: Searches):
    first, second, third = (searches.start(request(name), ANN) for name in "123")
    other = searches.start(request("4"), BEN)
    assert [searches.place(one) for one in (first, second, third, other)] == [None, 2, 3, 1]
    with pytest.raises(InvalidInput, match="2 searches of yours"):
        searches.start(request("5"), ANN)
    searches.leave(first, "ann")
    until(lambda: searches.place(other) is None)
    assert not first.running and first.result() == "found"


def test_a_search_stops_when_its_last_owner_leaves(searches: Searches):
    shared = searches.start(request("1"), ANN)
    assert searches.start(request("1"), BEN) is shared
    (listed,) = searches.listed()
    with pytest.raises(InvalidInput, match="stopped only by"):
        searches.cancel(listed.number, "another")
    searches.cancel(listed.number, "ann")
    assert shared.running and not shared.stopped
    searches.cancel(listed.number, BEN.owner)
    until(lambda: not shared.running)
    with pytest.raises(InvalidInput, match="has ended"):
        searches.cancel(listed.number, BEN.owner)


def test_a_search_goes_on_when_its_session_ends_and_anyone_can_stop_it(searches: Searches):
    anns, bens = searches.start(request("1"), ANN), searches.start(request("2"), BEN)
    assert searches.sessions() == {"tab 2"}
    searches.forget("tab 1")
    searches.forget("tab 2")
    assert [one.belongs_to("another") for one in searches.listed()] == [False, True]
    searches.leave(bens, "another")
    assert anns.running and not bens.running


def test_no_search_starts_at_the_end_of_a_server(searches: Searches):
    running, waiting = searches.start(request("1"), ANN), searches.start(request("2"), ANN)
    assert not searches.drain(0.05)
    assert running.running and not waiting.running
    with pytest.raises(InvalidInput, match="shutting down"):
        searches.start(request("3"), BEN)
    running.stop()
    assert searches.drain(PATIENCE)
