"""SIGKILL of a server during a run, and while it saves.

The servers follow each other with the same files. After each kill no worker may be left, and every entry of
the library must be whole. The next server must draw its pages, run and save again.
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
from inspector.jobs.library import Library
from inspector.text.errors import InvalidInput

KILLS = 10
SAVES = 50
_MOST_OF_RUN = 1.3  # of the seconds of a first run, from the click on the button to the kill
_MOST_OF_SAVE = 1.3  # of the seconds of a first save
_SMALL = "mesh=2x1&layers=2&depth=64&steps=20&batch=8"


def killed_servers(kills: int = KILLS, seed: int = 4) -> Count:
    """Kill `kills` servers, each during a run or after it."""
    count = Count("a server is killed during a run")
    chosen = random.Random(seed)
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
                problem = asyncio.run(_run_and_kill(running, delay))
            count.check(problem, f"{number}, {delay:.1f} s after the click")
    return count


def killed_saves(kills: int = SAVES, seed: int = 5) -> Count:
    """Kill `kills` servers, each while a page saves a planned Snapshot in the library."""
    count = Count("a server is killed while a page saves")
    chosen = random.Random(seed)
    ended = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "library"
        variables = {
            "SHARDING_INSPECTOR_CACHE": f"{name}/cache",
            "SHARDING_INSPECTOR_LIBRARY": str(folder),
        }
        with server(variables=variables) as running:
            asyncio.run(_save(running))  # makes the library
        most = 0.0
        library = Library(folder / "saved.sqlite3")
        for number in range(kills + 1):  # the first one is only measured
            for entry in library.entries():
                library.delete(entry.name)
            with server(variables=variables) as running:
                if not most:
                    most = _MOST_OF_SAVE * asyncio.run(_save(running))
                    continue
                delay = chosen.random() * most
                asyncio.run(_save(running, delay))
            problem = None
            try:
                for entry in library.entries():
                    library.open(entry.name)
                    ended += 1
            except InvalidInput as error:
                problem = str(error)
            count.check(problem, f"{number}, {1000 * delay:.0f} ms after the click")
    count.notes.append(f"{ended} of {kills} entries were written before the kill")
    return count


async def _save(running: Server, kill_after: float | None = None) -> float:
    """Save on the Layout page, and return the seconds; or kill the server so many seconds after the click."""
    with contextlib.suppress(ConnectionError):
        async with PageSession.opened(running.url, query=_SMALL) as page:
            await page.until(lambda: page.has("keep:open"), "the button Keep")
            await page.click("keep:open")
            await page.until(lambda: page.has("keep"), "the dialog")
            began = time.monotonic()
            await page.click("keep", wait=False)
            if kill_after is not None:
                await asyncio.sleep(kill_after)
                processes.kill(running.pid)
            await page.until(lambda: "Saved" in page.texts(), "the entry")
            return time.monotonic() - began
    return 0.0


async def _seconds(running: Server) -> float:
    """Return how long the first run of a server takes."""
    async with PageSession.opened(running.url, query=_SMALL) as page:
        began = time.monotonic()
        await page.click("run_button")
        await page.until(lambda: "Run on emulated devices" in page.texts(), "the run")
        return time.monotonic() - began


async def _run_and_kill(running: Server, delay: float) -> str | None:
    async with PageSession.opened(running.url, page="library") as page:
        if page.exceptions or page.errors():
            return "; ".join([*page.exceptions, *page.errors()])
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
