"""A run of the default layout by the service, compared with the same steps as a plain script.

Both processes are warm, and both compile again each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.pairing import Pair, Result, interleave, ratio_result
from benchmarks.plain_process import PlainProcess
from inspector import layout as layouts
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.records.snapshot import Snapshot

PAIRS = 7
LIMIT = 1.10
SAME_STEPS = "the same steps as a plain script in a warm process"


def measure(pairs: int = PAIRS, **sizes: str) -> list[Result]:
    """Time both; `sizes` are fields of the layout that differ from the default."""

    def run(service: Inspection, layout: Layout, planned: Snapshot) -> float:
        began = time.perf_counter()
        service.run(layout, planned).answer()
        return time.perf_counter() - began

    taken, _ = against_plain_script(run, lambda answer: answer["seconds"], pairs, sizes)
    return [
        ratio_result(
            LIMIT,
            name="warm_run",
            ours="a run on a warm worker, from start_run to its answer",
            baseline=SAME_STEPS,
            pairs=taken,
        )
    ]


def against_plain_script(
    run: Callable[[Inspection, Layout, Snapshot], float],
    seconds_of: Callable[[dict[str, Any]], float],
    pairs: int,
    sizes: dict[str, str],
) -> tuple[tuple[Pair, ...], Layout]:
    """Run a layout by the service and by the plain script in turn; return the pairs and the layout.

    Args:
      run: run the layout once and return seconds.
      seconds_of: the seconds in the answer of the plain script.
      sizes: fields of the layout that differ from the default.
    """
    layout = layouts.parse(sizes).unwrap()
    service = Inspection(run_workers=1)
    try:
        planned = service.plan(layout)
        with PlainProcess(layout.devices) as plain:
            taken = interleave(
                lambda: run(service, layout, planned),
                lambda: seconds_of(plain.ask("run", **script_sizes(layout))),
                pairs,
            )
    finally:
        service.close()
    return taken, layout


def script_sizes(layout: Layout) -> dict[str, Any]:
    """Return the arguments of the plain script; everything else in it is the default layout."""
    return {
        "batch": layout.sizes["batch"],
        "layers": layout.sizes["layers"],
        "depth": layout.sizes["depth"],
        "mesh": list(layout.mesh_shape),
        "steps": layout.steps,
    }
