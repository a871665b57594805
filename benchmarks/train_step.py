"""The train steps that a run measures, against the same loop in plain JAX."""

from __future__ import annotations

import statistics

from benchmarks.pairing import Result, interleave, within
from benchmarks.plain_process import PlainProcess
from benchmarks.warm_run import script_sizes
from inspector import layout as layouts
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.service.inspection import Inspection

PAIRS = 9
MARGIN = 0.05


def measure(pairs: int = PAIRS, **sizes: str) -> list[Result]:
    """Time both; `sizes` are fields of the layout, where it is not to be the default one."""
    layout = layouts.parse(sizes).unwrap()
    service = Inspection(run_workers=1)
    try:
        planned = service.plan(layout)
        with PlainProcess(layout.devices) as plain:
            taken = interleave(
                lambda: measured_step(service, layout, planned),
                lambda: statistics.median(plain.ask("run", **script_sizes(layout))["train_steps"]),
                pairs,
            )
    finally:
        service.close()
    result = Result(
        name="train_step",
        ours=f"median of the {layout.steps} train steps that a run measures",
        baseline="of the same loop in plain JAX",
        pairs=taken,
        target=f"1.00 ± {MARGIN:.2f}",
    )
    return [result.judged(within(result.ratio.median, 1.0, MARGIN))]


def measured_step(service: Inspection, layout: Layout, planned: Snapshot) -> float:
    """Run the layout; the median of its measured train steps in seconds."""
    found = service.start_run(layout, planned).wait().answer()
    program = next(program for program in found.programs if program.name == "train_step")
    return statistics.median(program.seconds.steps)
