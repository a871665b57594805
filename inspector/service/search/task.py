"""The tasks of a search: functions of JSON, which an executor runs here or on another machine.

Each starts worker processes of this project where it runs, and returns small records. It shares compiled
Snapshots through the compile cache of that machine.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
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
_running: dict[str, set[Job[Any]]] = {}  # by search
_stopped: set[str] = set()
_unsafe: dict[str, Options] = {}  # options of the compiler by search, never from the request of a task


def bound(search: str, layouts: list[dict[str, Any]], chip: str | None) -> list[dict[str, Any]]:
    """Return the `Bounded` of each layout.

    Raises:
      InvalidInput: the worker failed.
    """
    return _evaluated("bound", search, layouts, chip)


def propagate(search: str, layouts: list[dict[str, Any]], chip: str | None) -> list[dict[str, Any]]:
    """Return the `Evaluated` of each layout, whose program is partitioned.

    Raises:
      InvalidInput: the worker failed.
    """
    return _evaluated("evaluate", search, layouts, chip)


def _evaluated(
    kind: str, search: str, layouts: list[dict[str, Any]], chip: str | None
) -> list[dict[str, Any]]:
    _register(layouts[0])
    payload = {"layouts": layouts, "chip": chip}
    submit = functools.partial(
        _pool().submit, kind, payload, Environment(1), PROPAGATION_TIMEOUT, lane=lanes.CANDIDATES
    )
    found: list[dict[str, Any]] = _answer(search, submit)["evaluated"]
    return found


def compile_layout(search: str, layout: dict[str, Any], chip: str | None) -> dict[str, Any]:
    """Return the `Evaluated` of a layout from its compiled train step.

    Without a chip, the step is run on emulated devices, and its measured time counts.

    Raises:
      InvalidInput: the worker failed or was stopped.
    """
    _register(layout)
    asked = from_json(layout)
    found = _compiled(search, asked)
    if isinstance(found, str):
        return typed_json.encode(rejected(found))
    return typed_json.encode(cost_of(found, None if chip is None else hardware.chip(chip)))


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


def compile_with(search: str, unsafe: Options) -> None:
    """Compile the layouts of a search with unsafe options of the compiler, in this process alone."""
    with _lock:
        _unsafe[search] = unsafe


def stop(search: str) -> None:
    """Cancel the tasks of a search that run in this process."""
    with _lock:
        _stopped.add(search)
        jobs = list(_running.get(search, ()))
    for job in jobs:
        job.cancel()


def _compiled(search: str, layout: Layout) -> Snapshot | str:
    """Return the Snapshot of a compiled layout, from the cache if it is there, or why it cannot run."""
    machine = layout.machine
    with _lock:
        unsafe = _unsafe.get(search, ())
    known = None if unsafe else known_results.compiled(layout)
    if known is not None:
        return known
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
    submit = functools.partial(
        _pool().submit, kind, payload, environment, COMPILE_TIMEOUT, lane=lanes.COMPILES
    )
    try:
        found = snapshot.from_json(_answer(search, submit), "the worker's answer")
    except InvalidInput as error:
        with _lock:
            if search in _stopped:
                raise
        return str(error)
    if not unsafe:
        key = known_results.key_of_measured if machine is None else known_results.key_of_step
        CompileCache().put(key(layout), snapshot.dumps(found))
    return found


def _answer(search: str, submit: Callable[[], Job[dict[str, Any]]]) -> dict[str, Any]:
    """Return the answer of a job. If its worker died, submit it again.

    Raises:
      InvalidInput: the request is refused, the search was stopped, or workers died `ATTEMPTS` times.
    """
    for _ in range(ATTEMPTS):
        job = submit()
        with _kept(search, job):
            status = job.wait().status()
        # A refused request has no details; a worker that died has its last output.
        if status.state != "failed" or status.details is None:
            break
    return job.answer()


@contextlib.contextmanager
def _kept(search: str, job: Job[Any]) -> Iterator[None]:
    """Let `stop` cancel the job."""
    with _lock:
        stopped = search in _stopped
        _running.setdefault(search, set()).add(job)
    if stopped:
        job.cancel()
    try:
        yield
    finally:
        with _lock:
            _running[search].discard(job)


def share(pool: Pool) -> None:
    """Run tasks in this process on the workers of its server, until they are stopped."""
    global _shared
    _shared = pool


def _known_pool() -> Pool | None:
    return _own if _shared is None or _shared.closed else _shared


def _pool() -> Pool:
    global _own
    with _lock:
        pool = _known_pool()
        if pool is None:
            pool = _own = lanes.pool()
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
