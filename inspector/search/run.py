"""Run one search: partition the possible best ones, compile the most promising, and keep the results.

Bounds of all candidates are computed first. They are partitioned in the order of their bounds, until the
bounds of all others are above the value of the last candidate that is listed (branch and bound). So the
listed candidates are those that partitioning all of them would give.
"""

from __future__ import annotations

import concurrent.futures as futures
import heapq
import itertools
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from inspector.jobs import compile_cache
from inspector.jobs.compile_cache import CompileCache
from inspector.layout import Layout
from inspector.layout.plan import now
from inspector.machines import compiler_options
from inspector.machines.compiler_options import Options
from inspector.machines.hardware import Chip
from inspector.prediction.memory import capacity_of
from inspector.records import typed_json
from inspector.search import tasks
from inspector.search.order import (
    Entry,
    Goal,
    best_of,
    can_be_best,
    examples_of,
    least_value,
    next_to_compile,
    pareto,
    ranked,
    scaled_to_measured,
    value,
)
from inspector.search.result import Candidate, Counts, Objective, SearchProgress, SearchResult
from inspector.search.space import Space, activations_key, equal_layers, identity
from inspector.search.tasks import ClusterExecutor
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text, seconds_text

DEFAULT_BUDGET = 8  # compiles
MOST_BUDGET = 10_000
LISTED = 20  # candidates that are the best of all; a search with a larger budget of compiles lists more
# Rounds in which single rules of the best candidate are changed.
_MOST_IMPROVEMENTS = 3
_BETTER = 1e-3  # by which share a changed candidate must be better
_BOUNDED = 100  # candidates of one task that computes bounds
_FEWEST_LAYERS = 5  # with which one and two layers are partitioned sooner than all
_MOST_MODELS = 2  # of a search, with one and two layers each: a worker keeps the traces of eight
# By which share a step can be shorter than its estimate from one and two layers. In 80 random layouts of
# eight layers for v5e, two slices of v5e, v5p and H100, one was 1.2% shorter, the others less than 1%.
ESTIMATED = 0.03
_IN_FLIGHT = 2  # tasks for each worker that are submitted at once

OUT_OF_BUDGET = "budget"
NONE_BETTER = "none better"


