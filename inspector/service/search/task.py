"""The tasks of a search, which an executor runs on the workers of this machine or of another one.

A task is a job of the pool of its machine, or a compiled Snapshot of the compile cache that the machine has.
Requests and answers are JSON, and answers are small.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from typing import Any

from inspector.assessment import assess
from inspector.compare.search.evaluated import Evaluated, of_assessment, rejected
from inspector.core import snapshot, typed_json
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.core.step_program import step_program
from inspector.core.totals import totals
from inspector.layout import Layout, from_json
from inspector.machines import compiler_options, hardware, out_of_memory, targets
from inspector.machines.compiler_options import Options
from inspector.machines.hardware import Chip
from inspector.machines.prediction.memory import STATE_AND_BATCH
from inspector.model import own_model
from inspector.service import known_results, lanes
from inspector.service.compile_cache import CompileCache
from inspector.service.engine import Environment, Job, Pool
from inspector.service.engine.pool import WorkerStatus
from inspector.service.own_model_registration import register_own

PROPAGATION_TIMEOUT = 600.0  # seconds; a large model takes about five
COMPILE_TIMEOUT = 3600.0  # seconds, as for a compile from the page
ATTEMPTS = 3  # of a task whose worker died

_lock = threading.Lock()
_own: Pool | None = None  # of this process; started when it is first needed
_shared: Pool | None = None  # of the server


def run(kind: str, layouts: list[dict[str, Any]], chip: str | None) -> list[dict[str, Any]]:
    """Return the records of a task as JSON, one for each layout; wait for its job.

    Raises:
      InvalidInput: the worker failed.
    """
    return start(kind, layouts, chip).result()


def start(
    kind: str,
    layouts: list[dict[str, Any]],
    chip: str | None,
    workers: int | None = None,
    unsafe: Options = (),
) -> Future[list[dict[str, Any]]]:
    """Start a task, and return its future. If that is cancelled, so is the job.

    A task `bound` returns a `Bounded` for each layout, `propagate` an `Evaluated` from its partitioned
    program, and `compile` one from the compiled train step of a single layout. Without a chip, that step is
    run on emulated devices, and its measured time counts.

    Args:
      workers: how many tasks run at once, unless they run on the workers of a server.
      unsafe: options of the compiler, for tasks in this process alone, never from the request of a task.

    Raises:
      InvalidInput: the layout is not valid, or a compiler is missing.
    """
    _register(layouts[0])
    pool = _pool(workers)
    if kind == "compile":
        return _compiled(pool, from_json(layouts[0]), None if chip is None else hardware.chip(chip), unsafe)
    payload = {"layouts": layouts, "chip": chip}
    job = {"bound": "bound", "propagate": "evaluate"}[kind]
    submit = functools.partial(
        pool.submit, job, payload, Environment(1), PROPAGATION_TIMEOUT, lane=lanes.CANDIDATES
    )
    return _future(submit, lambda job: job.answer()["evaluated"])


def cost_of(snapshot: Snapshot, chip: Chip | None) -> Evaluated:
    """Return the cost of a compiled layout on chips of this kind, or of a measured one."""
    state = totals(snapshot, STATE_AND_BATCH).per_device
    short = out_of_memory.findings(snapshot)
    if not short and (step_program(snapshot) is None or snapshot.mesh is None):
        return rejected("it has no program", state_bytes=state)
    assessment = assess(snapshot, chip)
    if chip is None and not short and (assessment.step is None or assessment.step.kind != "measured"):
        return rejected("its steps were not measured", state_bytes=state)
    cost = of_assessment(assessment, "compiled", state)
    return replace(cost, reason=short[0].message) if short else cost


def _compiled(pool: Pool, layout: Layout, chip: Chip | None, unsafe: Options) -> Future[list[dict[str, Any]]]:
    """Compile a layout, unless the cache has its Snapshot."""
    machine, known = layout.machine, None if unsafe else known_results.compiled(layout)
    if known is not None:
        future: Future[list[dict[str, Any]]] = Future()
        future.set_result([typed_json.encode(cost_of(known, chip))])
        return future
    variables = compiler_options.unsafe_variables(unsafe)
    if machine is not None:
        if (missing := targets.missing_compiler(machine)) is not None:
            raise InvalidInput(missing)
        environment = Environment(1, (*targets.environment(machine), *variables))
        kind = "compile"
    else:
        environment, kind = Environment(layout.devices, variables), "run"
    payload: dict[str, Any] = {"layout": layout.to_json()}
    payload |= {"memory": None} if machine is None else {"only": known_results.step_name(layout)}

    def evaluate(job: Job[dict[str, Any]]) -> list[dict[str, Any]]:
        try:
            compiled = snapshot.from_json(job.answer(), "the worker's answer")
        except InvalidInput as error:
            return [typed_json.encode(rejected(str(error)))]
        if not unsafe:
            key = known_results.key_of_measured if machine is None else known_results.key_of_step
            CompileCache().put(key(layout), snapshot.dumps(compiled))
        return [typed_json.encode(cost_of(compiled, chip))]

    submit = functools.partial(pool.submit, kind, payload, environment, COMPILE_TIMEOUT, lane=lanes.COMPILES)
    return _future(submit, evaluate)


def _future(submit: Callable[[], Job[Any]], answer: Callable[[Job[Any]], Any]) -> Future[Any]:
    """Submit a job, again if its worker dies, at most `ATTEMPTS` times. Return the future of its answer.

    answer: makes the answer of the ended job.
    """
    future: Future[Any] = Future()
    jobs: list[Job[Any]] = []

    def begin() -> None:
        jobs.append(submit())
        jobs[-1].when_ended(end)
        if future.cancelled():
            jobs[-1].cancel()

    def end() -> None:
        if future.cancelled():
            return
        status = jobs[-1].status()
        with contextlib.suppress(InvalidStateError):  # it was cancelled meanwhile
            try:
                # A refused request has no details; a worker that died has its last output.
                if status.state == "failed" and status.details is not None and len(jobs) < ATTEMPTS:
                    begin()
                else:
                    future.set_result(answer(jobs[-1]))
            except InvalidStateError:
                raise
            except Exception as error:
                future.set_exception(error)

    begin()
    future.add_done_callback(lambda done: jobs[-1].cancel() if done.cancelled() else None)
    return future


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
