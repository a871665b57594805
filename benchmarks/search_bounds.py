"""A search that partitions what can be among the best, against one that partitions all candidates.

For eight problems, prints the candidates that each partitions, its seconds, and whether both give the same
best candidates in the same order. Takes an hour, so it runs only by its name.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from benchmarks.candidates import FIELDS as LLAMA
from benchmarks.search import PROBLEMS
from inspector import layout as layouts
from inspector.compare.search.result import SearchResult
from inspector.compare.search.space import Space, space_of
from inspector.service.compile_cache import CompileCache
from inspector.service.inspection import Inspection
from inspector.service.search import executors, task
from inspector.service.search.run import Search

_DENSE, _EXPERTS = PROBLEMS["dense, 16 v5e"], PROBLEMS["experts, 16 v5e"]
EIGHT = {
    "dense, 8 H100": PROBLEMS["dense, 8 H100"],
    "experts, 8 H100": PROBLEMS["experts, 8 H100"],
    "dense, 16 v5e": _DENSE,
    "experts, 16 v5e": _EXPERTS,
    "dense, two slices of 8 v5e": _DENSE | {"target": "tpu:v5e:2x4*2"},
    "experts, two slices of 8 v5e": _EXPERTS | {"target": "tpu:v5e:2x4*2"},
    "dense in a Python loop, 16 v5e": _DENSE | {"scan": "false", "layers": "4"},
    "Llama-3-8B, 64 v5p": LLAMA,
}


def problem(name: str) -> str:
    """Search one problem in both ways, each with an empty store."""
    layout = layouts.parse({"rules": "batch=fsdp,embed=fsdp"} | EIGHT[name]).unwrap()
    with closing(Inspection(run_workers=1)) as service:
        space = space_of(layout, service.start_state(layout).wait().answer())
    bounded, seconds = _search(space, exhaustive=False)
    every, longer = _search(space, exhaustive=True)
    listed = bounded.listed or 0
    same = [
        (one.layout, one.seconds) == (other.layout, other.seconds)
        for one, other in zip(bounded.candidates[:listed], every.candidates[:listed], strict=True)
    ]
    return (
        f"{name}: {bounded.counts.considered:,} candidates; {bounded.counts.propagated:,} partitioned in "
        f"{seconds:.0f} s, {every.counts.propagated:,} in {longer:.0f} s; {sum(same)} of the {listed} best "
        "are the same"
    )


def _search(space: Space, exhaustive: bool) -> tuple[SearchResult, float]:
    machine, workers = space.layout.machine, executors.local_workers()
    assert machine is not None
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as threads:
        store = CompileCache(Path(folder) / "search.sqlite3")
        search = Search(space, machine.chip, threads, 0, store=store, workers=workers, exhaustive=exhaustive)
        found = search.run()
    return found, time.perf_counter() - began


def report() -> str:
    """Return one line for each problem."""
    try:
        return "\n".join(problem(name) for name in EIGHT)
    finally:
        task.close()
