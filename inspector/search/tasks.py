"""The tasks of a search, which an executor runs on the workers of this machine or of another one.

A task is a job of the pool of its machine, or a compiled Snapshot of the compile cache that the machine has.
Requests and answers are JSON, and answers are small. An executor, of this machine or of a Dask cluster, is a
`concurrent.futures.Executor`.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from inspector.assessment import assess
from inspector.jobs import compile_cache, lanes
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.engine import Environment, Job, Pool
from inspector.jobs.engine.pool import WorkerStatus
from inspector.jobs.inspection import Inspection
from inspector.jobs.own_model_registration import register_own
from inspector.layout import Layout, from_json
from inspector.machines import compiler_options, hardware, out_of_memory, targets
from inspector.machines.compiler_options import Options
from inspector.machines.hardware import Chip
from inspector.model import own_model
from inspector.prediction.memory import STATE_AND_BATCH
from inspector.prediction.step_program import step_program
from inspector.records import snapshot, typed_json
from inspector.records.snapshot import Snapshot
from inspector.search.result import Candidate, SearchResult, layout_of, of_assessment, together
from inspector.sharding.totals import totals
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import mesh_sizes_text, numbered

MOST = 4  # layouts, the current one included


def snapshots_of(result: SearchResult, service: Inspection) -> tuple[list[tuple[str, Snapshot]], int]:
    """Return names and Snapshots: the layout that the search began with, then the best ones.

    Compiled ones, and those that the search ran on this machine, come from the cache. Others are plans with
    partitioned programs. Also return how many of these the search had compiled or run, on another machine or
    with other versions.

    Raises:
      InvalidInput: a layout is not valid, or its model cannot be traced.
    """
    chosen = [candidate for candidate in result.candidates if candidate.current]
    chosen += [
        candidate
        for candidate in result.candidates
        if not candidate.current and candidate.stage != "rejected"
    ]
    snapshots, names, lost = [], [], 0
    for candidate in chosen[:MOST]:
        layout = layout_of(candidate)
        # On emulated devices a search for a chip runs layouts too; the median is in no result then.
        snapshot = compile_cache.compiled(layout) or compile_cache.measured(layout, candidate.measured)
        lost += snapshot is None and candidate.stage == "compiled"
        snapshots.append(snapshot or service.with_programs(service.plan(layout), layout))
        name = mesh_sizes_text(layout.axis_names, layout.mesh_shape)
        names.append(f"{name} (current)" if candidate.current else name)
    return list(zip(numbered(names), snapshots, strict=True)), lost


PROPAGATION_TIMEOUT = 600.0  # seconds; a large model takes about five
COMPILE_TIMEOUT = 3600.0  # seconds, as for a compile from the page
ATTEMPTS = 3  # of a task whose worker died

# A job, or None without one, and what returns the records of its task as JSON.
Started: TypeAlias = tuple[Job[dict[str, Any]] | None, Callable[[], list[dict[str, Any]]]]

_lock = threading.Lock()
_own: Pool | None = None  # of this process; started when it is first needed
_shared: Pool | None = None  # of the server


class WorkerDied(InvalidInput):
    """The worker of a task died, so that another one can run it."""


def run(
    kind: str, layouts: list[dict[str, Any]], chip: str | None, programs: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the records of a task as JSON, one for each layout; wait for its job.

    Raises:
      InvalidInput: the layout is not valid, a compiler is missing, or the worker failed.
    """
    job, answer = start(kind, layouts, chip, programs)
    if job is not None:
        job.wait()
    return answer()


