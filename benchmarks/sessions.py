"""Many users at once: 50 sessions change rules, 10 of them run, 3 cancel, and all leave.

Counts the errors, the sessions that see their own position in the queue, and the runs of others that a cancel
ends. Measures the memory of the server and of its workers before, during and after. Takes about 10 minutes,
so it runs only by its name. The sessions have no browser: see `page_session`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import processes
from benchmarks.browser import free_port
from benchmarks.count import Count
from benchmarks.page_session import PageSession

SESSIONS = 50
CHANGES = 5  # of rules, by each session
RUNS = 10
CANCELS = 3  # of them
MOST_LEFT = 1.20  # of the memory before
# Streamlit keeps a session for two minutes after its connection.
LEAVE_SECONDS = 300.0
ROOT = Path(__file__).resolve().parents[1]
_SMALL = "mesh=2x1&layers=2&depth=64&steps={steps}&batch={batch}"
_RULES = ("data", "model", "", "data + model")
_PLACE = re.compile(r"place (\d+) in the queue")


@dataclass
class Server:
    """`sharding-inspector serve` with files of its own."""

    url: str
    pid: int
    log: Path
    folder: Path

    def memory(self) -> tuple[int, int]:
        """Return the bytes of the server and of its workers."""
        return (
            processes.resident_bytes([self.pid]),
            processes.resident_bytes(processes.descendants(self.pid)),
        )


@dataclass
class Runner:
    """One of the sessions that run, and what it saw."""

    number: int
    session: PageSession
    places: list[tuple[float, int]] = field(default_factory=list)
    ended: str | None = None


def report(cases: int | None = None) -> str:
    """Return the counts, the memory and the times of at most `cases` sessions."""
    with server() as running:
        return asyncio.run(_report(running, min(cases or SESSIONS, SESSIONS)))


@contextlib.contextmanager
def server(*options: str, variables: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Start the server of a team on this machine, without sign-in. Stop it at the end.

    Args:
      variables: environment variables of the server; without them, it has files of its own.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "SHARDING_INSPECTOR_CACHE": str(folder / "cache"),
            "SHARDING_INSPECTOR_LIBRARY": str(folder / "library"),
            **(variables or {}),
        }
        log = folder / "server.log"
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "inspector", "serve", "--port", str(port), *options],
                cwd=ROOT,
                env=environment,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        url = f"http://127.0.0.1:{port}"
        try:
            processes.until(lambda: _answers(f"{url}/ready"), "the server")
            yield Server(url, process.pid, log, folder)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def _report(running: Server, sessions: int) -> str:
    # A first session imports what all need, and its workers stay.
    await _visit(running, 0, random.Random(0))
    async with PageSession.opened(running.url, query=_SMALL.format(steps=2, batch=8)) as first:
        await _run_to_end(Runner(0, first))
    await asyncio.sleep(10)
    before = running.memory()

    changes = Count("sessions that change rules without an error")
    began = time.monotonic()
    async with contextlib.AsyncExitStack() as pages:
        visits = await asyncio.gather(
            *(_visit(running, number, random.Random(number), pages) for number in range(sessions)),
            return_exceptions=True,
        )
        seconds = [one for visit in visits if isinstance(visit, list) for one in visit]
        for number, visit in enumerate(visits):
            changes.check(_problem(visit), f"session {number}")
        during = running.memory()
        changes.notes.append(
            f"{len(seconds)} changes by {sessions} sessions at once in {time.monotonic() - began:.0f} s: "
            f"median {_quantile(seconds, 0.5):.2f} s, 95% {_quantile(seconds, 0.95):.2f} s"
        )
        places, runs, cancels = await _run_at_once(running, min(RUNS, sessions))
        running_memory = running.memory()
    left = time.monotonic()
    memory = Count(f"memory at most {MOST_LEFT:.2f} times that before, after all have left")
    while time.monotonic() - left < LEAVE_SECONDS:
        await asyncio.sleep(10)
        after = running.memory()
        if all(now <= MOST_LEFT * then for now, then in zip(after, before, strict=True)):
            break
    for place, name in enumerate(("server", "workers")):
        ratio = after[place] / before[place]
        memory.check(None if ratio <= MOST_LEFT else f"{ratio:.2f} times", name)
        memory.notes.append(
            f"{name}: {_mib(before[place])} before, {_mib(during[place])} with {sessions} sessions, "
            f"{_mib(running_memory[place])} after the runs, {_mib(after[place])} "
            f"{time.monotonic() - left:.0f} s after all have left"
        )
    text = running.log.read_text(errors="replace")
    log = Count("no error in the log of the server")
    log.check("it has a traceback" if "Traceback" in text else None, "log")
    return "\n".join(one.text() for one in (changes, places, runs, cancels, memory, log))


async def _visit(
    running: Server,
    number: int,
    chosen: random.Random,
    pages: contextlib.AsyncExitStack | None = None,
) -> list[float]:
    """Open a page and change its rules. Return the seconds of each change. The page stays open in `pages`."""
    query = _SMALL.format(steps=2, batch=8 * (1 + number % 5))
    async with contextlib.AsyncExitStack() as own:
        page = await (pages or own).enter_async_context(PageSession.opened(running.url, query=query))
        await page.until(lambda: _rules(page), "the rules")
        seconds = []
        for _ in range(CHANGES):
            began = time.monotonic()
            await page.type(chosen.choice(_rules(page)), chosen.choice(_RULES))
            seconds.append(time.monotonic() - began)
        if page.exceptions or page.errors():
            raise RuntimeError("; ".join([*page.exceptions, *page.errors()]))
        return seconds


async def _run_at_once(running: Server, count: int) -> tuple[Count, Count, Count]:
    """Run in `count` sessions at once, and cancel in some. Return the counts of places, runs and cancels."""
    places = Count("sessions that see their own position in the queue")
    runs = Count("runs that end as their session asked for")
    cancels = Count("cancels that end no run of others")
    async with contextlib.AsyncExitStack() as pages:
        runners = []
        for number in range(count):
            query = _SMALL.format(steps=400, batch=8 * (number + 10))
            page = PageSession.opened(running.url, query=query)
            runners.append(Runner(number, await pages.enter_async_context(page)))
        await asyncio.gather(*(one.session.click("run_button") for one in runners))
        watching = [asyncio.create_task(_watch(one)) for one in runners]
        await asyncio.sleep(3)
        seen = [one.places[-1][1] if one.places else 0 for one in runners]
        cancelled = random.Random(5).sample(runners, count * CANCELS // RUNS)
        for one in cancelled:
            await one.session.click("cancel_run", wait=False)
        await asyncio.gather(*watching)
        waiting = [one for one in seen if one]
        places.notes.append(f"positions 3 s after the start: {seen}")
        for one, place in zip(runners, seen, strict=True):
            history = [number for _, number in one.places]
            problem = None
            if history != sorted(history, reverse=True):
                problem = f"the positions were {history}"
            elif place and waiting.count(place) > 1:
                problem = f"{waiting.count(place)} sessions are at position {place}"
            elif place > len(waiting):
                problem = f"it is at position {place} of {len(waiting)}"
            places.check(problem, f"session {one.number}")
        for one in runners:
            wanted = "cancelled" if one in cancelled else "done"
            problem = None if one.ended == wanted else f"it is {one.ended}, not {wanted}"
            if one.session.exceptions:
                problem = "; ".join(one.session.exceptions)
            runs.check(problem, f"session {one.number}")
        lost = sum(1 for one in runners if one not in cancelled and one.ended != "done")
        for one in cancelled:
            cancels.check(None if not lost else f"{lost} others ended", f"session {one.number}")
    return places, runs, cancels


async def _run_to_end(one: Runner) -> None:
    await one.session.click("run_button")
    await _watch(one)


async def _watch(one: Runner) -> None:
    """Note the positions of a run until its end."""
    page = one.session
    end = time.monotonic() + processes.PATIENCE
    while page.has("cancel_run") and time.monotonic() < end:
        match = _PLACE.search(page.texts())
        if match and (not one.places or one.places[-1][1] != int(match[1])):
            one.places.append((time.monotonic(), int(match[1])))
        elif not match and "the queue" not in page.texts() and one.places and one.places[-1][1]:
            one.places.append((time.monotonic(), 0))
        await asyncio.sleep(0.1)
    try:
        await page.until(lambda: page.has("run_button"), "the end of the run", 20)
    except TimeoutError as error:
        one.ended = f"{error}; the page shows {page.progress()}"
        return
    text = page.texts()
    errors = page.errors()
    one.ended = "done" if "Run on emulated devices" in text and not errors else "; ".join(errors)
    if any("ancelled" in error for error in errors):
        one.ended = "cancelled"


def _rules(page: PageSession) -> list[str]:
    """Return the keys of the fields with the mesh axes of a rule. Rows have other numbers in each session."""
    return [key for key in page.widget_keys() if re.fullmatch(r"rule:\d+:axes\.\d+", key)]


def _problem(visit: object) -> str | None:
    return f"{type(visit).__name__}: {visit}" if isinstance(visit, BaseException) else None


def _quantile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[min(int(share * len(seconds)), len(seconds) - 1)] if seconds else 0.0


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
