"""Run a training script of about 30 s with `run`, and without it.

The script trains the default model for a fixed number of steps on eight emulated devices. The time of `run`
is the time until it ends, with everything it writes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.pairing import Result, interleave, ratio_result
from inspector.core import program_run, snapshot

PAIRS = 3
LIMIT = 1.05
STEPS = 400  # about 30 s on two cores
SCRIPT = Path(__file__).with_name("training_script.py")
_DEVICES = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}


def measure(pairs: int = PAIRS, steps: int = STEPS) -> list[Result]:
    """Run the script with and without `run` in turn."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = Path(folder) / "recorded"

        def ours() -> float:
            return _seconds(["-m", "inspector", "run", "-o", str(recorded), str(SCRIPT)], steps)

        taken = interleave(ours, lambda: _seconds([str(SCRIPT)], steps), pairs, warm_up=0)
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
        )
    ]


def _seconds(arguments: list[str], steps: int) -> float:
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments, str(steps)],
        env=os.environ | _DEVICES,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-400:])
    return time.perf_counter() - started