def start(
    kind: str,
    layouts: list[dict[str, Any]],
    chip: str | None,
    programs: Sequence[str] = (),
    *,
    workers: int | None = None,
    unsafe: Options = (),
) -> Started:
    """Start the job of a task. Return it, and the function that makes its answer at the end.

    Each layout has a `Candidate`: with bounds from a task `bound`, with the cost of its partitioned
    programs from `partition`, and of its compiled programs from `compile`, which takes a single layout.
    Without a chip, a step is run on emulated devices, and its measured time counts.

    Args:
      programs: those whose cost is needed; that of a step if there are none.
      workers: the number of tasks at once, unless they run on the workers of a server.
      unsafe: options of the compiler, for tasks in this process alone, never from the request of a task.

    Raises:
      InvalidInput: the layout is not valid, or a compiler is missing.
    """
    _register(layouts[0])
    pool = _pool(workers)
    if kind == "compile":
        of_chip = None if chip is None else hardware.chip(chip)
        return _compile(pool, from_json(layouts[0]), of_chip, tuple(programs), unsafe)
    job = pool.submit(
        {"bound": "bound", "estimate": "estimate", "partition": "evaluate"}[kind],
        {"layouts": layouts, "chip": chip, "programs": list(programs)},
        Environment(1),
        PROPAGATION_TIMEOUT,
        lane=lanes.CANDIDATES,
    )
    return job, lambda: _result(job)["evaluated"]


def cost_of(snapshot: Snapshot, chip: Chip | None, programs: Sequence[str] = ()) -> Candidate:
    """Return the cost of a compiled layout on chips of this kind, or of a measured one."""
    if not programs:
        return _cost_of(snapshot, chip)
    costs = {name: _cost_of(_alone(snapshot, name), chip) for name in programs}
    step = step_program(snapshot)
    return together(costs, programs[0] if step is None else step.name)


def _cost_of(snapshot: Snapshot, chip: Chip | None) -> Candidate:
    """Return the cost of the program of a step."""
    state = totals(snapshot, STATE_AND_BATCH).per_device
    short = out_of_memory.findings(snapshot)
    if not short and (step_program(snapshot) is None or snapshot.mesh is None):
        return Candidate("rejected", "it has no program", state_bytes=state)
    assessment = assess(snapshot, chip)
    if chip is None and not short and (assessment.step is None or assessment.step.kind != "measured"):
        return Candidate("rejected", "its steps were not measured", state_bytes=state)
    cost = of_assessment(assessment, "compiled", state)
    return replace(cost, reason=short[0].message) if short else cost


def _alone(snapshot: Snapshot, name: str) -> Snapshot:
    """Return a Snapshot with one program, which needs the arrays of the state that it does not take, too."""
    program = snapshot.program(name)
    if program is None:
        return replace(snapshot, programs=())
    taken = {sharding.path for sharding in program.shardings if sharding.role == "input" and sharding.used}
    others = tuple(array for array in snapshot.arrays if array.path not in taken)
    held, figures = totals(replace(snapshot, arrays=others), STATE_AND_BATCH).per_device, program.memory
    if held and figures is not None and figures.arguments is not None:
        peak = None if figures.peak is None else figures.peak + held
        figures = replace(figures, arguments=figures.arguments + held, peak=peak)
    return replace(snapshot, programs=(replace(program, memory=figures),))


def _compile(
    pool: Pool, layout: Layout, chip: Chip | None, programs: tuple[str, ...], unsafe: Options
) -> Started:
    """Compile a layout, without a job if the cache has its Snapshot."""
    only = programs or (layout.step_program,)
    machine, known = layout.machine, None if unsafe else compile_cache.compiled(layout, only=only)
    if known is not None:
        cost = cost_of(known, chip, programs)
        return None, lambda: [typed_json.encode(cost)]
    variables = compiler_options.unsafe_variables(unsafe)
    payload: dict[str, Any] = {"layout": layout.to_json()}
    if machine is not None:
        if (missing := targets.missing_compiler(machine)) is not None:
            raise InvalidInput(missing)
        kind, environment = "compile", Environment(1, (*targets.environment(machine), *variables))
        payload |= {"only": only}
    else:
        kind, environment = "run", Environment(layout.devices, variables)
        payload |= {"memory": None}
    job = pool.submit(kind, payload, environment, COMPILE_TIMEOUT, lane=lanes.COMPILES)

    def answer() -> list[dict[str, Any]]:
        try:
            compiled = snapshot.from_json(_result(job), "the worker's answer")
        except WorkerDied:
            raise
        except InvalidInput as error:
            return [typed_json.encode(Candidate("rejected", str(error)))]
        if not unsafe:
            key = compile_cache.key_of_measured(layout)
            if machine is not None:
                key = compile_cache.key_of_programs(layout, only)
            CompileCache().put(key, snapshot.dumps(compiled))
        return [typed_json.encode(cost_of(compiled, chip, programs))]

    return job, answer


