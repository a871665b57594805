"""Ten tabs that open the largest allowed files at once, on a server with little memory.

Counts the tabs whose page ends with a Snapshot or a sentence, the answers to health checks within a second,
and the moments at which server and workers together are within the limit. Measures their memory before, at
most, and after the tabs have closed. The memory is that of the processes, with shared pages divided among
them, so it is measured without a container. Takes some minutes, so it runs only by its name. The sessions
have no browser: see `page_session`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import processes
from benchmarks.count import Count
from benchmarks.page_session import PageSession
from benchmarks.sessions import Server, server
from inspector.jobs import host_memory
from inspector.readers import limits

TABS = 10
MOST_BYTES = 2 * 1024**3  # of the server and its workers together
MOST_SECONDS = 1.0  # until the answer to a health check
LEAVE_SECONDS = 120.0
MOST_LEFT = 1.25  # of the memory before, after all have left
_CHECK_SECONDS = 0.25


@dataclass
class Watch:
    """Asks for the server's health and its memory in a thread, until `stop`."""

    running: Server
    answers: list[float] = field(default_factory=list)  # seconds, infinity for an error
    memory: list[int] = field(default_factory=list)  # bytes of server and workers
    server_memory: list[int] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def watching(self):
        """Watch until the end of the block."""
        threads = [threading.Thread(target=one, daemon=True) for one in (self._ask, self._measure)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._end.set()
            for thread in threads:
                thread.join()

    def measure(self) -> tuple[int, int]:
        """Return the bytes of the server, and of the server and its workers together."""
        own = host_memory.proportional_bytes(self.running.pid, children=False) or 0
        below = (
            host_memory.proportional_bytes(pid, children=False) or 0
            for pid in processes.descendants(self.running.pid)
        )
        return own, own + sum(below)

    def _ask(self) -> None:
        while not self._end.wait(_CHECK_SECONDS):
            began = time.monotonic()
            try:
                with urllib.request.urlopen(f"{self.running.url}/_stcore/health", timeout=30):
                    self.answers.append(time.monotonic() - began)
            except (urllib.error.URLError, OSError):
                self.answers.append(float("inf"))

    def _measure(self) -> None:
        while not self._end.wait(_CHECK_SECONDS):
            own, together = self.measure()
            self.server_memory.append(own)
            self.memory.append(together)


def report(cases: int | None = None) -> str:
    """Return the counts and the memory of at most `cases` tabs."""
    with tempfile.TemporaryDirectory() as name:
        files = [large_file(Path(name), number) for number in range(min(cases or TABS, TABS))]
        variables = {host_memory.VARIABLE: f"{MOST_BYTES} B"}
        with server(variables=variables) as running:
            return asyncio.run(_report(running, files))


def large_file(folder: Path, number: int) -> Path:
    """Write one of the largest files that may be uploaded, of three kinds.

    A small archive of a million collectives; one of the allowed number of collectives; and one of these with
    bytes that cannot be compressed, up to the size of an upload.
    """
    path = folder / f"large-{number}.zip"
    kind = number % 3
    count = 1_000_000 if kind == 0 else limits.MOST_COLLECTIVES - number
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("step.hlo", "w") as stream:
            for text in program(count):
                stream.write(text.encode())
        if kind == 1:
            filler = os.urandom(1024**2)
            left = limits.MOST_UPLOAD_BYTES - path.stat().st_size - 2 * 1024**2
            with archive.open("filler.bin", "w") as stream:
                for _ in range(left // len(filler)):
                    stream.write(filler)
    return path


def program(collectives: int):
    """Yield the HLO text of a program with so many collectives, in parts."""
    yield (
        "HloModule m, num_partitions=4\n"
        "sum {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b)\n}\n"
        "ENTRY main {\n p = f32[8]{0} parameter(0)\n"
    )
    groups = "replica_groups={{0,1},{2,3}}, to_apply=sum"
    for start in range(0, collectives, 1000):
        yield "".join(
            f" ar.{number} = f32[8]{{0}} all-reduce(p), {groups}\n"
            for number in range(start, min(start + 1000, collectives))
        )
    yield " ROOT r = f32[8]{0} add(ar.0, ar.1)\n}\n"


async def _report(running: Server, files: list[Path]) -> str:
    watch = Watch(running)
    async with PageSession.opened(running.url, page="open"):
        await asyncio.sleep(5)  # what all tabs need is imported
    before = watch.measure()
    tabs = Count("tabs that show a Snapshot or a sentence")
    with watch.watching():
        async with contextlib.AsyncExitStack() as pages:
            outcomes = await asyncio.gather(
                *(_open(running, file, pages) for file in files), return_exceptions=True
            )
            for number, outcome in enumerate(outcomes):
                problem = repr(outcome) if isinstance(outcome, BaseException) else None
                tabs.check(problem, f"tab {number}")
                tabs.notes.append(f"tab {number}: {outcome}")
            during = watch.measure()
    left = time.monotonic()
    while time.monotonic() - left < LEAVE_SECONDS:
        await asyncio.sleep(5)
        after = watch.measure()
        if after[0] <= MOST_LEFT * before[0]:
            break
    health = Count(f"health checks answered within {MOST_SECONDS:g} s")
    for place, seconds in enumerate(watch.answers):
        health.check(None if seconds <= MOST_SECONDS else f"{seconds:.1f} s", f"check {place}")
    health.notes.append(f"longest {max(watch.answers):.2f} s")
    memory = Count(f"measurements within {MOST_BYTES / 2**30:g} GiB, server and workers together")
    for place, used in enumerate(watch.memory):
        memory.check(None if used <= MOST_BYTES else _mib(used), f"measurement {place}")
    memory.notes.append(
        f"server: {_mib(before[0])} before, {_mib(max(watch.server_memory))} at most, "
        f"{_mib(during[0])} with {len(files)} tabs, {_mib(after[0])} {time.monotonic() - left:.0f} s after "
        f"all have left; with workers {_mib(max(watch.memory))} at most"
    )
    returned = Count(f"server has at most {MOST_LEFT:g} times the memory before, after all have left")
    ratio = after[0] / before[0]
    returned.check(None if ratio <= MOST_LEFT else f"{ratio:.2f} times", "server")
    log = Count("no error in the log of the server")
    text = running.log.read_text(errors="replace")
    log.check("it has a traceback" if "Traceback" in text else None, "log")
    return "\n".join(one.text() for one in (tabs, health, memory, returned, log))


async def _open(running: Server, file: Path, pages: contextlib.AsyncExitStack) -> str:
    """Open a page, upload a file, and return what the page then shows. The page stays open in `pages`."""
    page = await pages.enter_async_context(PageSession.opened(running.url, page="open"))
    field_key = "open_files:0"
    await page.until(lambda: page.has(field_key), "the upload field")
    for _ in range(20):
        status = await page.upload(field_key, file)
        if status != 503:
            break
        await asyncio.sleep(random.uniform(1, 3))  # as a user who is asked to try again
    if status != 204:
        return f"the upload was refused with {status}"
    await page.until(lambda: page.has("keep:open") or page.errors(), "the result", 600)
    if page.exceptions:
        raise RuntimeError("; ".join(page.exceptions))
    return "; ".join(page.errors()) or "shows the Snapshot"


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
