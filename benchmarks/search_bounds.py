"""A search that partitions what can be among the best, against one that partitions all candidates.

For eight problems, prints the candidates that each partitions, the processor seconds of its workers, and
whether both give the same best candidates in the same order. Takes 6 minutes of processor time, so it runs
only by its name.
"""

from __future__ import annotations

import resource
import tempfile
from contextlib import closing
from pathlib import Path

from benchmarks.search import PROBLEMS
from inspector import layout as layouts
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.inspection import Inspection
from inspector.search import tasks
from inspector.search.result import SearchResult
from inspector.search.run import Search
from inspector.search.space import Space, space_of

_DENSE = PROBLEMS["dense, 16 v5e"] | {"batch": "64"}
_EXPERTS = PROBLEMS["experts, 16 v5e"] | {"batch": "64", "seq": "128"}
_SLICES = {"target": "tpu:v5e:2x4*2"}
EIGHT = {
    "dense, 8 H100": _DENSE | {"target": "gpu:h100:8", "mesh": "8"},
    "dense, 16 v5e": _DENSE | {"embed": "2048", "mlp": "8192"},
    "dense in a Python loop, 8 v5e": _DENSE | {
        "target": "tpu:v5e:2x4", "mesh": "8", "scan": "false", "layers": "6", "embed": "256", "mlp": "1024",
        "seq": "128",
    },
    "dense, 64 v5p": _DENSE | {
        "target": "tpu:v5p:4x4x4", "mesh": "64", "kv_heads": "16", "embed": "1024",
    },
    "dense, two slices of 8 v5e": _DENSE | _SLICES,
    "experts, 8 H100": _EXPERTS | {"target": "gpu:h100:8", "mesh": "8"},
    "experts, 16 v5e": _EXPERTS | {"embed": "1024", "mlp": "2048"},
    "experts, two slices of 8 v5e": _EXPERTS | _SLICES,
}  # fmt: skip
# What a search of a problem keeps, so that all its candidates can be partitioned in a minute.
LOCKS = {
    "dense, 16 v5e": ("context=1",),
    "dense, 64 v5p": ("context=1", "data=1"),
    "dense, two slices of 8 v5e": ("context=1",),
    "experts, 8 H100": ("data=1",),
    "experts, 16 v5e": ("data=1",),
    "experts, two slices of 8 v5e": ("expert=4",),
}


def problem(name: str, locks: tuple[str, ...] = ()) -> str:
    """Search one problem in both ways, each with an empty store. `locks` keep more than LOCKS does."""
    layout = layouts.parse({"rules": "batch=fsdp,embed=fsdp"} | EIGHT[name]).unwrap()
    with closing(Inspection(run_workers=1)) as service:
        space = space_of(layout, service.state(layout).answer(), (*LOCKS.get(name, ()), *locks))
    bounded, seconds = _search(space, exhaustive=False)
    every, longer = _search(space, exhaustive=True)
    listed = bounded.listed or 0
    same = [
        (one.layout, one.seconds) == (other.layout, other.seconds)
        for one, other in zip(bounded.candidates[:listed], every.candidates[:listed], strict=True)
    ]
    return (
        f"{name}: {bounded.counts.considered:,} candidates; {bounded.counts.partitioned:,} partitioned in "
        f"{seconds:.0f} processor seconds, {every.counts.partitioned:,} in {longer:.0f}; {sum(same)} of the "
        f"{listed} best are the same"
    )


def _search(space: Space, exhaustive: bool) -> tuple[SearchResult, float]:
    machine, workers = space.layout.machine, tasks.local_workers()
    assert machine is not None
    before = _processor_seconds()
    with tempfile.TemporaryDirectory() as folder, tasks.local(workers) as executor:
        store = CompileCache(Path(folder) / "search.sqlite3")
        search = Search(space, machine.chip, executor, 0, store=store, workers=workers, exhaustive=exhaustive)
        found = search.run()
    tasks.close()  # then its workers count
    return found, _processor_seconds() - before


def _processor_seconds() -> float:
    """Return those of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(cases: int | None = None, locks: tuple[str, ...] = ()) -> str:
    """Return one line for each of the first problems."""
    return "\n".join(problem(name, locks) for name in list(EIGHT)[:cases])
