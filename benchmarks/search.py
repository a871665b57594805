"""Search against exhaustive truth: the best layout that a search finds, and the best of all compiled ones.

Each problem is small enough to compile every candidate. Prints for each the regret (the time of the layout
found over that of the best one, minus 1), the compiles that the search needed, and the candidates per second
of propagation and prediction. Compiled candidates are kept in the cache, so that a second run takes seconds.
"""

from __future__ import annotations

import math
import time
from contextlib import closing

from inspector import layout as layouts
from inspector.compare.paired_times import ratios
from inspector.jobs.inspection import Inspection
from inspector.jobs.own_model_registration import register_own
from inspector.machines import targets
from inspector.search import tasks
from inspector.search.order import value
from inspector.search.result import SearchResult, layout_of
from inspector.search.run import Search
from inspector.search.space import Space, space_of

SHARE = 0.25  # of the candidates, that the search may compile
# On emulated devices, the layout found is timed in turn with the fastest others.
RIVALS = 5
ROUNDS = 15

_DENSE = {
    "model": "transformer", "layers": "2", "scan": "true", "embed": "512", "mlp": "2048", "heads": "16",
    "kv_heads": "8", "head_dim": "64", "vocab": "8192", "batch": "32", "seq": "512",
    "dtype": "bfloat16",
}  # fmt: skip
_MOE = {
    "model": "moe", "layers": "2", "scan": "true", "embed": "256", "mlp": "512", "heads": "8",
    "kv_heads": "8", "head_dim": "32", "vocab": "4096", "experts": "8", "batch": "16", "seq": "256",
}  # fmt: skip
_SMALL = {
    "model": "transformer", "layers": "2", "scan": "true", "embed": "128", "mlp": "512", "heads": "8",
    "kv_heads": "8", "head_dim": "16", "vocab": "1024", "batch": "16", "seq": "64", "steps": "7",
}  # fmt: skip
_OWN = {"model": "examples.linen_mlp:build", "rows": "256", "width": "1024", "hidden": "4096"}
PROBLEMS = {
    "dense, 8 H100": {**_DENSE, "target": "gpu:h100:8", "mesh": "8", "axes": "fsdp"},
    "experts, 8 H100": {**_MOE, "target": "gpu:h100:8", "mesh": "8", "axes": "fsdp"},
    "dense, 16 v5e": {**_DENSE, "target": "tpu:v5e:4x4", "mesh": "16", "axes": "fsdp"},
    "experts, 16 v5e": {**_MOE, "target": "tpu:v5e:4x4", "mesh": "16", "axes": "fsdp"},
    "dense, 8 emulated": {**_SMALL, "target": "cpu", "mesh": "8", "axes": "data"},
    "a user's model, 16 v5e": {**_OWN, "target": "tpu:v5e:4x4", "mesh": "16", "axes": "fsdp"},
}
# What a search of a problem keeps, so that all its candidates can be compiled in minutes.
LOCKS = {
    "dense, 8 H100": ("context=1",),
    "experts, 8 H100": ("data=1", "expert=2"),
    "dense, 16 v5e": ("context=1",),
    "experts, 16 v5e": ("data=1", "expert=4"),
    "dense, 8 emulated": ("context=1",),
}
# Other fields that a search of a problem varies.
VARIED = {"a user's model, 16 v5e": ("optimizer_axes=none,data,fsdp", "donate=true,false")}


def problem(name: str, most: int = 100_000) -> str:
    """Compile all candidates of a problem, or the `most` best before a compile. Return how a search does."""
    fields = PROBLEMS[name]
    if ":" in fields["model"]:
        register_own(fields["model"])
    rules = {"rules": "batch=fsdp,embed=fsdp"} if fields["axes"] == "fsdp" else {}
    layout = layouts.parse({**rules, **fields}).unwrap()
    machine = layout.machine
    missing = targets.missing_compiler(machine) if machine else None
    if missing is not None:
        return f"{name}: {missing}"
    with closing(Inspection(run_workers=1)) as service:
        state = service.state(layout).answer()
        space = space_of(layout, state, LOCKS.get(name, ()), VARIED.get(name, ()))
    chip = machine.chip if machine else None
    with tasks.local() as executor:
        workers = tasks.local_workers()
        began = time.perf_counter()
        Search(space, chip, executor, 0, workers=workers).run()
        propagation = time.perf_counter() - began
        truth = Search(space, chip, executor, most, workers=workers, compile_all=True).run()
        budget = math.ceil(SHARE * min(truth.counts.partitioned, most))
        found = Search(space, chip, executor, budget, workers=workers).run()
    text = _text(name, space, truth, found, propagation)
    return text if chip is not None else f"{text}; {_timed_together(found, truth)}"


def _timed_together(found: SearchResult, truth: SearchResult) -> str:
    """Return how much slower the layout found is than the fastest ones, if all run in turn."""
    assert found.best_candidate is not None
    measured = [one for one in truth.candidates if one.measured is not None]
    rivals = sorted(measured, key=lambda one: one.measured or math.inf)[:RIVALS]
    layouts_to_time = [layout_of(found.best_candidate)]
    layouts_to_time += [each for each in map(layout_of, rivals) if each.key() != layouts_to_time[0].key()]
    with closing(Inspection(run_workers=1)) as service:
        plans = [service.plan(each) for each in layouts_to_time]
        times = service.timing(plans, ROUNDS).answer()
    each = ratios(times, 0, "train_step")
    fastest = min([ratio.value for ratio in each.values()], default=1.0)
    regret = 1 / min(fastest, 1.0) - 1
    return f"timed in turn with the {len(each)} fastest others: {regret:.1%} slower than the fastest"


def _text(name: str, space: Space, truth: SearchResult, found: SearchResult, propagation: float) -> str:
    best, chosen = truth.best_candidate, found.best_candidate
    if best is None or chosen is None:
        return f"{name}: no layout fits"
    regret = value(chosen, 1, "time") / value(best, 1, "time") - 1
    compiled = [one for one in truth.candidates if one.stage == "compiled" and one.fits is not False]
    order = sorted(compiled, key=lambda one: one.partitioned_seconds or math.inf)
    place = next(n for n, one in enumerate(order, 1) if one.layout == best.layout)
    return (
        f"{name}: regret {regret:.1%} with {found.counts.compiled} of {truth.counts.compiled} compiles "
        f"({found.finished}); {space.count()} candidates, {found.counts.partitioned} feasible; the best "
        f"layout is number {place} before a compile; propagation {propagation:.1f} s"
    )


def report(cases: int | None = None, most: int = 100_000) -> str:
    """Return one line for each of the first problems. The first run compiles a thousand small programs."""
    try:
        return "\n".join(problem(name, most) for name in list(PROBLEMS)[:cases])
    finally:
        tasks.close()
