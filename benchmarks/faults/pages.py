"""The pages of a server whose library, caches and audit log are on a full or read-only disk."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.browser import free_port
from benchmarks.count import Count
from benchmarks.faults import disks
from benchmarks.page_session import PageSession
from benchmarks.processes import PATIENCE
from benchmarks.sessions import server

PAGES = ("", "board", "search", "open", "library", "jobs")
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
            audit = Path(name) / "audit.jsonl"
            audit.touch(0o600)
            change(state)
            words = "full" if state == 0 else str(state)
            options = ["--audit-log", str(audit)]
            if state == "read-only":
                count.check(_not_refused(options), f"{words}: a server with an audit log")
                options = []
            with server(*options, variables=variables) as running:
                asyncio.run(_draw(running.url, words, count))
                log = running.log.read_text(errors="replace")
                count.check("a traceback" if "Traceback" in log else None, f"{words}: the log")
                if options:
                    count.check(_lines_missing(audit, log), f"{words}: the audit log")
                    change(None)
                    asyncio.run(_draw(running.url, "with room again", count))
                    found = len(audit.read_text().splitlines())
                    count.check(None if found else "it is empty", "with room again: the audit log")
    return count


def _not_refused(options: list[str]) -> str | None:
    """Return what is wrong if a server with these options does not end with one sentence."""
    ended = subprocess.run(
        [sys.executable, "-m", "inspector", "serve", "--port", str(free_port()), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    lines = ended.stderr.splitlines()
    if ended.returncode == 2 and len(lines) == 1 and "audit log" in lines[0]:
        return None
    return f"exit status {ended.returncode}: {ended.stderr[-300:]}"


def _lines_missing(audit: Path, log: str) -> str | None:
    """Return what is wrong with an audit log on a full disk."""
    for line in audit.read_text().splitlines():
        try:
            json.loads(line)
        except ValueError:
            return f"it has half a line: {line[:100]}"
    return None if "audit log" in log else "the server does not say that it cannot be written"


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
