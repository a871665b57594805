"""Searches on emulated devices: the result against all candidates, stop and continue, lost workers."""

from __future__ import annotations

import json
import os
import signal
import statistics
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future

import pytest
from jsonschema import Draft202012Validator

from benchmarks.processes import until
from inspector import layout as layouts
from inspector.files import strict_json
from inspector.jobs import compile_cache
from inspector.jobs.compile_cache import CompileCache
from inspector.machines.hardware import CHIPS
from inspector.search import result as results
from inspector.search import run, schema, tasks
from inspector.search.answer import answer_text
from inspector.search.order import goal_of
from inspector.search.result import SearchResult
from inspector.search.run import Search
from inspector.search.space import Space, space_of
from inspector.search.tasks import snapshots_of
from inspector.text.errors import InvalidInput
from inspector.text.formatting import seconds_text

CHIP = CHIPS["v5e"]


@pytest.fixture(scope="module", autouse=True)
def _workers_end() -> Iterator[None]:
    yield
    tasks.close()


@pytest.fixture
def space(service) -> Space:
    """A space of eight devices, whose propagations take seconds."""
    layout = layouts.parse({"mesh": "8", "axes": "data", "depth": "64", "steps": "2"}).unwrap()
    return space_of(layout, service.state(layout).answer())


@pytest.fixture
def store(tmp_path) -> CompileCache:
    return CompileCache(tmp_path / "search.sqlite3")


def search(
    space: Space, store: CompileCache, workers: int = 2, executor: Executor | None = None, **options
) -> SearchResult:
    with tasks.local(workers) as local:
        options = {"budget": 0, "chip": CHIP} | options
        return Search(space, executor=executor or local, store=store, workers=workers, **options).run()


def layouts_of(result: SearchResult) -> list[object]:
    return [(candidate.layout, candidate.seconds, candidate.stage) for candidate in result.candidates]


class NoTasks(Executor):
    def submit(self, function: Callable, /, *arguments, **settings) -> Future:
        raise AssertionError("a stored answer was computed again")


def test_the_best_candidates_come_first_and_the_others_have_bounds(space, store):
    result = search(space, store)
    valid = [candidate for candidate in result.candidates if candidate.stage == "propagated"]
    seconds = [one.seconds for one in valid]
    assert seconds == sorted(seconds)
    assert all(one.fits == one.assessment.memory.fits for one in valid)
    assert result.best_candidate == next(one for one in valid if one.fits)
    counts = result.counts
    assert counts.partitioned == len(valid) and counts.compiled == 0
    assert counts.partitioned + counts.excluded + counts.rejected == len(result.candidates)
    assert counts.considered == len(result.candidates)
    last = seconds[result.listed - 1]
    assert all(one.at_least <= one.seconds for one in valid if one.at_least)
    for candidate in result.candidates:
        if candidate.stage == "planned":
            assert candidate.at_least > last and candidate.seconds is None and candidate.state_bytes
    assert sum(candidate.current for candidate in result.candidates) == 1
    # Equal up to the names of mesh axes, candidates are listed once.
    assert len({json.dumps(candidate.layout) for candidate in result.candidates}) == len(result.candidates)
    plain = results.to_json(result)
    Draft202012Validator(json.loads(schema.text())).validate(plain)
    assert results.from_plain(json.loads(json.dumps(plain)), "it") == result


@pytest.mark.nightly
@pytest.mark.parametrize("objective", ["time", "memory"])
def test_partitioning_all_candidates_gives_the_same_best_ones(service, store, monkeypatch, objective):
    monkeypatch.setattr(run, "LISTED", 5)
    # Of a small model, bounds exclude nothing, because latency is no part of them.
    layout = layouts.parse({"mesh": "8", "axes": "data", "depth": "4096", "batch": "1024"}).unwrap()
    space = space_of(layout, service.state(layout).answer())
    result = search(space, store, objective=objective)
    every = search(space, store, objective=objective, exhaustive=True)
    assert every.counts.excluded == 0 and every.counts.partitioned > result.counts.partitioned
    assert layouts_of(result)[: result.listed] == layouts_of(every)[: result.listed]
    assert [candidate.fits for candidate in result.candidates[:5]] == [
        candidate.fits for candidate in every.candidates[:5]
    ]


