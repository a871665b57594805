"""Run one search: propagate all candidates, compile the most promising, and keep what was found."""

from __future__ import annotations

import concurrent.futures as futures
import json
import math
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

from inspector.compare.search.conditions import conditions, sensitivity
from inspector.compare.search.evaluated import Evaluated, rejected
from inspector.compare.search.order import (
    Figure,
    best_of,
    examples_of,
    next_to_compile,
    pareto,
    ranked,
    scaled_to_measured,
    value,
)
from inspector.compare.search.progress import Progress
from inspector.compare.search.result import (
    Candidate,
    Counts,
    Objective,
    SearchResult,
    Sensitivity,
    candidate,
    layout_of,
)
from inspector.compare.search.space import Group, Space, activations_key, identity
from inspector.core import typed_json
from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text
from inspector.layout import Layout
from inspector.layout.plan import now
from inspector.machines import compiler_options
from inspector.machines.compiler_options import Options
from inspector.machines.hardware import Chip
from inspector.machines.prediction.memory import capacity_of
from inspector.service import compile_cache
from inspector.service.compile_cache import CompileCache
from inspector.service.search import task
from inspector.service.search.executors import ClusterExecutor

DEFAULT_BUDGET = 8  # compiles
MOST_BUDGET = 10_000
EXACT_AT_LEAST = 16  # candidates that are propagated on their own mesh before any is compiled
# Of a group with at least this many scaled candidates, the best one is propagated too, if its figure is at
# least this many times that of the best of all. For Llama-3-8B on 64 chips, its own figure differs by more
# than 4% from the scaled one in 1 of 60 groups below this, and in 21 of 32 groups above it.
_MANY_SCALED = 5
_SLOW = 2.0
# Rounds in which single rules of the best candidate are changed.
_MOST_IMPROVEMENTS = 3
_BETTER = 1e-3  # by which share a changed candidate must be better
_MOST_ROUNDS = 6  # of exact propagation: each can bring other candidates to the front
_IN_FLIGHT = 4  # tasks for each worker that are submitted at once

OUT_OF_BUDGET = "budget"
NONE_BETTER = "none better"


@dataclass
class _Entry:
    layout: Layout
    memory_key: str
    examples: float
    propagated: Evaluated | None = None
    compiled: Evaluated | None = None