def _result(job: Job[dict[str, Any]]) -> dict[str, Any]:
    """Return the answer of an ended job.

    Raises:
      WorkerDied: its worker died.
      InvalidInput: the request was refused.
      ConnectionError: the job was cancelled, so it says nothing about the layouts.
    """
    status = job.status()
    if status.state == "cancelled":
        raise ConnectionError(status.error)
    # A refused request has no details; a worker that died has its last output.
    if status.state == "failed" and status.details is not None:
        raise WorkerDied(status.error or "the worker died")
    return job.answer()


def share(pool: Pool) -> None:
    """Run tasks in this process on the workers of its server, until they are stopped."""
    global _shared
    _shared = pool


def _known_pool() -> Pool | None:
    return _own if _shared is None or _shared.closed else _shared


def _pool(workers: int | None) -> Pool:
    global _own
    with _lock:
        pool = _known_pool()
        if pool is None:
            pool = _own = lanes.pool(tasks=workers)
        return pool


def _register(layout: dict[str, Any]) -> None:
    """Register the user's own model in this process, which may be on another machine."""
    name = layout.get("model")
    if isinstance(name, str) and own_model.FORM.fullmatch(name):
        register_own(name)


def workers() -> tuple[WorkerStatus, ...]:
    """Return the worker processes of tasks in this process."""
    with _lock:
        pool = _known_pool()
    return () if pool is None else pool.workers(lanes.CANDIDATES, lanes.COMPILES)


def close() -> None:
    """Stop the worker processes of tasks in this process, except those of a server."""
    global _own
    with _lock:
        pool, _own = _own, None
    if pool is not None:
        pool.close()


RECONNECT_SECONDS = 5.0
NO_WORKER_SECONDS = 120.0  # a cluster that grows by itself takes a while to get its first worker
_COUNT_SECONDS = 5.0  # between two questions for the number of workers
_CONNECT_SECONDS = 5  # until a scheduler that does not answer is reported


