"""Searches of several owners: turns, limits, who stops what, and sessions that end."""

from __future__ import annotations

import threading
from contextlib import closing, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from benchmarks.processes import PATIENCE, until
from inspector import layout as layouts
from inspector.compare.search.goal import Goal
from inspector.compare.search.progress import Progress
from inspector.compare.search.result import Counts
from inspector.core.errors import InvalidInput
from inspector.service import lanes
from inspector.service.engine import Limits, Pool, Requester
from inspector.service.engine.pool import Event
from inspector.service.search import registry
from inspector.service.search.registry import Searches, Watched

ANN, BEN = Requester("ann", "Ann", "tab 1", signed_in=True), Requester("session b", "b", "tab 2")
LAYOUT = layouts.parse({}).unwrap()
FOUND = SimpleNamespace(candidates=("a candidate",))


class FakeSearch:
    """A search that runs until it is stopped, or until the test ends it."""

    def __init__(self, *_: object, **__: object) -> None:
        self.executor = self.on_progress = None
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

    def progress(self) -> Progress:
        return Progress("partition", 1, 4, Counts(), None, 0)

    def result(self) -> SimpleNamespace:
        return FOUND


def request(name: str) -> SimpleNamespace:
    space = SimpleNamespace(layout=LAYOUT)
    fields = {"chip": None, "budget": 0, "objective": "time", "goal": Goal()}
    return SimpleNamespace(key=lambda: name, space=space, **fields)


@dataclass
class Server:
    """The searches of a server, its pool, and what the audit log gets."""

    pool: Pool
    searches: Searches
    events: list[Event]

    def start(self, name: str, requester: Requester) -> Watched:
        return self.searches.start(request(name), requester)

    def places(self, *watched: Watched) -> list[int | None]:
        return [self.searches.listed(one).status.place for one in watched]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "Search", FakeSearch)
    events = []
    with closing(lanes.pool(limits=Limits(queued=2), on_event=events.append)) as pool:
        searches = Searches(pool, lambda: nullcontext(None))
        yield Server(pool, searches, events)


def test_owners_take_turns_and_have_limits(server: Server):
    first, second, third = (server.start(name, ANN) for name in "123")
    other = server.start("4", BEN)
    assert server.places(first, second, third, other) == [None, 2, 3, 1]
    with pytest.raises(InvalidInput, match="2 searches of yours"):
        server.start("5", ANN)
    server.searches.leave(first, "ann")
    until(lambda: server.places(other) == [None])
    assert not first.running and first.stopped and first.result() == FOUND
    assert server.searches.get(request("1")) is first, "what it found is kept"
    assert [(event.event, event.requester.owner) for event in server.events] == [
        ("start", "ann"),
        ("refuse", "ann"),
        ("cancel", "ann"),
        ("start", BEN.owner),
    ]


def test_a_search_stops_when_its_last_owner_leaves(server: Server):
    shared = server.start("1", ANN)
    assert server.start("1", BEN) is shared
    until(lambda: server.searches.listed(shared).status.progress == {"done": 1, "of": 4})
    (listed,) = server.pool.jobs()
    assert (listed.kind, listed.lane) == ("search", lanes.SEARCHES)
    assert listed.status.phase == "partition"
    with pytest.raises(InvalidInput, match="Ann and b"):
        server.pool.cancel(listed.number, "another")
    server.pool.cancel(listed.number, "ann")
    assert shared.running and not shared.stopped
    server.pool.cancel(listed.number, BEN.owner)
    until(lambda: not shared.running)
    with pytest.raises(InvalidInput, match="has ended"):
        server.pool.cancel(listed.number, BEN.owner)
    assert server.start("1", ANN) is not shared, "a stopped search begins again"


def test_a_search_goes_on_when_its_session_ends_and_anyone_can_stop_it(server: Server):
    anns, bens = server.start("1", ANN), server.start("2", BEN)
    assert server.pool.sessions() == {"tab 2"}
    server.pool.leave("tab 1")
    server.pool.leave("tab 2")
    assert [job.belongs_to("another") for job in server.pool.jobs()] == [False, True]
    assert server.start("3", BEN).running and server.pool.sessions() == {"tab 2"}
    server.searches.leave(bens, "another")
    assert anns.running and not bens.running


def test_no_search_starts_at_the_end_of_a_server(server: Server):
    running, waiting = server.start("1", ANN), server.start("2", ANN)
    assert not server.pool.drain(0.05)
    assert running.running and not waiting.running and waiting.stopped
    with pytest.raises(InvalidInput, match="starts no new searches"):
        server.start("3", BEN)
    running.search.end()
    assert server.pool.drain(PATIENCE)
    assert not running.running and running.result() == FOUND
    assert (server.events[-1].event, server.events[-1].outcome) == ("end", "done")


def test_a_search_that_fails_says_why_and_the_next_one_begins(server: Server):
    failing, following = server.start("1", ANN), server.start("2", ANN)
    failing.search.end(ValueError("a bug"))
    until(lambda: server.places(following) == [None])
    assert not failing.running and "a bug" in failing.error
    following.search.end(InvalidInput("no compiler"))
    until(lambda: not following.running)
    assert following.error == "no compiler"


def test_the_end_of_a_server_stops_its_searches(server: Server):
    running, waiting = server.start("1", ANN), server.start("2", ANN)
    server.pool.close()
    until(lambda: not running.running)
    assert running.stopped and not waiting.running
