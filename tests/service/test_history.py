"""The history: figures, owners, bounds, deletion, and two processes on one file."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from inspector import layout as layouts
from inspector.assessment import assess
from inspector.compare.board import Board
from inspector.compare.search.evaluated import of_assessment
from inspector.compare.search.result import Counts, SearchResult, candidate
from inspector.core.assessment import Assessment, FindingCounts, MemoryNeed, Step, Traffic
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Program, Seconds, Source
from inspector.layout import Layout
from inspector.service import history as histories
from inspector.service.engine import LOCAL, Requester
from inspector.service.history import History, beyond_size, older_than
from tests.figures import samples
from tests.paths import ROOT

LAYOUT = layouts.parse({"mesh": "4x2", "layers": "2", "depth": "64"}).unwrap()
TPU = layouts.parse({"mesh": "4x2", "target": "tpu:v5e:2x4"}).unwrap()
ANN = Requester("issuer ann", "ann@example.org", "s1", signed_in=True)
BOB = Requester("issuer bob", "bob@example.org", "s2", signed_in=True)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "saved.sqlite3")


def run(layout: Layout = LAYOUT):
    step = Program("train_step", stage="run", seconds=Seconds(steps=(0.25, 0.5, 1.0)))
    return dataclasses.replace(
        samples.snapshot(), source=Source("cpu", "cpu", "2026-01-01T00:00:00+00:00"),
        layout=layout.to_json(), programs=(step,),
    )  # fmt: skip


def test_a_run_has_its_figures_and_its_snapshot(history: History) -> None:
    result = run()
    history.record_answer(LAYOUT, result, LOCAL)
    (entry,) = history.entries()
    assert (entry.kind, entry.seconds, entry.basis) == ("run", 0.5, "measured")
    assert layouts.from_json(entry.parameters["layout"]) == LAYOUT
    assert history.run(entry.id) == result == history.last_run(LAYOUT)
    assert history.last_run(TPU) is None and entry.bytes > 0


def test_a_compile_is_not_stored_twice(history: History) -> None:
    history.record_answer(TPU, run(TPU), LOCAL)
    (entry,) = history.entries()
    assert entry.kind == "compile" and history.run(entry.id) is None
    assert entry.bytes < 1_000


def found() -> SearchResult:
    """The result of a search with one compiled candidate."""
    own = Assessment(
        "v5e",
        8,
        "compiled",
        "train_step",
        Step(0.5, 0.4, 0.6, "predicted"),
        MemoryNeed(10, 10, 10, 100, True, "train_step"),
        Traffic(30, {"data": 30}),
        5,
        FindingCounts(),
    )
    cost = of_assessment(own, "compiled", 7)
    result = candidate(TPU, cost, cost, pareto=True, current=True)
    return SearchResult("tpu:v5e:2x4", "v5e", "2026-01-01", Counts(1, 1, 1, 1), (result,), 0)


def test_a_search_has_its_result(history: History) -> None:
    history.record_search(TPU, found(), LOCAL)
    history.record_answer(LAYOUT, run(), LOCAL)
    ran, searched = history.entries()
    assert (searched.kind, searched.seconds, searched.peak_bytes) == ("search", 0.5, 10)
    assert searched.assessment == found().candidates[0].assessment
    assert ran.assessment == assess(run())
    assert history.search(searched.id) == found()
    assert history.run(searched.id) is None is history.search(ran.id)


def test_the_same_comparison_is_one_entry(history: History) -> None:
    board = Board().pinned("one", run()).pinned("two", run(TPU))
    for _ in range(2):
        history.record_comparison(board, LOCAL)
    history.record_comparison(board.without(0), LOCAL)
    (entry,) = history.entries()
    assert entry.title == "one and two" and len(entry.parameters["board"]["pin"]) == 2
    history.record_comparison(board, ANN)
    assert len(history.entries()) == 2


def test_a_board_that_grows_is_one_entry_unless_the_smaller_one_is_shared(history: History) -> None:
    two = Board().pinned("one", run()).pinned("two", run(TPU))
    three = two.renamed(0, "first").pinned("three", run())
    smaller = history.record_comparison(two, ANN)
    assert history.record_comparison(three, BOB, smaller) is not None  # not an entry of this user
    assert len(history.entries()) == 2
    grown = history.record_comparison(three, ANN, smaller)
    assert {entry.id for entry in history.entries() if entry.owner == ANN.name} == {grown}
    History(history.path, ANN).share(grown, True)
    assert history.record_comparison(three.compared_to(1), ANN, grown) != grown
    assert grown in {entry.id for entry in history.entries()}


def test_users_see_their_own_and_shared_entries(history: History) -> None:
    history.record_answer(LAYOUT, run(), ANN)
    (entry,) = History(history.path, ANN).entries()
    others = [History(history.path, BOB), History(history.path, Requester("session x", "x", "x"))]
    for other in others:
        assert other.entries() == () and other.last_run(LAYOUT) is None
        with pytest.raises(InvalidInput):
            other.run(entry.id)
        with pytest.raises(InvalidInput):
            other.share(entry.id, True)
        assert other.delete([entry]) == 0
    History(history.path, ANN).share(entry.id, True)
    for other in others:
        (seen,) = other.entries()
        assert (seen.owner, seen.changeable) == (ANN.name, False)
        assert other.run(entry.id) is not None
        assert other.delete([seen]) == 0 and older_than([seen], 0) == beyond_size([seen], 0) == ()
    assert History(history.path, ANN).delete([entry]) == 1 and history.entries() == ()


def test_the_oldest_entries_of_an_owner_make_room(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MOST_ENTRIES_OF_OWNER", 3)
    history.record_answer(LAYOUT, run(), BOB)
    for _ in range(5):
        history.record_answer(LAYOUT, run(), ANN)
    owners = [entry.owner for entry in history.entries()]
    assert owners.count(ANN.name) == 3 and owners.count(BOB.name) == 1
    size = history.entries()[0].bytes
    monkeypatch.setattr(histories, "MOST_BYTES", 2 * size)
    history.record_answer(LAYOUT, run(), ANN)
    assert [entry.owner for entry in history.entries()] == [ANN.name] * 2


def test_deletion_by_age_and_size(history: History) -> None:
    for _ in range(3):
        history.record_answer(LAYOUT, run(), LOCAL)
    newest, middle, oldest = history.entries()
    assert older_than(history.entries(), 1) == ()
    old = dataclasses.replace(oldest, time="2020-01-01T00:00:00.000+00:00")
    assert older_than([newest, middle, old], 30) == (old,)
    assert beyond_size([newest, middle, oldest], newest.bytes + middle.bytes) == (oldest,)
    assert history.delete(beyond_size(history.entries(), 0)) == 3
    assert history.entries() == ()


def test_two_processes_lose_nothing(history: History) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.service.test_history import *\n"
        "for _ in range(20): History(Path(sys.argv[1])).record_answer(TPU, run(TPU), LOCAL)"
    )
    command = [sys.executable, "-c", code, str(history.path)]
    writers = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert len(history.entries()) == 40


def test_an_unusable_file_stops_no_run(tmp_path: Path) -> None:
    path = tmp_path / "saved.sqlite3"
    path.write_bytes(b"something else" * 100)
    history = History(path)
    history.record_answer(LAYOUT, run(), LOCAL)
    with pytest.raises(InvalidInput, match="cannot be used"):
        history.entries()
    assert path.read_bytes().startswith(b"something else")