@dataclass
class Search:
    """A search that can be watched and stopped from other threads.

    Attributes:
      chip: The chip of predicted times; None to measure steps on emulated devices.
      budget: The most compiles, those from the cache included.
      exhaustive: Partition all candidates, also those that cannot be among the best.
      compile_all: Compile all candidates up to the budget, also those that cannot be the best.
      goal: Weights of several programs, and limits for them.
      improve: Also change single rules of the best candidate, to rules that the space does not have.
      round_size: Candidates that are compiled before the next ones are chosen. It depends on the budget
        alone, so that the number of workers does not change the result.
      unsafe: Options of the compiler that the executor has. No compile with them is cached.
    """

    space: Space
    chip: Chip | None
    executor: Executor
    budget: int = DEFAULT_BUDGET
    objective: Objective = "time"
    goal: Goal = field(default_factory=Goal)
    store: CompileCache = field(default_factory=lambda: store())
    on_progress: Callable[[SearchProgress], None] | None = None
    workers: int = 1
    exhaustive: bool = False
    compile_all: bool = False
    improve: bool = True
    unsafe: Options = ()

    def __post_init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._alike: dict[str, str] = {}  # the first candidate with each program
        self._estimates: dict[str, float] = {}  # seconds of a step for each example, from fewer layers
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._version = 0
        self._progress = SearchProgress("bound", 0, 0, Counts(), None, 0)
        self._settled: int | None = None  # candidates at the front that are the best of all
        self._finished: str | None = None
        self._message: str | None = None
        self._total = 0

    @property
    def _chip_name(self) -> str | None:
        return None if self.chip is None else self.chip.name

    @property
    def listed(self) -> int:
        """The number of best candidates that the search has to know."""
        return max(LISTED, 2 * self.budget)

    @property
    def round_size(self) -> int:
        return max(1, self.budget // 4)

    def run(self) -> SearchResult:
        """Search until no candidate can be better, the budget is spent, or it is stopped.

        Raises:
          InvalidInput: no task can run, such as without the compiler of the target.
        """
        self._total = self.space.count()
        try:
            every = self.space.layouts()
            self._partition_first(next(every))
            self._estimate("partition", self._bound("bound", every))
            self._partition("partition")
            self._settled = min(self.listed, len(list(self._ranked_values(self._entries))))
            if self.improve:
                self._improve()
            self._compile()
        except _Stopped:
            self._message = "Stopped. The same search continues from what was found."
        self._report("done", 0, 0, None)
        return self.result()

    def stop(self) -> None:
        """Cancel all tasks. `run` then returns its results."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def progress(self) -> SearchProgress:
        """Return the state at this moment."""
        return self._progress

    def result(self) -> SearchResult:
        """Return the results so far, the best candidates first."""
        with self._lock:
            known = dict(self._entries)
        entries = [*known.values()]
        if self._chip_name is None:
            entries = scaled_to_measured(entries)
        front, current = pareto(entries), identity(self.space.layout)
        order = [entry for entry in ranked(entries, self.objective) if entry.cost is not None]
        best = best_of(entries, self.objective)
        listed: list[Candidate] = []
        for entry in order:
            assert entry.cost is not None
            before = known[entry.key].partitioned
            listed.append(
                replace(
                    entry.cost,
                    layout=entry.layout.to_json(),
                    pareto=front[entry.key],
                    current=entry.key == current,
                    partitioned_seconds=None if before is None else before.seconds,
                    tokens_per_second=self.goal.tokens_per_second(entry.cost, entry.layout),
                    before=None if before is None or before is entry.cost else before.assessment,
                    alike=None,
                )
            )
        return SearchResult(
            target=self.space.layout.target,
            chip=self._chip_name,
            created=now(),
            counts=self._counts(known.values()),
            candidates=tuple(listed),
            best=None if best is None else order.index(best),
            objective=self.objective,
            finished=self._finished,
            listed=self._settled,
            weights=dict(self.goal.weights) or None,
            limits=dict(self.goal.limits) or None,
            unsafe_compiler_options=compiler_options.text(self.unsafe) or None,
            message=self._message or (None if best is not None else self._why_none(entries)),
        )

    # --- Phases -----------------------------------------------------------------------------------

    def _partition_first(self, layout: Layout) -> None:
        """Partition one candidate before any bounds are computed, so that there is a list after a second."""
        list(self._new([layout]))
        for _, (cost,) in self._in_window(iter([layout]), self._partitioned):
            self._set(identity(layout), cost)
        self._report("bound", 0, 0, None)

    def _bound(self, phase: str, layouts: Iterable[Layout]) -> list[str]:
        """Compute bounds of the new candidates among these layouts. Return the keys of those that can run.

        Of several with the same program, only the first is kept.
        """
        new = [entry.layout for entry in self._entries.values() if entry.bounds is None]
        new += self._new(layouts)
        parts = [tuple(new[n : n + _BOUNDED]) for n in range(0, len(new), _BOUNDED)]
        began, done = time.monotonic(), 0

        def submit(part: tuple[Layout, ...]) -> _Task:
            return self._task("bound", part)

        for part, answer in self._in_window(iter(parts), submit):
            with self._lock:
                for layout, cost in zip(part, answer, strict=True):
                    entry = self._entries[identity(layout)]
                    known = entry.partitioned
                    if known is None or cost.stage == "rejected":
                        known = cost
                    known = replace(known, at_least=cost.at_least)
                    self._entries[entry.key] = replace(entry, bounds=cost, partitioned=known)
            done += len(part)
            self._report(phase, done, len(new), began)
        with self._lock:
            return [
                key
                for key in map(identity, new)
                if not self._remove_alike(key) and self._is_waiting(self._entries[key])
            ]

    def _estimate(self, phase: str, keys: Iterable[str], most: float = math.inf) -> None:
        """Estimate the steps of candidates with many equal layers, whose bounds are far below their steps.

        They are estimated in the order of their bounds, until no other one can be listed.

        most: the largest bound of those that are wanted.
        """
        if self.chip is None or self.exhaustive or self.objective != "time" or self.goal.programs:
            return
        entries = {key: self._entries[key] for key in keys}
        bounds = {
            key: bound
            for bound, key in sorted(self._waiting(entries))
            if bound <= most and equal_layers(entries[key].layout) >= _FEWEST_LAYERS
        }
        if len({entries[key].layout.key("model", "sizes", "unconstrained") for key in bounds}) > _MOST_MODELS:
            return
        began = time.monotonic()
        values: dict[str, float] = {}

        def calls() -> Iterator[str]:
            return itertools.takewhile(lambda key: bounds[key] <= last_of(values.values()), bounds)

        def last_of(known: Iterable[float]) -> float:
            best = heapq.nsmallest(self.listed, known)
            return best[-1] * (1 + ESTIMATED) if len(best) == self.listed else math.inf

        answers = self._in_window(calls(), lambda key: self._task("estimate", (entries[key].layout,)))
        for done, ((layout,), (cost,)) in enumerate(answers, 1):
            if cost.seconds is not None:
                values[identity(layout)] = cost.seconds / entries[identity(layout)].examples
            self._report(phase, done, len(bounds), began)
        # Not those that were submitted before a better one ended: the result must not depend on the workers.
        last = last_of(values.values())
        self._estimates |= {key: known for key, known in values.items() if bounds[key] <= last}

    def _remove_alike(self, key: str) -> bool:
        """Remove a candidate if an earlier one has the same program. Return whether it was removed."""
        bounds = self._entries[key].bounds
        alike = None if bounds is None else bounds.alike
        if alike is None or self._alike.setdefault(alike, key) == key:
            return False
        del self._entries[key]
        return True

    def _partition(
        self,
        phase: str,
        keys: Iterable[str] | None = None,
        every: bool = False,
    ) -> None:
        """Partition candidates in the order of their bounds, until the listed ones are the best of all.

        The current layout is always partitioned.

        Args:
          keys: those that are considered; all by default.
          every: all of them, also those that cannot be listed.
        """
        keys = None if keys is None else list(keys)
        waiting = self._waiting(keys)
        current = identity(self.space.layout)
        waiting.sort(key=lambda each: (each[1] != current, each))
        began = time.monotonic()

        def limit() -> float:
            return math.inf if every or self.exhaustive else self._last_listed(self._entries, self.listed)

        def calls() -> Iterator[str]:
            for bound, key in waiting:
                above = math.isinf(bound) and not self.exhaustive  # a limit of the search
                if (above or bound > limit()) and key != current:
                    return
                yield key

        answers = self._in_window(calls(), lambda key: self._partitioned(self._entries[key].layout))
        for done, ((layout,), (cost,)) in enumerate(answers, 1):
            self._set(identity(layout), cost)
            last = limit()
            total = max(done, sum(1 for bound, _ in waiting if bound <= last))
            self._report(phase, done, total, began)
        if any(map(self._is_below_estimate, self._every())):
            self._estimates.clear()
            self._partition(phase, keys, every)
            return
        # Those that were submitted before a better one ended: the result must not depend on the workers.
        last = limit()
        with self._lock:
            for bound, key in waiting:
                if bound > last and key != current:
                    entry = self._entries[key]
                    self._entries[key] = replace(entry, partitioned=entry.bounds)

    def _partitioned(self, layout: Layout) -> _Task:
        return self._task("partition", (layout,))

    def _set(self, key: str, cost: Candidate) -> None:
        """Keep the cost of a partitioned candidate."""
        with self._lock:
            entry = self._entries[key]
            at_least = None if entry.bounds is None else entry.bounds.at_least
            self._entries[key] = replace(entry, partitioned=replace(cost, at_least=at_least))

    def _waiting(self, keys: Iterable[str] | None = None) -> list[tuple[float, str]]:
        """Return the bounds and the keys of the candidates that are not partitioned."""
        return [
            (least_value(entry.partitioned, entry.examples, self.objective), key)
            for key in (self._entries if keys is None else keys)
            if (entry := self._estimated(self._entries[key])).partitioned is not None
            and self._is_waiting(entry)
        ]

    def _estimated(self, entry: Entry) -> Entry:
        """Return a candidate with the estimate of its step as its bound, if it has one."""
        estimate, cost = self._estimates.get(entry.key), entry.partitioned
        if estimate is None or cost is None or not self._is_waiting(entry):
            return entry
        least = max(cost.at_least or 0.0, estimate * (1 - ESTIMATED) * entry.examples)
        return replace(entry, partitioned=replace(cost, at_least=least))

    @staticmethod
    def _is_waiting(entry: Entry) -> bool:
        return entry.partitioned is not None and entry.partitioned.stage == "planned"

    def _is_below_estimate(self, entry: Entry) -> bool:
        """Return whether the step of a partitioned candidate is shorter than its estimate can be."""
        cost, estimate = entry.partitioned, self._estimates.get(entry.key)
        if estimate is None or cost is None or cost.seconds is None or self._is_waiting(entry):
            return False
        return cost.seconds / entry.examples < estimate * (1 - ESTIMATED)

    def _ranked_values(self, keys: Iterable[str]) -> Iterator[float]:
        """Yield the values of the partitioned candidates that may fit."""
        for key in keys:
            entry = self._entries[key]
            cost = entry.partitioned
            if cost is not None and cost.stage == "propagated" and cost.allowed:
                yield value(cost, entry.examples, self.objective)

    def _last_listed(self, keys: Iterable[str], listed: int) -> float:
        """Return the value of the last listed candidate; infinite if fewer are known to fit."""
        best = heapq.nsmallest(listed, self._ranked_values(keys))
        return best[-1] if len(best) == listed else math.inf

    def _improve(self) -> None:
        """Change single rules of the best candidate, until no change makes it better.

        Only changed candidates that are better are kept: most changes have no effect on the step.
        """
        for _ in range(_MOST_IMPROVEMENTS):
            best = self._first()
            if best is None or best.cost is None or best.cost.stage != "propagated":
                return
            least = value(best.cost, best.examples, self.objective) * (1 - _BETTER)
            before = set(self._entries)
            near = self.space.near(best.layout)
            keys = self._bound("improve", near)
            if not self.exhaustive:
                self._estimate("improve", keys, least)
                keys = [key for bound, key in self._waiting(keys) if bound <= least]
            self._partition("improve", keys)
            with self._lock:
                for key in [key for key in self._entries if key not in before]:
                    entry = self._entries[key]
                    cost = entry.partitioned
                    if (
                        cost is None
                        or cost.stage != "propagated"
                        or value(cost, entry.examples, self.objective) > least
                    ):
                        self._forget(key)
            if self._first() == best:
                return

    def _compile(self) -> None:
        """Compile the most promising candidates, some in each round, until none can be better."""
        began, done = time.monotonic(), 0
        capacity = capacity_of(self.chip) if self.chip and self.space.layout.machine else None
        while done < self.budget:
            most = min(self.round_size, self.budget - done)
            chosen = next_to_compile(self._every(), self.objective, capacity, most, self.compile_all)
            if not done:
                # The current layout comes first: the others are compared with it.
                chosen = self._with_current(chosen, most)
            if not chosen:
                # A candidate that was not partitioned may still be better when it is compiled.
                entries = [self._estimated(entry) for entry in self._every()]
                able = entries if self.compile_all else can_be_best(entries, self.objective, "planned")
                if waiting := self._waiting([entry.key for entry in able]):
                    self._partition("partition", [key for _, key in waiting], every=True)
                    chosen = next_to_compile(self._every(), self.objective, capacity, most, self.compile_all)
            if not chosen:
                self._finished = NONE_BETTER
                return
            self._report("compile", done, self.budget, began if done else None)

            def submit(entry: Entry) -> _Task:
                return self._task("compile", (entry.layout,))

            for layouts, (cost,) in self._in_window(iter(chosen), submit):
                with self._lock:
                    entry = self._entries[identity(layouts[0])]
                    before = entry.partitioned
                    if cost.state_bytes is None and before is not None:
                        cost = replace(cost, state_bytes=before.state_bytes)
                    self._entries[entry.key] = replace(entry, compiled=cost)
                done += 1
                self._report("compile", done, self.budget, began)
        self._finished = OUT_OF_BUDGET

    def _with_current(self, chosen: list[Entry], most: int) -> list[Entry]:
        current = identity(self.space.layout)
        own = [entry for entry in self._every() if entry.key == current]
        valid = [entry for entry in own if entry.partitioned and entry.partitioned.stage == "propagated"]
        return [*valid, *(entry for entry in chosen if entry.key != current)][: max(most, 1)]

    # --- Tasks ------------------------------------------------------------------------------------

    def _task(self, kind: str, layouts: tuple[Layout, ...]) -> _Task:
        """Return a task that is submitted, or done already if its answer is stored.

        A compile with unsafe options is not stored.
        """
        request = (kind, [layout.to_json() for layout in layouts], self._chip_name, self.goal.programs)
        if self.unsafe and kind == "compile":
            return _Task(layouts, None, request, self._submitted(request), None)
        key = compile_cache.key_of({"search": json.dumps(request), "versions": compile_cache.versions()})
        kept = self.store.get(key)
        if kept is not None:
            try:
                plain = json.loads(kept)
                known = [typed_json.decode(Candidate, one, "the cache") for one in plain]
                if len(known) == len(layouts):
                    return _Task(layouts, key, request, None, known)
            except (InvalidInput, ValueError, TypeError):
                pass  # a damaged entry is computed again
        return _Task(layouts, key, request, self._submitted(request), None)

    def _submitted(self, request: tuple[Any, ...]) -> Future[Any]:
        """Submit a task.

        Raises:
          InvalidInput: the executor takes no more tasks, such as after the end of a Dask scheduler.
        """
        try:
            return self.executor.submit(tasks.run, *request)
        except Exception as error:  # of any executor
            self._check()
            raise _lost(type(error).__name__) from None

    def _in_window(
        self, calls: Iterator[Any], submit: Callable[[Any], _Task]
    ) -> Iterator[tuple[tuple[Layout, ...], list[Candidate]]]:
        """Yield the answers as they come, with a bounded number of submitted tasks.

        A lost task is submitted again. If the search ends early, finished tasks are still stored.
        """
        waiting: dict[Future[Any], _Task] = {}
        most = _IN_FLIGHT * max(self.workers, 1)
        exhausted = False
        try:
            while not exhausted or waiting:
                while not exhausted and len(waiting) < most:
                    self._check()
                    call = next(calls, None)
                    if call is None:
                        exhausted = True
                        break
                    submitted = submit(call)
                    if submitted.future is None:
                        yield submitted.layouts, self._applied(submitted.layouts, submitted.known or [])
                    else:
                        waiting[submitted.future] = submitted
                if not waiting:
                    continue
                ended, _ = futures.wait(waiting, timeout=0.2, return_when=futures.FIRST_COMPLETED)
                self._check()
                if isinstance(self.executor, ClusterExecutor):
                    problem = self.executor.problem()
                    if problem is not None:
                        raise _lost(problem)
                for future in ended:
                    done = waiting.pop(future)
                    answer = self._answer(done)
                    if answer is None:
                        again = replace(
                            done, future=self._submitted(done.request), attempts=done.attempts + 1
                        )
                        assert again.future is not None
                        waiting[again.future] = again
                    else:
                        yield done.layouts, self._applied(done.layouts, answer)
        finally:
            for future, left in waiting.items():
                if not future.cancel() and left.key is not None:
                    with suppress(Exception):  # it failed
                        self.store.put(left.key, json.dumps(_records(future)))

    def _applied(self, layouts: Sequence[Layout], costs: Sequence[Candidate]) -> list[Candidate]:
        """Return the costs of layouts for the goal of the search."""
        return [self.goal.applied(cost, layout) for layout, cost in zip(layouts, costs, strict=True)]

    def _answer(self, done: _Task) -> list[Candidate] | None:
        """Return the costs of a task's layouts, or None if the task was lost and can be tried again."""
        assert done.future is not None
        try:
            answer = _records(done.future)
        except InvalidInput as error:
            self._check()
            if isinstance(error, tasks.WorkerDied) and done.attempts < tasks.ATTEMPTS:
                return None
            return [Candidate("rejected", str(error))] * len(done.layouts)
        except (Exception, futures.CancelledError) as error:  # of another machine
            self._check()
            if done.attempts < tasks.ATTEMPTS:
                return None
            raise _lost(type(error).__name__) from None
        costs = [typed_json.decode(Candidate, one, "the worker's answer") for one in answer]
        if done.key is not None:
            self.store.put(done.key, json.dumps(answer))
        return costs

    def _check(self) -> None:
        if self._stop.is_set():
            raise _Stopped

    # --- State ------------------------------------------------------------------------------------

    def _new(self, layouts: Iterable[Layout]) -> Iterator[Layout]:
        """Yield the layouts that are not candidates yet, each of which becomes one."""
        for layout in layouts:
            key = identity(layout)
            if key not in self._entries:
                with self._lock:  # another thread may be reading the result
                    memory_key = activations_key(layout, self.space.axes)
                    self._entries[key] = Entry(key, layout, examples_of(layout), memory_key)
                yield layout

    def _forget(self, key: str) -> None:
        """Remove a candidate."""
        bounds = self._entries.pop(key).bounds
        alike = "" if bounds is None else bounds.alike or ""
        if self._alike.get(alike) == key:
            del self._alike[alike]

    def _first(self) -> Entry | None:
        """Return the best candidate, also if it is not compiled; None without any."""
        return next(iter(ranked(self._every(), self.objective)), None)

    def _every(self) -> list[Entry]:
        return [*self._entries.values()]

    def _report(self, phase: str, done: int, total: int, began: float | None) -> None:
        self._version += 1
        left = None
        if began is not None and total / 50 < done < total:  # the first ones wait for workers
            left = (time.monotonic() - began) / done * (total - done)
        with self._lock:
            counts = self._counts(self._entries.values())
        self._progress = SearchProgress(phase, done, total, counts, left, self._version)
        if self.on_progress is not None:
            self.on_progress(self._progress)

    def _counts(self, entries: Iterable[Entry]) -> Counts:
        listed = list(entries)
        costs = [(entry.partitioned, entry.compiled) for entry in listed]
        excluded = [entry for entry in listed if self._is_waiting(entry) and not entry.compiled]
        if self._settled is None:
            excluded = []
        return Counts(
            considered=max(len(listed), self._total if self._settled is None else 0),
            partitioned=sum(1 for evaluated, _ in costs if evaluated and evaluated.stage == "propagated"),
            excluded=len(excluded),
            estimated=sum(entry.key in self._estimates for entry in excluded),
            compiled=sum(1 for _, evaluated in costs if evaluated and evaluated.stage == "compiled"),
            rejected=sum(
                1 for evaluated, other in costs if (last := other or evaluated) and last.stage == "rejected"
            ),
        )

    def _why_none(self, entries: Sequence[Entry]) -> str | None:
        """Return why there is no best layout: the closest one and its amount, or the reason."""
        if self.chip is None:
            return None
        if (above := self._above_limit(entries)) is not None:
            return above
        capacity = capacity_of(self.chip)
        too_large = [
            entry.compiled.peak_bytes
            for entry in entries
            if entry.compiled and entry.compiled.fits is False and entry.compiled.peak_bytes
        ]
        if too_large:
            return closest_text("compiled", min(too_large), capacity)
        partitioned = [
            entry.partitioned
            for entry in entries
            if entry.partitioned and entry.partitioned.stage == "propagated"
        ]
        peaks = [cost.peak_bytes for cost in partitioned if cost.fits is False and cost.peak_bytes]
        if peaks and len(peaks) == len(partitioned):
            return closest_text("estimate", min(peaks), capacity)
        if partitioned:
            return None
        state = [
            entry.partitioned.state_bytes
            for entry in entries
            if entry.partitioned and entry.partitioned.state_bytes
        ]
        if state and min(state) > capacity:
            return closest_text("state", min(state), capacity)
        reasons = Counter(
            entry.partitioned.reason
            for entry in entries
            if entry.partitioned is not None and entry.partitioned.reason
        )
        if not reasons:
            return "No layout can run. The reasons are unknown."
        (reason, count), *others = reasons.most_common()
        if not others and count == len(entries):
            return f"No layout can run: {reason.removesuffix('.')}."
        return f"No layout can run. The reason of {count} of {len(entries)}: {reason.removesuffix('.')}."

    def _above_limit(self, entries: Sequence[Entry]) -> str | None:
        """Return that no layout keeps a limit, and the fastest one; None if another reason decides."""
        costs = [entry.cost for entry in entries if entry.cost and entry.cost.stage != "rejected"]
        above = [cost for cost in costs if cost.within is False and cost.fits is not False]
        if not above or any(cost.allowed for cost in costs):
            return None
        texts = []
        for name, limit in self.goal.limits.items():
            runs = [program for cost in above for program in cost.programs if program.name == name]
            if not runs or any(program.keeps(limit) is not False for program in runs):
                continue
            least, bound = min((program.least or 0.0, program.is_bound) for program in runs)
            words = f"{name} takes {'at least ' if bound else ''}{seconds_text(least)} in the fastest one"
            texts.append(f"{words}, more than {seconds_text(limit)}")
        return f"No layout that fits keeps the limits: {'; '.join(texts) or 'each is above one of them'}."


@dataclass(frozen=True)
class _Task:
    """A submitted task, or one whose answer is known. Its answer is not stored if it has no `key`."""

    layouts: tuple[Layout, ...]
    key: str | None
    request: tuple[Any, ...]
    future: Future[Any] | None
    known: list[Candidate] | None
    attempts: int = 1


def _records(future: Future[Any]) -> Any:
    """Return the records of an ended task."""
    result = future.result()
    return result() if callable(result) else result


class _Stopped(Exception):
    """The search was stopped."""


def _lost(reason: str) -> InvalidInput:
    return InvalidInput(
        f"a task of the search was lost ({reason}): start the same search again, which "
        "continues from what was found"
    )


def store() -> CompileCache:
    """Return the cache of task results that all searches on this machine share."""
    return CompileCache(compile_cache.folder() / "search.sqlite3")


def closest_text(basis: str, needed: int, capacity: int) -> str:
    """Return that no layout fits, with the bytes that the closest one lacks."""
    what = {"compiled": "needs", "estimate": "needs about"}.get(basis, "needs at least")
    return (
        f"No layout fits. The closest one {what} {bytes_text(needed)} on one device, which has "
        f"{bytes_text(capacity)}: {bytes_text(needed - capacity)} are missing."
    )
