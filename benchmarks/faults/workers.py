"""SIGKILL of a worker process in every phase of every kind of job.

Each job first runs in a new worker, which gives its phases, their seconds and its answer. Then a phase and a
moment in it are drawn, and a process of the worker is killed there. The job must end with one sentence, or
be done; nothing of the worker may be left; and the same job must then give the first answer.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.count import Count
from inspector import layout as layouts
from inspector.guides import assembly, tutorials
from inspector.guides import processes as exchanges
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.machines import targets
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot

KILLS = 100
SMALL = {"model": "mlp", "layers": "2", "depth": "32", "batch": "8", "steps": "2"}
_FINAL = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Kind:
    """A kind of job. `request` asks for it; `facts` returns what is equal in each answer."""

    name: str
    request: Callable[[Inspection], Any]
    facts: Callable[[Any], object]


@dataclass(frozen=True)
class _Known:
    phases: tuple[tuple[str, float], ...]
    facts: object


def killed_workers(kills: int = KILLS, seed: int = 1) -> Count:
    """Kill `kills` workers, one in each job."""
    chosen = random.Random(seed)
    count = Count("a worker is killed; then the same job gives the same answer")
    with _own_folder() as folder, contextlib.closing(_service(folder)) as service:
        known = {one.name: _first(one, service) for one in kinds()}
        places = [(one, number) for one in kinds() for number in range(len(known[one.name].phases))]
        chosen.shuffle(places)
        for one, number in itertools.islice(itertools.cycle(places), kills):
            phase, seconds = known[one.name].phases[number]
            delay = chosen.random() * seconds
            where = f"{one.name}, {delay:.2f} s after the begin of {phase}"
            count.check(_killed(one, known[one.name], number, delay, service, chosen), where)
        service.close()
        left = [path.name for path in (folder / "temporary").iterdir()]
        count.check(f"temporary files are left: {left}" if left else None, "at the end")
        count.notes.append(f"{len(places)} phases of {len(known)} kinds of jobs")
    return count


def kinds() -> list[Kind]:
    """Return the kinds of jobs that this machine can run."""
    found = [
        Kind("shapes", lambda service: service.state(_small()), repr),
        Kind("propagation", lambda service: service.programs(_small()), repr),
        Kind("effects", lambda service: service.effects(_small(), "train_step", None), repr),
        Kind("run", _run(_small()), _without_times),
        Kind("run in two processes", _run(_small(processes="2")), _without_times),
        Kind("timing", _timing, lambda answer: answer.layouts),
        Kind(
            "assembly",
            lambda service: service.assembly(assembly.parse({}).unwrap()),
            repr,
        ),
        Kind(
            "exchange",
            lambda service: service.exchange(exchanges.parse({}).unwrap()),
            repr,
        ),
        Kind("tutorial", _tutorial, lambda answer: answer.complete),
    ]
    for target in ("tpu:v5e:2x2", "gpu:h100:4"):
        if targets.missing_compiler(targets.parse(target)) is None:
            layout = _small(target=target, mesh="2x2")
            found.append(Kind(f"compile for {target}", _run(layout), _without_times))
    return found


def _small(**fields: str) -> Layout:
    return layouts.parse({**SMALL, "mesh": "2x1", **fields}).unwrap()


def _run(layout: Layout) -> Callable[[Inspection], Any]:
    return lambda service: service.run(layout)


def _timing(service: Inspection) -> Any:
    planned = [service.plan(_small(mesh=mesh)) for mesh in ("2x1", "1x2")]
    return service.timing(planned, 6)


def _tutorial(service: Inspection) -> Any:
    guide = next(iter(tutorials.TUTORIALS))
    return service.tutorial(tutorials.parse(guide, **tutorials.defaults(guide)).unwrap())


def _without_times(found: Snapshot) -> str:
    """Return a Snapshot as text, without what differs between two equal runs."""
    plain = replace(
        found,
        source=replace(found.source, created=""),
        programs=tuple(replace(one, seconds=None) for one in found.programs),
    )
    return snapshot.dumps(plain)


def _first(kind: Kind, service: Inspection) -> _Known:
    """Run a job in a new worker."""
    for worker in service.pool.workers():
        processes.kill(worker.pid)
    job = kind.request(service).start()
    phases: dict[str, float] = {}
    while True:
        status = job.status()
        phases |= dict(status.phases)
        if status.state in _FINAL:
            return _Known(tuple(phases.items()), kind.facts(job.wait().answer()))
        time.sleep(0.002)


def _killed(
    kind: Kind, known: _Known, number: int, delay: float, service: Inspection, chosen: random.Random
) -> str | None:
    """Kill a process of the worker of a job. Return what is wrong then, or None."""
    job = kind.request(service).start()
    later = {name for name, _ in known.phases[number:]}
    while job.status().state not in _FINAL and not later & set(_phases(job)):
        time.sleep(0.002)
    time.sleep(delay)
    workers = [worker.pid for worker in service.pool.workers() if worker.busy]
    found = [pid for worker in workers for pid in (worker, *processes.descendants(worker))]
    victim = chosen.choice(found) if found else None
    if victim is not None:
        processes.kill(victim)
    try:
        processes.until(lambda: job.status().state in _FINAL, "the end of the job")
        if victim is not None:
            processes.until(lambda: not processes.alive(victim), "the end of the worker")
    except TimeoutError as error:
        return str(error)
    status = job.status()
    if status.state == "failed" and not _is_sentence(status.error):
        return f"the error is {status.error!r}"
    if status.state == "cancelled":
        return "the job was cancelled"
    if status.state == "failed":
        gone = [pid for pid in found if processes.alive(pid)]
        with contextlib.suppress(TimeoutError):
            processes.until(lambda: not any(map(processes.alive, gone)), "their end", 10)
        if any(map(processes.alive, gone)):
            return "processes of the worker are left"
    again = kind.request(service).start().wait(processes.PATIENCE)
    if again.status().state != "done":
        return f"the next job is {again.status().state}: {again.status().error}"
    if kind.facts(again.answer()) != known.facts:
        return "the next job has another answer"
    return None


def _phases(job: Any) -> Iterator[str]:
    return (name for name, _ in job.status().phases)


def _is_sentence(error: str | None) -> bool:
    return error is not None and "\n" not in error and "Traceback" not in error and 0 < len(error) < 500


def _service(folder: Path) -> Inspection:
    return Inspection(
        run_workers=1,
        compiled=CompileCache(folder / "compiled.sqlite3"),
    )


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    """Make a folder in which this process and its workers keep all files."""
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory() as name:
        temporary = Path(name) / "temporary"
        temporary.mkdir()
        tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
        try:
            yield Path(name)
        finally:
            tempfile.tempdir = before[0]
            del os.environ["TMPDIR"]
            if before[1] is not None:
                os.environ["TMPDIR"] = before[1]
