"""From the click on "Build and run" to the Snapshot, against the same steps as a plain script.

Both processes are warm, and both compile anew each time.
"""

from __future__ import annotations

import time

from benchmarks.pairing import Result, at_most, interleave
from benchmarks.plain_process import PlainProcess
from inspector import layout as layouts
from inspector.service.inspection import Inspection

PAIRS = 7
LIMIT = 1.10


def measure(pairs: int = PAIRS, **sizes: str) -> list[Result]:
    """Time both; `sizes` are fields of the layout, where it is not to be the default one."""
    layout = layouts.parse(sizes).unwrap()
    service = Inspection(run_workers=1)
    try:
        planned = service.plan(layout)
        with PlainProcess(layout.devices) as plain:
            taken = interleave(
                lambda: run_seconds(service, layout, planned),
                lambda: plain.ask("run", **script_sizes(layout))["seconds"],
                pairs,
            )
    finally:
        service.close()
    result = Result(
        name="warm_run",
        ours="start_run to its answer on a warm worker",
        baseline="the same steps as a plain script in a warm process",
        pairs=taken,
        target=f"at most {LIMIT:.2f}",
    )
    return [result.judged(at_most(result.ratio.median, LIMIT))]


def run_seconds(service: Inspection, layout: layouts.Layout, planned) -> float:
    """Run the layout once."""
    began = time.perf_counter()
    job = service.start_run(layout, planned)
    job.wait().answer()
    return time.perf_counter() - began


def script_sizes(layout: layouts.Layout) -> dict:
    """What the plain script has to know of a layout; all else in it is the default layout's."""
    return {
        "batch": layout.sizes["batch"],
        "layers": layout.sizes["layers"],
        "depth": layout.sizes["depth"],
        "mesh": list(layout.mesh_shape),
        "steps": layout.steps,
    }