@pytest.mark.nightly
def test_estimates_from_one_and_two_layers_exclude_none_of_the_best(service, store, monkeypatch):
    monkeypatch.setattr(run, "LISTED", 5)
    fields = {
        "model": "transformer", "layers": "5", "embed": "64", "mlp": "128", "heads": "4", "kv_heads": "2",
        "head_dim": "16", "vocab": "256", "seq": "32", "target": "tpu:v5e:2x2", "mesh": "4", "axes": "fsdp",
        "rules": "batch=fsdp,embed=fsdp",
    }  # fmt: skip
    layout = layouts.parse(fields).unwrap()
    space = space_of(layout, service.state(layout).answer())
    result = search(space, store)
    every = search(space, store, exhaustive=True)
    assert result.counts.estimated > every.counts.estimated == 0
    assert layouts_of(result)[: result.listed] == layouts_of(every)[: result.listed]


@pytest.mark.nightly
def test_one_and_two_workers_give_the_same_result_and_a_second_search_reads_it(space, store, tmp_path):
    result = search(space, CompileCache(tmp_path / "another.sqlite3"), workers=1)
    two = search(space, store, workers=2)
    assert layouts_of(result) == layouts_of(two)
    again = search(space, store, executor=NoTasks())
    assert layouts_of(again) == layouts_of(two)


def test_single_rules_of_the_best_candidate_are_changed(service, store):
    """All eight devices are locked to data parallelism, whose state is smaller if rules shard it too."""
    layout = layouts.parse({"mesh": "8", "axes": "data", "depth": "64"}).unwrap()
    space = space_of(layout, service.state(layout).answer(), locks=["data=8"])
    before = search(space, store, objective="memory", improve=False)
    after = search(space, store, objective="memory")
    first, best = before.candidates[0], after.candidates[0]
    assert best.peak_bytes < first.peak_bytes and best.state_bytes < first.state_bytes
    assert best.layout["mesh"] == first.layout["mesh"]
    # Changes that are not better are not listed.
    known = {json.dumps(candidate.layout) for candidate in before.candidates}
    added = [candidate for candidate in after.candidates if json.dumps(candidate.layout) not in known]
    assert added and all(candidate.peak_bytes < first.peak_bytes for candidate in added)
    kept = space_of(layout, service.state(layout).answer(), locks=["data=8", "rules"])
    assert not kept.near(layout)


@pytest.mark.nightly
def test_compiled_candidates_are_measured_and_the_best_is_the_fastest(service, store, monkeypatch):
    layout = layouts.parse({"mesh": "2", "axes": "data", "depth": "32", "layers": "1", "steps": "2"}).unwrap()
    space = space_of(layout, service.state(layout).answer())
    result = search(space, store, chip=None, budget=2)
    compiled = [candidate for candidate in result.candidates if candidate.stage == "compiled"]
    assert 1 <= len(compiled) <= 2 and any(candidate.current for candidate in compiled)
    fastest = result.best_candidate
    assert fastest is not None and fastest.measured == min(candidate.measured for candidate in compiled)
    assert fastest.peak_bytes
    # A comparison has the runs of the search instead of plans.
    best, lost = snapshots_of(result, service)
    assert lost == 0
    named = dict(best)
    medians = {
        statistics.median(snapshot.program("train_step").seconds.steps)
        for snapshot in named.values()
        if not snapshot.programs[0].before_compile
    }
    assert {candidate.measured for candidate in compiled} == medians
    assert compile_cache.measured(layout, fastest.measured + 1) is None
    # What the cache has not kept is planned again, and counted.
    monkeypatch.setattr(compile_cache, "measured", lambda *_: None)
    planned, lost = snapshots_of(result, service)
    assert lost == len(compiled) and {snapshot.source.kind for _, snapshot in planned} == {"plan"}


@pytest.mark.nightly
def test_a_stopped_search_keeps_what_it_found_and_continues(space, store):
    began = threading.Event()

    def progress(state) -> None:
        if state.done:
            began.set()

    with tasks.local() as local:
        running = Search(space, CHIP, local, 0, store=store, on_progress=progress)
        thread = threading.Thread(target=running.run)
        thread.start()
        assert began.wait(60)
        running.stop()
        thread.join(60)
        assert not thread.is_alive()
    until(lambda: not any(worker.busy for worker in tasks.workers()), "the end of its jobs")
    kept = running.result()
    assert len(kept.candidates) > 0 and "Stopped" in (kept.message or "")
    whole = search(space, store)
    assert len(whole.candidates) >= len(kept.candidates)


