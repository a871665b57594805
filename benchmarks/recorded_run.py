"""Run a training script with `run`, and without it, for a number of steps that takes about 20 s.

The script trains a model on eight emulated devices. The time of `run` is the time until the script has ended.
The analysis after that, in which a worker finds causes, is a note. A machine that is slow or shared takes
fewer steps, so that the benchmark ends in about two minutes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.pairing import Result, interleave, ratio_result, ratio_text
from inspector.records import program_run, snapshot

PAIRS = 3
LIMIT = 1.05
SECONDS = 20.0  # that the script should take
FEWER_STEPS, MORE_STEPS = 10, 40  # the steps that are timed to find out how many fit
SCRIPT = Path(__file__).with_name("training_script.py")
_DEVICES = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}


def measure(pairs: int = PAIRS, seconds: float = SECONDS) -> list[Result]:
    """Run the script with and without `run` in turn."""
    steps = _steps(seconds)
    cpu: dict[str, list[float]] = {"ours": [], "baseline": []}
    analyses: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        recorded = Path(folder) / "recorded"

        def ours() -> float:
            arguments = ["-m", "inspector", "run", "-o", str(recorded), str(SCRIPT)]
            whole = _seconds(arguments, steps, cpu["ours"])
            analyses.append(program_run.read(recorded).analysis_seconds or 0.0)
            return whole - analyses[-1]

        def baseline() -> float:
            return _seconds([str(SCRIPT)], steps, cpu["baseline"])

        taken = interleave(ours, baseline, pairs, warm_up=0)
        run = program_run.read(recorded)
        found = snapshot.read(recorded / program_run.SNAPSHOT)
    if run.problems or not run.programs:
        raise RuntimeError(f"the run recorded {len(run.programs)} programs; {run.problems}")
    return [
        ratio_result(
            LIMIT,
            name="recorded_run",
            ours=f"`run` of a script with {steps} steps: {len(run.programs)} programs and "
            f"{len(found.arrays)} arrays recorded",
            baseline="the script alone",
            pairs=taken,
            notes=(
                _cpu_note(cpu["ours"], cpu["baseline"]),
                f"analysis after the script: {statistics.median(analyses):.2f} s, not in the ratio",
            ),
        )
    ]


def _steps(seconds: float) -> int:
    """Return the number of steps after which the script alone ends in about this time."""
    start, end = (_seconds([str(SCRIPT)], steps) for steps in (FEWER_STEPS, MORE_STEPS))
    per_step = max(end - start, 1e-3) / (MORE_STEPS - FEWER_STEPS)
    return max(round((seconds - start) / per_step), 1) + FEWER_STEPS


def _cpu_note(ours: list[float], baseline: list[float]) -> str:
    """Return the ratio of the CPU seconds, which other load on the machine affects less."""
    least = min(ours), min(baseline)
    return (
        f"least CPU seconds of all processes: {least[0]:.2f} s / {least[1]:.2f} s, "
        f"ratio {ratio_text(least[0] / least[1])}"
    )


def _seconds(arguments: list[str], steps: int, cpu: list[float] | None = None) -> float:
    """Run Python with these arguments, and return the seconds. Those of the CPU are added to `cpu`."""
    started, before = time.perf_counter(), os.times()
    done = subprocess.run(
        [sys.executable, *arguments, str(steps)],
        env=os.environ | _DEVICES,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-400:])
    seconds, after = time.perf_counter() - started, os.times()
    if cpu is not None:
        cpu.append(
            after.children_user - before.children_user + after.children_system - before.children_system
        )
    return seconds
