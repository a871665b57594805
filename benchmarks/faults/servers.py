"""SIGKILL of a server during a run and while it writes the run to the history.

The servers follow each other with the same files. After each kill no worker may be left, and every entry of
the history must be whole. The next server must draw the History page and run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from pathlib import Path

from benchmarks import processes
from benchmarks.count import Count
from benchmarks.page_session import PageSession
from benchmarks.sessions import Server, server
from inspector.core.errors import InvalidInput
from inspector.service.history import History

KILLS = 10
_MOST_OF_RUN = 1.3  # of the seconds of a first run, from the click on the button to the kill
_SMALL = "mesh=2x1&layers=2&depth=64&steps=20&batch=8"


def killed_servers(kills: int = KILLS, seed: int = 4) -> Count:
    """Kill `kills` servers, each during a run or after it."""
    count = Count("a server is killed during a run")
    chosen = random.Random(seed)
    ended = 0
    with tempfile.TemporaryDirectory() as name:
        variables = {
            "SHARDING_INSPECTOR_CACHE": f"{name}/cache",
            "SHARDING_INSPECTOR_LIBRARY": f"{name}/library",
        }
        with server(variables=variables) as running:
            most = _MOST_OF_RUN * asyncio.run(_seconds(running))
        for number in range(kills):
            delay = chosen.random() * most
            with server(variables=variables) as running:
                before = _entries(Path(name))
                problem = asyncio.run(_run_and_kill(running, delay, before))
                problem = problem or _wrong(Path(name), before)
                ended += _entries(Path(name)) - before
            count.check(problem, f"{number}, {delay:.1f} s after the click")
    count.notes.append(f"{ended} of {kills} runs ended before the kill")
    return count


async def _seconds(running: Server) -> float:
    """Return how long the first run of a server takes."""
    async with PageSession.opened(running.url, query=_SMALL) as page:
        began = time.monotonic()
        await page.click("run_button")
        await page.until(lambda: "Run on emulated devices" in page.texts(), "the run")
        return time.monotonic() - began


async def _run_and_kill(running: Server, delay: float, entries: int) -> str | None:
    async with PageSession.opened(running.url, page="history") as page:
        if page.exceptions or page.errors():
            return "; ".join([*page.exceptions, *page.errors()])
        if (entries == 0) != ("empty" in page.texts()):
            return f"the page does not show {entries} entries"
    workers = []
    with contextlib.suppress(ConnectionError):
        async with PageSession.opened(running.url, query=_SMALL) as page:
            await page.click("run_button", wait=False)
            await asyncio.sleep(delay)
            workers = processes.descendants(running.pid)
            processes.kill(running.pid)
    try:
        processes.until(lambda: not any(map(processes.alive, workers)), "the end of workers", 20)
    except TimeoutError as error:
        return str(error)
    return None


def _entries(folder: Path) -> int:
    return len(History(folder / "library" / "history.sqlite3").entries())


def _wrong(folder: Path, before: int) -> str | None:
    history = History(folder / "library" / "history.sqlite3")
    try:
        entries = history.entries()
        if len(entries) not in (before, before + 1):
            return f"{before} entries became {len(entries)}"
        damaged = [one.id for one in entries if history.run(one.id) is None]
        return f"{damaged} have no Snapshot" if damaged else None
    except InvalidInput as error:
        return str(error)
