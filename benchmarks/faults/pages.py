"""The pages of a server whose library, history and caches are on a full or read-only disk."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from benchmarks.count import Count
from benchmarks.faults import disks
from benchmarks.page_session import PageSession
from benchmarks.sessions import server

PAGES = ("", "board", "search", "open", "library", "history", "jobs")
_SMALL = "mesh=2x1&layers=2&depth=64&steps=2&batch=8"


def faulty_pages() -> Count:
    """Draw all pages and run a layout, with a full disk and with a read-only one."""
    count = Count("pages and a run of a server on a full or read-only disk")
    for state in (0, "read-only"):
        with tempfile.TemporaryDirectory() as name, disks.mounted(Path(name)) as change:
            variables = {
                "SHARDING_INSPECTOR_CACHE": f"{name}/cache",
                "SHARDING_INSPECTOR_LIBRARY": f"{name}/library",
            }
            change(state)
            with server(variables=variables) as running:
                asyncio.run(_draw(running.url, "full" if state == 0 else str(state), count))
                log = running.log.read_text(errors="replace")
                count.check("a traceback" if "Traceback" in log else None, f"{state}: the log")
    return count


async def _draw(url: str, words: str, count: Count) -> None:
    for page in PAGES:
        async with PageSession.opened(url, page=page) as session:
            count.check("; ".join(session.exceptions) or None, f"{words}: page {page or 'layout'}")
    async with PageSession.opened(url, query=_SMALL) as session:
        await session.click("run_button")
        await session.until(
            lambda: "Run on emulated devices" in session.texts() or session.errors(), "the run"
        )
        problem = "; ".join([*session.exceptions, *session.errors()])
        count.check(problem or None, f"{words}: a run")
