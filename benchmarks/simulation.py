"""Simulate the schedule of Llama-3-8B for 64 v5p chips, compared with its compile."""

from __future__ import annotations

import time
from contextlib import closing

from benchmarks.pairing import Pair, Result, ratio_result
from benchmarks.target_compile import FSDP_AND_TENSOR, layout_of
from inspector.jobs.inspection import Inspection
from inspector.machines.hardware import chip
from inspector.prediction.predicted import predicted
from inspector.text.errors import InvalidInput

PAIRS = 5
LIMIT = 0.05
TARGET = "tpu:v5p:4x4x4"
FIELDS = {"mesh": "16x4", **FSDP_AND_TENSOR}


def measure(pairs: int = PAIRS, target: str = TARGET, fields: dict[str, str] | None = None) -> list[Result]:
    """Compile the layout once, and predict its step several times.

    Raises:
      InvalidInput: the compiler is not installed, or the program does not fit.
    """
    layout = layout_of(target, FIELDS if fields is None else fields)
    with closing(Inspection(run_workers=1)) as service:
        found = service.run(layout).answer()
    program = found.program("train_step")
    if program is None or program.schedule is None or program.seconds is None or found.mesh is None:
        raise InvalidInput(f"the train step for {target} has no schedule")
    compiled = program.seconds.compile
    assert compiled is not None
    taken = []
    for _ in range(pairs):
        began = time.perf_counter()
        predicted(program, found.mesh, chip(layout.machine.chip_name if layout.machine else ""))
        taken.append(Pair(time.perf_counter() - began, compiled))
    return [
        ratio_result(
            LIMIT,
            name=f"simulation, {layout.target}",
            ours="prediction from the schedule",
            baseline="compiling the train step",
            pairs=tuple(taken),
        )
    ]
