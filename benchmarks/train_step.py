"""The measured train steps of a run, compared with the same loop in plain JAX."""

from __future__ import annotations

import statistics

from benchmarks.pairing import Result, within
from benchmarks.warm_run import against_plain_script
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.records.snapshot import Snapshot

PAIRS = 9
MARGIN = 0.05


def measure(pairs: int = PAIRS, **sizes: str) -> list[Result]:
    """Time both; `sizes` are fields of the layout that differ from the default."""

    def run(service: Inspection, layout: Layout, planned: Snapshot) -> float:
        snapshot = service.run(layout, planned).answer()
        program = snapshot.program("train_step")
        assert program is not None and program.seconds is not None and program.seconds.steps
        return statistics.median(program.seconds.steps)

    taken, layout = against_plain_script(
        run, lambda answer: statistics.median(answer["train_steps"]), pairs, sizes
    )
    result = Result(
        name="train_step",
        ours=f"median of the {layout.steps} measured train steps of a run",
        baseline="median of the same loop in plain JAX",
        pairs=taken,
        target=f"1.00 ± {MARGIN:.2f}",
    )
    return [result.judged(within(result.ratio.median, 1.0, MARGIN))]
