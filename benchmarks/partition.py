"""Partition a train step with XLA as the worker process does, compared with lowering it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.pairing import Result, interleave, ratio_result
from inspector import layout as layouts
from inspector.jobs.engine import process
from inspector.layout import Layout
from inspector.partition import template
from inspector.partition.partition_layout import partition as partition_job

PAIRS = 5
LIMIT = 1.0
SECONDS = 0.8  # from rules to the table, for 32 scanned layers on 1,024 devices
FIELDS = {
    "model": "transformer", "target": "plan", "mesh": "64x8x2", "axes": "replica,fsdp,tensor",
    "rules": "batch=replica+fsdp,embed=fsdp,mlp=tensor,heads=tensor,vocab=tensor", "layers": "32",
    "scan": "true", "remat": "true", "batch": "1024", "seq": "2048", "embed": "4096", "mlp": "14336",
    "heads": "32", "kv_heads": "8", "head_dim": "128", "vocab": "128256",
}  # fmt: skip


def measure(pairs: int = PAIRS, **fields: str) -> list[Result]:
    """Change a rule of one layout and partition its train step, and lower its programs, in turn."""
    layout = layouts.parse(FIELDS | fields).unwrap()
    changed = replace(layout, rules=layout.rules[:-1])
    template.template_of(layout)
    gc.freeze()  # as a worker does before its first job

    def partition() -> float:
        _partition(layout)  # what the page shows before the change
        started = time.perf_counter()
        process.encode("done", result=_partition(changed))
        return time.perf_counter() - started

    what = f"partition of the train step, {layout.devices:,} devices"
    result = compared_with_lowering("partition", what, partition, layout, pairs)
    ours, _ = result.seconds
    note = f"a change of a rule takes {ours.median * 1e3:.0f} ms, the target is {SECONDS * 1e3:.0f} ms"
    return [replace(result, notes=(*result.notes, note))]


def _partition(layout: Layout) -> dict[str, Any]:
    job = {"layout": layout.to_json(), "origins": True, "only": ["train_step"]}
    return partition_job(job, lambda *_, **__: None)


def compared_with_lowering(
    name: str, ours: str, seconds: Callable[[], float], layout: Layout, pairs: int
) -> Result:
    """Return the seconds of our own over those to lower the programs of a layout, measured in turn."""
    return ratio_result(
        LIMIT,
        name=name,
        ours=ours,
        baseline="lowering init, train step and inference",
        pairs=interleave(seconds, lambda: _lowering_seconds(layout), pairs),
    )


def _lowering_seconds(layout: Layout) -> float:
    """Return the seconds to lower all programs of a layout."""
    template.programs_of.cache_clear()
    started = time.perf_counter()
    template.template_of(replace(layout))
    return time.perf_counter() - started
