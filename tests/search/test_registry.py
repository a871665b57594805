"""Searches of several owners: their order and number, and who stops what."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from benchmarks.processes import PATIENCE, until
from inspector import layout as layouts
from inspector.jobs import lanes
from inspector.jobs.engine import Requester
from inspector.jobs.engine.pool import Event
from inspector.search import registry
from inspector.search.order import Goal
from inspector.search.registry import Searches, Watched
from inspector.search.result import Counts, SearchProgress
from inspector.text.errors import InvalidInput

ANN, BEN = Requester("ann", "Ann", "tab 1", signed_in=True), Requester("session b", "b", "tab 2")
LAYOUT = layouts.parse({}).unwrap()
FOUND = SimpleNamespace(candidates=("a candidate",))


class FakeSearch:
    """A search that runs until it is stopped, or until the test ends it."""

    def __init__(self, *_: object, **__: object) -> None:
        self.executor = None
        self.stopped = False
        self._error: Exception | None = None
        self._end = threading.Event()

    def run(self) -> SimpleNamespace:
        assert self._end.wait(PATIENCE)
        if self._error is not None:
            raise self._error
        return FOUND

    def stop(self) -> None:
        self.stopped = True
        self._end.set()

    def end(self, error: Exception | None = None) -> None:
        self._error = error
        self._end.set()

    def progress(self) -> SearchProgress:
        return SearchProgress("partition", 1, 4, Counts(), None, 0)

    def result(self) -> SimpleNamespace:
        return FOUND


def request(name: str) -> SimpleNamespace:
    space = SimpleNamespace(layout=LAYOUT)
    fields = {"chip": None, "budget": 0, "objective": "time", "goal": Goal()}
    return SimpleNamespace(key=lambda: name, space=space, **fields)


@dataclass
class Server:
    """The searches of a server, and what the audit log gets."""

    searches: Searches
    events: list[Event]

    def start(self, name: str, requester: Requester) -> Watched:
        return self.searches.start(request(name), requester)

    def places(self, *watched: Watched) -> list[int]:
        return list(map(self.searches.place, watched))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "Search", FakeSearch)
    monkeypatch.setattr(lanes, "MOST_JOBS", 3)
    events: list[Event] = []
    searches = Searches(lambda: nullcontext(None), events.append)
    yield Server(searches, events)
    for owner in (ANN, BEN):
        for watched in searches.of(owner.owner):
            watched.stop()


def test_searches_run_one_after_another_and_an_owner_has_a_bound(server: Server):
    first, second, third = (server.start(name, ANN) for name in "123")
    other = server.start("4", BEN)
    assert server.places(first, second, third, other) == [0, 1, 2, 3]
    with pytest.raises(InvalidInput, match="3 searches of yours"):
        server.start("5", ANN)
    assert server.start("3", ANN) is third, "an equal request needs no other place"
    until(lambda: len(server.events) == 1)  # a search that has not begun would leave the queue without a word
    server.searches.leave(first, "ann")
    until(lambda: server.places(second, other) == [0, 2])
    assert not first.running and first.stopped and first.result() == FOUND
    assert server.searches.get(request("1")) is first, "what it found is kept"
    until(lambda: len(server.events) == 3)  # the second one has begun, so it has an end
    server.searches.leave(second, "ann")
    third.search.end()
    until(lambda: server.places(other) == [0] and len(server.events) == 7)
    assert [(event.event, event.requester.owner, event.outcome) for event in server.events] == [
        *(("start", "ann", None), ("end", "ann", "cancelled")),
        *(("start", "ann", None), ("end", "ann", "cancelled")),
        *(("start", "ann", None), ("end", "ann", "done")),
        ("start", BEN.owner, None),
    ]
    assert {event.kind for event in server.events} == {"search"}


def test_a_search_stops_when_its_last_owner_leaves(server: Server):
    shared = server.start("1", ANN)
    assert server.start("1", BEN) is shared
    server.searches.leave(shared, "another")
    server.searches.leave(shared, "ann")
    assert shared.running and not shared.stopped
    server.searches.leave(shared, BEN.owner)
    until(lambda: not shared.running)
    assert shared in server.searches.of("ann"), "the page lists what ended"
    assert server.start("1", ANN) is not shared, "a stopped search begins again"


def test_a_search_that_waits_is_stopped_before_it_begins(server: Server):
    running, waiting = server.start("1", ANN), server.start("2", ANN)
    server.searches.leave(waiting, "ann")
    assert running.running and not waiting.running and waiting.elapsed == 0
    running.search.end()
    until(lambda: not running.running and server.places(running, waiting) == [0, 0])
    assert [event.event for event in server.events] == ["start", "end"]


def test_a_search_that_fails_says_why_and_the_next_one_begins(server: Server):
    failing, following = server.start("1", ANN), server.start("2", ANN)
    failing.search.end(ValueError("a bug"))
    until(lambda: server.places(following) == [0])
    assert not failing.running and "a bug" in failing.error
    following.search.end(InvalidInput("no compiler"))
    until(lambda: not following.running)
    assert following.error == "no compiler"
