"""The time to read a file and to audit its Snapshot grows as the file does, whatever it has many of."""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inspector import audit, hlo
from inspector.jobs.program_run import folder_snapshot
from inspector.jobs.program_run.records import RunFolder
from inspector.readers import import_file
from inspector.readers.profiles import kinds
from inspector.records import program_run
from inspector.records.program_run import ProgramRun
from inspector.text.errors import InvalidInput
from tests.hostile import growing
from tests.hostile.growing import GROWING

_LEAST = 60  # parts of the smallest file
_SIZES = (1, 4, 16, 64)
_SECONDS = 0.15  # of CPU; less is noise
_TRIES = 3
_MOST_GROWTH = 10.0  # for four times the size; a quadratic reader takes sixteen times as long
# One of each reader; the others are nightly.
_QUICK = ("runs", "instructions", "parameters", "moments", "programs of a Snapshot", "_sharding", "golden",
    "checkpoint",)  # fmt: skip


def seconds(name: str, count: int, folder: Path) -> float:
    path = GROWING[name](count, folder)
    start = time.process_time()
    try:
        snapshot = import_file.read(path, path.name, None, None, None, lambda *_, **__: None)
    except InvalidInput as refused:
        assert "at most" in str(refused) or "the most" in str(refused), refused
    else:
        audit.ranked(snapshot)
    return time.process_time() - start


def assert_linear(seconds: Callable[[int], float]) -> None:
    """Measure each size, again if it took too long: other processes only add to the time of a core."""
    seconds(_LEAST)  # imports
    gc.collect()
    gc.freeze()  # what earlier tests left is not traversed again and again
    try:
        known: list[float] = []
        for size in _SIZES:
            most = _MOST_GROWTH * max(known[-1], _SECONDS) if known else math.inf
            times = [seconds(_LEAST * size)]
            while times[-1] > most and len(times) < _TRIES:
                times.append(seconds(_LEAST * size))
            known.append(min(times))
            assert known[-1] <= most, known
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    "name",
    [name if name in _QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in GROWING],
)
def test_time_grows_as_the_file(name: str, tmp_path: Path) -> None:
    places = itertools.count()
    assert_linear(lambda count: seconds(name, count, tmp_path / str(next(places))))


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("one_function", [True, False])
def test_the_records_of_a_run_are_read_again_and_again(one_function: bool, tmp_path: Path) -> None:
    """While the program runs, as after each of its compiles, and when its folder is opened."""

    def seconds_of(count: int) -> float:
        path = tmp_path / str(next(places))
        folder = RunFolder(path, ProgramRun(("s.py",), "2026-01-01T00:00:00+00:00"))
        folder.create()
        growing.raw_records(count, path, one_function)
        start = time.process_time()
        folder.update()
        (path / "raw" / "arrays-read.json").rename(path / "raw" / "arrays.json")
        folder.end("exit 0", 1.0)
        assert len(program_run.read(path).programs) == len(folder_snapshot.read(path).programs) == count
        return time.process_time() - start

    places = itertools.count()
    assert_linear(seconds_of)


def test_instructions_that_follow_each_other_through_tuples(tmp_path: Path) -> None:
    def seconds_of(count: int) -> float:
        lines = "".join(
            f" g{n} = f32[8] get-tuple-element({f't{n - 1}' if n else 'p'}), index=0\n"
            f" a{n} = f32[8] negate(g{n})\n"
            f" t{n} = (f32[8], f32[8]) tuple(g{n}, a{n})\n"
            for n in range(count)
        )
        text = (
            f"HloModule m\nENTRY e {{\n p = (f32[8]) parameter(0)\n{lines} ROOT r = f32[8] negate(g0)\n}}\n"
        )
        (module,) = hlo.parser.parse(text)
        of_program = kinds.of_program(module, ())
        start = time.process_time()
        assert of_program.later("p") >= {"a0", "a1"} and not of_program.later("a0")
        for name in of_program.kinds:
            of_program.later(name)
        return time.process_time() - start

    assert_linear(seconds_of)