@dataclass
class Search:
    """A search that can be watched and stopped from other threads.

    Attributes:
      chip: The chip of predicted times; None to measure steps on emulated devices.
      budget: The most compiles, those from the cache included.
      exhaustive: Compile all candidates up to the budget, also those that cannot be the best.
      sensitivity: Also search without a compile under changed conditions.
      improve: Also change single rules of the best candidate, to rules that the space does not have.
      round_size: Candidates that are compiled before the next ones are chosen. It depends on the budget
        alone, so that the number of workers does not change the result.
      unsafe: Options of the compiler from the command line, for tasks in this process alone. No compile with
        them is cached.
    """

    space: Space
    chip: Chip | None
    executor: Executor
    budget: int = DEFAULT_BUDGET
    objective: Objective = "time"
    store: CompileCache = field(default_factory=lambda: store())
    on_progress: Callable[[Progress], None] | None = None
    workers: int = 1
    exhaustive: bool = False
    sensitivity: bool = False
    improve: bool = True
    unsafe: Options = ()

    def __post_init__(self) -> None:
        self.name = uuid.uuid4().hex
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._version = 0
        self._progress = Progress("propagate", 0, 0, Counts(), None, 0)
        self._finished: str | None = None
        self._message: str | None = None
        self._total = 0
        self._inner: Search | None = None
        self._sensitivity: list[Sensitivity] = []

    @property
    def _chip_name(self) -> str | None:
        return None if self.chip is None else self.chip.name

    @property
    def round_size(self) -> int:
        return max(1, self.budget // 4)

    def run(self) -> SearchResult:
        """Search until no candidate can be better, the budget is spent, or it is stopped.

        Raises:
          InvalidInput: no task can run, such as without the compiler of the target.
        """
        self._total = self.space.count()
        task.compile_with(self.name, self.unsafe)
        try:
            groups = self._propagate(self.space.groups())
            self._check_groups(groups)
            self._verify()
            if self.improve:
                self._improve()
            self._compile()
            if self.sensitivity:
                self._change_conditions()
        except _Stopped:
            self._message = "Stopped. The same search continues from what was found."
        self._report("done", 0, 0, None)
        return self.result()

    def stop(self) -> None:
        """Cancel all tasks. `run` then returns what was found."""
        self._stop.set()
        task.stop(self.name)
        inner = self._inner
        if inner is not None:
            inner.stop()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def progress(self) -> Progress:
        """Return the state at this moment."""
        return self._progress

    def result(self) -> SearchResult:
        """Return what is known so far, the best candidates first."""
        with self._lock:
            figures = self._figures()
            entries = dict(self._entries)
        if self._chip_name is None:
            figures = scaled_to_measured(figures)
        front = pareto(figures)
        current = identity(self.space.layout)
        order = ranked(figures, self.objective)
        best = best_of(figures, self.objective)
        listed: list[Candidate] = []
        for figure in order:
            entry = entries[figure.key]
            if figure.cost is not None:
                listed.append(
                    candidate(
                        *(entry.layout, figure.cost, entry.propagated),
                        figure.key in front,
                        figure.key == current,
                    )
                )
        index = None
        if best is not None:
            index = next(n for n, figure in enumerate(order) if figure.key == best.key)
        return SearchResult(
            target=self.space.layout.target,
            chip=self._chip_name,
            created=now(),
            counts=self._counts(entries.values()),
            candidates=tuple(listed),
            best=index,
            objective=self.objective,
            finished=self._finished,
            sensitivity=tuple(self._sensitivity),
            unsafe_compiler_options=compiler_options.text(self.unsafe) or None,
            message=self._message or (None if best is not None else self._why_none(figures)),
        )

    # --- Phases -----------------------------------------------------------------------------------

    def _propagate(self, groups: Iterable[Group]) -> list[tuple[Layout, ...]]:
        """Propagate one candidate of each group and scale the others from it. Return the new candidates."""
        every: list[tuple[Layout, ...]] = []

        def calls() -> Iterator[tuple[tuple[Layout, ...], bool]]:
            for group in groups:
                new = tuple(self._new(group.layouts))
                if new:
                    every.append(new)
                    yield new, False

        self._run_propagations("propagate", calls(), self._total)
        return every

    def _check_groups(self, groups: Iterable[tuple[Layout, ...]]) -> None:
        """Propagate the best scaled candidate of each slow group, and scale the others from it too.

        On some sizes the partitioner chooses other transfers. A group must not be lost because the mesh that
        was propagated first was such a case. In the groups that are not slow, the best candidates are
        propagated by `_verify`.
        """
        best: list[tuple[float, list[Layout]]] = []
        for group in groups:
            found = []
            for layout in group:
                entry = self._entries[identity(layout)]
                cost = entry.propagated
                if cost is not None and cost.stage == "propagated" and cost.scaled:
                    found.append((value(cost, entry.examples, self.objective), layout))
            if found:
                found.sort(key=lambda one: one[0])
                best.append((found[0][0], [layout for _, layout in found]))
        least = min((figure for figure, _ in best), default=0.0)
        calls = [
            (tuple(layouts), True)
            for figure, layouts in best
            if len(layouts) >= _MANY_SCALED and figure >= _SLOW * least
        ]
        self._run_propagations("verify", iter(calls), sum(len(layouts) for layouts, _ in calls))

    def _verify(self) -> None:
        """Propagate the best candidates on their own mesh, until the best ones all were."""
        wanted = max(EXACT_AT_LEAST, 2 * self.budget)
        for _ in range(_MOST_ROUNDS):
            front = [
                self._entries[figure.key].layout
                for figure in ranked(self._figures(), self.objective)[:wanted]
                if figure.propagated is not None and figure.propagated.scaled
            ]
            if not front:
                return
            self._run_propagations("verify", (((layout,), True) for layout in front), len(front))

    def _improve(self) -> None:
        """Change single rules of the best candidate, until no change makes it better.

        Only changed candidates that are better are kept: most changes have no effect on the step.
        """
        for _ in range(_MOST_IMPROVEMENTS):
            best = self._first()
            if best is None or best.cost is None or best.cost.stage == "rejected":
                return
            new = list(self._new(self.space.near(self._entries[best.key].layout)))
            self._run_propagations("improve", (((layout,), True) for layout in new), len(new))
            least = value(best.cost, best.examples, self.objective) * (1 - _BETTER)
            with self._lock:
                for layout in new:
                    entry = self._entries[identity(layout)]
                    cost = entry.propagated
                    if (
                        cost is None
                        or cost.stage == "rejected"
                        or value(cost, entry.examples, self.objective) > least
                    ):
                        del self._entries[identity(layout)]
            if self._first() == best:
                return

    def _run_propagations(
        self, phase: str, calls: Iterator[tuple[tuple[Layout, ...], bool]], total: int
    ) -> None:
        done = 0
        began = time.monotonic()

        def submit(call: tuple[tuple[Layout, ...], bool]) -> _Task:
            layouts, first = call
            plain = [one.to_json() for one in layouts]
            return self._task(("propagate", plain, self._chip_name, first), layouts)

        for layouts, answer in self._in_window(calls, submit):
            with self._lock:
                for layout, cost in zip(layouts, answer, strict=True):
                    entry = self._entries[identity(layout)]
                    entry.propagated = _better(entry.propagated, cost)
            done += len(layouts)
            self._report(phase, done, total, began)

    def _compile(self) -> None:
        """Compile the most promising candidates, some in each round, until none can be better."""
        began, done = time.monotonic(), 0
        capacity = capacity_of(self.chip) if self.chip and self.space.layout.machine else None
        while done < self.budget:
            most = min(self.round_size, self.budget - done)
            chosen = next_to_compile(
                self._figures(), self.objective, capacity, most, self.exhaustive
            )
            if not done:
                # The current layout comes first: the others are compared with it.
                chosen = self._with_current(chosen, most)
            if not chosen:
                self._finished = NONE_BETTER
                return
            self._report("compile", done, self.budget, began if done else None)

            def submit(figure: Figure) -> _Task:
                layout = self._entries[figure.key].layout
                return self._task(("compile", layout.to_json(), self._chip_name), (layout,))

            for layouts, (cost,) in self._in_window(iter(chosen), submit):
                with self._lock:
                    entry = self._entries[identity(layouts[0])]
                    entry.compiled = _with_state(cost, entry.propagated)
                done += 1
                self._report("compile", done, self.budget, began)
        self._finished = OUT_OF_BUDGET

    def _change_conditions(self) -> None:
        """Search without a compile under each changed condition, and rank the best layout there."""
        best = best_of(self._figures(), self.objective) or self._first()
        if best is None:
            return
        before = self._entries[best.key].layout
        every, began = list(conditions(self.space.layout)), time.monotonic()
        locks = replace(self.space.locks, mesh=False)
        more = ((before.axis_names, before.rules),) if before.entry.has_rules else ()
        for number, condition in enumerate(every):
            self._report("sensitivity", number, len(every), began)
            machine = condition.layout.machine
            inner = Search(
                Space(condition.layout, self.space.axes, locks, more=more),
                machine.chip if machine else self.chip,
                self.executor,
                budget=0,
                objective=self.objective,
                store=self.store,
                workers=self.workers,
                improve=False,
            )
            self._inner = inner
            self._check()
            found = inner.run()
            self._check()
            layouts = [layout_of(one) for one in found.candidates]
            self._sensitivity.append(
                sensitivity(condition, before, list(found.candidates), layouts)
            )

    def _with_current(self, chosen: list[Figure], most: int) -> list[Figure]:
        current = identity(self.space.layout)
        own = [figure for figure in self._figures() if figure.key == current]
        valid = [
            figure
            for figure in own
            if figure.propagated and figure.propagated.stage == "propagated"
        ]
        return [*valid, *(figure for figure in chosen if figure.key != current)][: max(most, 1)]

    # --- Tasks ------------------------------------------------------------------------------------

    def _task(self, request: tuple[Any, ...], layouts: tuple[Layout, ...]) -> _Task:
        """Return a task that is submitted, or done already if its answer is stored.

        A compile with unsafe options is not stored.
        """
        if self.unsafe and request[0] == "compile":
            return _Task(layouts, None, request, self._submitted(request), None)
        key = compile_cache.key_of(
            {"search": json.dumps(request), "versions": compile_cache.versions()}
        )
        kept = self.store.get(key)
        if kept is not None:
            try:
                plain = json.loads(kept)
                known = [typed_json.decode(Evaluated, one, "the cache") for one in plain]
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
        kind, *arguments = request
        function = task.propagate if kind == "propagate" else task.compile_layout
        try:
            return self.executor.submit(function, self.name, *arguments)
        except Exception as error:  # of any executor
            raise _lost(type(error).__name__) from None

    def _in_window(
        self, calls: Iterator[Any], submit: Callable[[Any], _Task]
    ) -> Iterator[tuple[tuple[Layout, ...], list[Evaluated]]]:
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
                        yield submitted.layouts, submitted.known or []
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
                        yield done.layouts, answer
        finally:
            for future, left in waiting.items():
                finished = future.done() and not future.cancelled() and future.exception() is None
                if finished and left.key is not None:
                    self.store.put(left.key, json.dumps(_listed(future.result())))
                future.cancel()

    def _answer(self, done: _Task) -> list[Evaluated] | None:
        """Return the costs of a task's layouts, or None if the task was lost and can be tried again."""
        assert done.future is not None
        try:
            answer = _listed(done.future.result())
        except InvalidInput as error:
            self._check()
            return [rejected(str(error))] * len(done.layouts)
        except (Exception, futures.CancelledError) as error:  # of another machine
            self._check()
            if done.attempts < task.ATTEMPTS:
                return None
            raise _lost(type(error).__name__) from None
        found = [typed_json.decode(Evaluated, one, "the worker's answer") for one in answer]
        if done.key is not None:
            self.store.put(done.key, json.dumps(answer))
        return found

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
                    self._entries[key] = self._entry(layout)
                yield layout

    def _first(self) -> Figure | None:
        """Return the best candidate, also if it is not compiled; None without any."""
        return next(iter(ranked(self._figures(), self.objective)), None)

    def _entry(self, layout: Layout) -> _Entry:
        return _Entry(layout, activations_key(layout, self.space.axes), examples_of(layout))

    def _figures(self) -> list[Figure]:
        return [
            Figure(key, entry.propagated, entry.compiled, entry.examples, entry.memory_key)
            for key, entry in self._entries.items()
        ]

    def _report(self, phase: str, done: int, total: int, began: float | None) -> None:
        self._version += 1
        left = None
        if began is not None and total / 50 < done < total:  # the first ones wait for workers
            left = (time.monotonic() - began) / done * (total - done)
        with self._lock:
            counts = self._counts(self._entries.values())
        self._progress = Progress(phase, done, total, counts, left, self._version)
        if self.on_progress is not None:
            self.on_progress(self._progress)

    def _counts(self, entries: Iterable[_Entry]) -> Counts:
        listed = list(entries)
        costs = [(entry.propagated, entry.compiled) for entry in listed]
        return Counts(
            considered=max(len(listed), self._total if self._finished is None else 0),
            propagated=sum(1 for one, _ in costs if one and one.stage == "propagated"),
            exact=sum(
                1 for one, _ in costs if one and one.stage == "propagated" and not one.scaled
            ),
            compiled=sum(1 for _, one in costs if one and one.stage == "compiled"),
            rejected=sum(
                1 for one, other in costs if (last := other or one) and last.stage == "rejected"
            ),
        )

    def _why_none(self, figures: Sequence[Figure]) -> str | None:
        """Return why there is no best layout: the closest one, and what it lacks."""
        if self.chip is None:
            return None
        capacity = capacity_of(self.chip)
        too_large = [
            figure.compiled.peak_bytes
            for figure in figures
            if figure.compiled and figure.compiled.fits is False and figure.compiled.peak_bytes
        ]
        if too_large:
            return closest_text("compiled", min(too_large), capacity)
        if any(figure.propagated and figure.propagated.stage == "propagated" for figure in figures):
            return None
        state = [
            figure.propagated.state_bytes
            for figure in figures
            if figure.propagated and figure.propagated.state_bytes
        ]
        if state and min(state) > capacity:
            return closest_text("state", min(state), capacity)
        reasons = Counter(
            figure.propagated.reason
            for figure in figures
            if figure.propagated is not None and figure.propagated.reason
        )
        if not reasons:
            return "No layout can run. The reasons are unknown."
        (reason, count), *others = reasons.most_common()
        if not others and count == len(figures):
            return f"No layout can run: {reason.removesuffix('.')}."
        return f"No layout can run. The reason of {count} of {len(figures)}: {reason.removesuffix('.')}."


@dataclass(frozen=True)
class _Task:
    """A submitted task, or one whose answer is known. Its answer is not stored if it has no `key`."""

    layouts: tuple[Layout, ...]
    key: str | None
    request: tuple[Any, ...]
    future: Future[Any] | None
    known: list[Evaluated] | None
    attempts: int = 1


class _Stopped(Exception):
    """The search was stopped."""


def _lost(reason: str) -> InvalidInput:
    return InvalidInput(
        f"a task of the search was lost ({reason}): start the same search again, which "
        "continues from what was found"
    )


def _listed(answer: Any) -> list[Any]:
    return answer if isinstance(answer, list) else [answer]


def store() -> CompileCache:
    """Return the cache of task results that all searches on this machine share."""
    return CompileCache(compile_cache.folder() / "search.sqlite3")


def closest_text(basis: str, needed: int, capacity: int) -> str:
    """Return that no layout fits, with the bytes that the closest one lacks."""
    what = "needs" if basis == "compiled" else "needs at least"
    return (
        f"No layout fits. The closest one {what} {bytes_text(needed)} on one device, which has "
        f"{bytes_text(capacity)}: {bytes_text(needed - capacity)} are missing."
    )


def _better(before: Evaluated | None, cost: Evaluated) -> Evaluated:
    """Return the cost by a candidate's own propagation, or else the smaller of two that were scaled."""
    if before is None or not cost.scaled:
        return cost
    if not before.scaled or (before.seconds or math.inf) <= (cost.seconds or math.inf):
        return before
    return cost


def _with_state(cost: Evaluated, before: Evaluated | None) -> Evaluated:
    if cost.state_bytes is None and before is not None:
        return replace(cost, state_bytes=before.state_bytes)
    return cost