class ClusterExecutor(Executor):
    """An executor that can lose its scheduler or all its workers.

    Futures of Dask then never end, so its user asks for `problem` now and then, in the thread that submits.
    """

    def __init__(self, executor: Executor, client: Any) -> None:
        self._executor = executor
        self._client = client
        self._waiting: dict[Future[Any], Any] = {}  # with the connection that each was sent over
        self._lost_at: float | None = None
        self._alone_since: float | None = None  # when it was first seen without workers
        self._counted_at = 0.0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a task to the cluster."""
        inner = self._executor.submit(function, *args, **kwargs)
        outer: Future[Any] = Future()
        # While it reconnects, there is no connection, and the task is sent over the next one.
        self._waiting[outer] = self._client.scheduler_comm

        def finish(_: Future[Any]) -> None:
            with suppress(InvalidStateError):  # it was lost or cancelled
                if inner.cancelled():
                    outer.set_exception(ConnectionError("the task was cancelled"))
                elif (error := inner.exception()) is not None:
                    outer.set_exception(error)
                else:
                    outer.set_result(inner.result())

        def forget(_: Future[Any]) -> None:
            self._waiting.pop(outer, None)
            if outer.cancelled():
                inner.cancel()

        outer.add_done_callback(forget)
        inner.add_done_callback(finish)
        return outer

    def problem(self) -> str | None:
        """Return why tasks do not end, or None. End the futures that another scheduler does not know.

        The scheduler does not answer for `RECONNECT_SECONDS`, or has no worker for `NO_WORKER_SECONDS`.
        """
        now = time.monotonic()
        if self._client.status != "running":
            self._lost_at = self._lost_at or now
            lost = now - self._lost_at >= RECONNECT_SECONDS
            return "the Dask scheduler does not answer" if lost else None
        self._lost_at = None
        self._end_lost(self._client.scheduler_comm)
        if now - self._counted_at >= _COUNT_SECONDS:
            self._counted_at = now
            with suppress(Exception):  # the scheduler has just gone, which the next call sees
                alone = not self._client.scheduler_info()["workers"]
                self._alone_since = (self._alone_since or now) if alone else None
        if self._alone_since is not None and now - self._alone_since >= NO_WORKER_SECONDS:
            return f"the Dask cluster had no workers for {NO_WORKER_SECONDS:.0f} seconds"
        return None

    def _end_lost(self, connection: Any) -> None:
        for future, sent_over in list(self._waiting.items()):
            if sent_over is None:
                self._waiting[future] = connection
            elif sent_over is not connection:
                with suppress(InvalidStateError):
                    future.set_exception(ConnectionError("the scheduler was lost"))


def local_workers() -> int:
    """Return the number of tasks that this machine runs at once."""
    return os.cpu_count() or 1


@dataclass
class LocalExecutor(Executor):
    """Runs tasks in worker processes of this machine. `workers` and `unsafe` are those of `task.start`."""

    workers: int | None = None
    unsafe: Options = ()

    def submit(self, function: Callable[..., Any], /, *request: Any, **_: Any) -> Future[Any]:
        """Start a task, without a thread that waits for it. `function` is `task.run`.

        The result of the future returns the records of the task, which takes a moment.
        """
        kind, layouts, chip, *programs = request
        future: Future[Any] = Future()
        try:
            job, answer = start(kind, layouts, chip, *programs, workers=self.workers, unsafe=self.unsafe)
        except InvalidInput as error:
            future.set_exception(error)
            return future
        if job is None:
            future.set_result(answer)
            return future

        def end(_: Future[None]) -> None:
            with suppress(InvalidStateError):  # it was cancelled
                future.set_result(answer)

        job.ended.add_done_callback(end)
        future.add_done_callback(lambda done: job.cancel() if done.cancelled() else None)
        return future


@contextmanager
def local(workers: int | None = None, unsafe: Options = ()) -> Iterator[Executor]:
    """Run tasks on this machine."""
    yield LocalExecutor(workers, unsafe)


@contextmanager
def dask(address: str) -> Iterator[Executor]:
    """Run tasks on the Dask cluster of a scheduler such as `tcp://scheduler:8786`.

    Raises:
      InvalidInput: dask.distributed is not installed, or no scheduler answers at the address.
    """
    try:
        from distributed import Client
    except ImportError:
        raise InvalidInput(
            "--dask needs dask.distributed, which is not installed: pip install 'sharding-inspector[dask]'"
        ) from None

    class ClosedOnError(Client):
        """A client that is closed if it cannot start. Otherwise its destructor fails when Python exits."""

        def start(self, **settings: Any) -> None:
            try:
                super().start(**settings)
            except BaseException:
                with suppress(Exception):
                    self.close(timeout=1)
                raise

    try:
        for name in ("distributed", "distributed.client", "tornado.application"):
            # A lost scheduler ends the search with one sentence, without the log of its connection.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        client = ClosedOnError(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInput(
            f"--dask is {shown(address)}, but must be the address of a Dask scheduler that answers, such as "
            f"tcp://scheduler:8786: {reason}"
        ) from None
    try:
        # A task is pure: equal ones may share a result, and a lost one is run again.
        yield ClusterExecutor(client.get_executor(pure=False, retries=2), client)
    finally:
        # Without a scheduler, it waits for one until the timeout.
        with suppress(TimeoutError):
            client.close(timeout=_CONNECT_SECONDS if client.status == "running" else 1)