@pytest.mark.nightly
def test_a_killed_worker_does_not_change_the_result(space, store, tmp_path):
    expected = search(space, CompileCache(tmp_path / "another.sqlite3"))
    killed = []

    def kill(state) -> None:
        if len(killed) < 3:
            for worker in tasks.workers():
                if worker.busy and worker.pid not in killed:
                    os.kill(worker.pid, signal.SIGKILL)
                    killed.append(worker.pid)
                    break

    with tasks.local(2) as local:
        search_result = Search(space, CHIP, local, 0, store=store, on_progress=kill, workers=2).run()
    assert killed
    assert layouts_of(search_result) == layouts_of(expected)


@pytest.mark.nightly
def test_a_lost_task_ends_the_search_with_a_sentence_and_the_next_one_continues(space, store):
    class Broken(tasks.LocalExecutor):
        count = 0

        def submit(self, function, /, *arguments, **settings):
            Broken.count += 1
            if Broken.count > 5:
                lost: Future = Future()
                lost.set_exception(ConnectionError("gone"))
                return lost
            return super().submit(function, *arguments, **settings)

    with Broken(2) as threads, pytest.raises(InvalidInput, match="continues"):
        Search(space, CHIP, threads, 0, store=store).run()
    assert Broken.count > 6  # it was tried again
    kept = store.usage().count
    assert kept > 0
    assert search(space, store).counts.partitioned


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"format": "sharding-snapshot"}, "format"),
        ({"version": 2}, "version 2"),
        ({"version": "1"}, "version"),
        ({"best": 7}, "best"),
        ({"candidates": [{}]}, "candidates"),
        ({"counts": {"considered": -1}}, "counts"),
    ],
)
def test_bad_results_are_refused(change, named):
    plain = {
        "format": "sharding-search", "version": 1, "target": "cpu", "chip": None, "created": "now",
        "counts": {"considered": 0, "propagated": 0, "excluded": 0, "compiled": 0, "rejected": 0},
        "candidates": [], "best": None,
    }  # fmt: skip
    assert results.from_plain(dict(plain), "it").target == "cpu"
    with pytest.raises(InvalidInput, match=named):
        results.from_plain(plain | change, "it")


def test_the_schema_file_is_the_generated_one():
    """If this fails, run `python -m inspector.search.schema`."""
    assert results.SCHEMA_PATH.read_text(encoding="utf-8") == schema.text()
    assert strict_json.parse(schema.text(), "it")


def test_a_decode_step_and_its_prefill_are_searched_together(service, store):
    """Weights and limits change the order, and what the best layout costs in the other program is known."""
    sizes = {"layers": "1", "embed": "256", "mlp": "1024", "vocab": "1024", "head_dim": "128", "scan": "true"}
    served = {"batch": "64", "cache": "1024", "seq": "512", "prefill_batch": "8", "dtype": "bfloat16"}
    fields = {"model": "transformer", "mesh": "4", "axes": "tensor", "heads": "4", "kv_heads": "4"}
    layout = layouts.parse(fields | sizes | served).unwrap()
    space = space_of(layout, service.state(layout).answer(), ["rules"])
    alone = search(space, store, goal=goal_of(layout, CHIP))
    best = alone.best_candidate
    assert best is not None and alone.weights == {"decode": 1.0, "prefill": 0.0}
    decode, prefill = best.programs
    assert (decode.name, prefill.name) == ("decode", "prefill")
    assert best.seconds == decode.seconds < prefill.seconds
    assert best.tokens_per_second == pytest.approx(64 / decode.seconds)
    # A program that is searched alone has the same time.
    assert search(space, store).best_candidate.seconds == decode.seconds

    both = search(space, store, goal=goal_of(layout, CHIP, "prefill=1,decode=4"))
    (found,) = [candidate for candidate in both.candidates if candidate.layout == best.layout]
    assert found.seconds == pytest.approx(8 * prefill.seconds + 4 * decode.seconds)
    assert sum(part.seconds for part in found.assessment.step.parts) == pytest.approx(found.seconds)

    assert seconds_text(prefill.seconds) in answer_text(alone)

    none = search(space, store, goal=goal_of(layout, CHIP, None, "prefill=1us"))
    assert none.best is None and none.message and "prefill" in none.message
    assert results.from_plain(json.loads(json.dumps(results.to_json(both))), "it") == both
