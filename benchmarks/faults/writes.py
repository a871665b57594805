"""SIGKILL of a process while it writes, and two processes that write to one library.

Each trial has an empty folder. A writer process writes without a pause, so a random moment is in a write. The
writes that it has reported must be there, the one that was interrupted is there or not, and a new process
must be able to write.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.count import Count
from benchmarks.faults import writer
from benchmarks.faults.writer import Step

KILLS = 50  # of each kind of writer
MOST_SECONDS = 0.6  # from its first write to the kill
_WRITER = "from benchmarks.faults.writer import main; main()"
ROOT = Path(__file__).resolve().parents[2]


def killed_writers(kind: str, kills: int = KILLS, seed: int = 1) -> Count:
    """Kill a writer `kills` times. `kind` is one of `writer.KINDS`."""
    count = Count(f"killed while it writes: {kind}")
    chosen = random.Random(f"{kind} {seed}")
    written = 0
    for number in range(kills):
        delay = chosen.random() * MOST_SECONDS
        with tempfile.TemporaryDirectory() as name, started(kind, Path(name), number) as process:
            time.sleep(delay)
            process.kill()
            done = reported(process)
            written += len(done)
            problem = writer.wrong(kind, Path(name), done, number)
            count.check(problem, f"{number}, {delay:.2f} s after the first write")
    count.notes.append(f"{written} writes ended before the kills")
    return count


def two_writers(kills: int = 10, seconds: float = 3.0) -> Count:
    """Let two processes write to one new library; one of them is killed. Count trials without a loss."""
    count = Count("two servers on one library, one is killed: no entry is lost")
    chosen = random.Random(3)
    entries = 0
    for number in range(kills):
        with (
            tempfile.TemporaryDirectory() as name,
            started("library", Path(name), 2 * number) as one,
            started("library", Path(name), 2 * number + 1) as other,
        ):
            time.sleep(chosen.random() * seconds)
            one.kill()
            first = reported(one)
            time.sleep(seconds / 3)
            other.kill()
            second = reported(other)
            entries += len(first) + len(second)
            count.check(
                _lost(Path(name), [(first, 2 * number), (second, 2 * number + 1)]),
                f"trial {number}",
            )
    count.notes.append(f"{entries} writes")
    return count


def _lost(folder: Path, parts: list[tuple[list[Step], int]]) -> str | None:
    """Return what is missing in the library of two writers."""
    has = {entry.name for entry in writer.Library(folder / "saved.sqlite3").entries()}
    for done, seed in parts:
        own = {name for name in has if name.partition("-")[0] == str(seed) or name == f"shared-{seed}"}
        following = next(one for number, one in enumerate(writer.steps(seed)) if number == len(done))
        for part in (done, [*done, following]):
            names = {name for what, name in part if what != "delete"}
            names -= {name for what, name in part if what == "delete"}
            if own == names:
                break
        else:
            return f"writer {seed} has {len(own)} entries after {len(done)} writes"
    library = writer.Library(folder / "saved.sqlite3")
    damaged = [name for name in has if library.open(name) != writer.found(name)]
    return f"{damaged} have another content" if damaged else None


@contextlib.contextmanager
def started(kind: str, folder: Path, seed: int) -> Iterator[subprocess.Popen[str]]:
    """Start a writer, and wait until it begins."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, kind, str(folder), str(seed)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the writer did not start: {process.communicate()[1]}")
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def reported(process: subprocess.Popen[str]) -> list[Step]:
    """Return the writes that a killed writer has reported.

    Raises:
      RuntimeError: it failed before it was killed.
    """
    assert process.stdout is not None and process.stderr is not None
    # Not `communicate`, which does not see what was read together with the first line.
    out, errors = process.stdout.read(), process.stderr.read()
    process.wait()
    if errors:
        raise RuntimeError(f"the writer failed: {errors}")
    lines = [line for line in out.splitlines(keepends=True) if line.endswith("\n")]
    return [tuple(json.loads(line)) for line in lines]
