"""Propagate shardings through a train step, compared with lowering it."""

from __future__ import annotations

import time
from dataclasses import replace

from benchmarks.pairing import Result, interleave, ratio_result
from inspector import layout as layouts
from inspector.layout import Layout
from inspector.producers.propagation import template
from inspector.producers.propagation.propagate import Setting, propagated_program

PAIRS = 5
LIMIT = 1.0
SECONDS = 0.3  # a longer wait can be felt while typing
# Llama-3-8B with scanned layers on 4,096 devices.
FIELDS = {
    "model": "transformer", "target": "tpu:v5p:16x16x16", "mesh": "256x16", "axes": "fsdp,tensor",
    "rules": "batch=fsdp,embed=fsdp,mlp=tensor,heads=tensor,vocab=tensor", "layers": "32",
    "scan": "true", "remat": "true", "batch": "4096", "seq": "8192", "embed": "4096", "mlp": "14336",
    "heads": "32", "kv_heads": "8", "head_dim": "128", "vocab": "128256",
}  # fmt: skip


def measure(pairs: int = PAIRS, **fields: str) -> list[Result]:
    """Propagate and lower the train step of one layout in turn."""
    layout = layouts.parse(FIELDS | fields).unwrap()
    lowered = next(
        each for each in template.template_of(layout).programs if each.name == "train_step"
    )

    def propagate() -> float:
        started = time.perf_counter()
        propagated_program(lowered, Setting.of(layout), logical=True)
        return time.perf_counter() - started

    result = ratio_result(
        LIMIT,
        name="propagation",
        ours=f"propagation of the train step, {layout.devices:,} devices",
        baseline="lowering init, train step and inference",
        pairs=interleave(propagate, lambda: lowering_seconds(layout), pairs),
    )
    ours, _ = result.seconds
    note = f"propagation takes {ours.median * 1e3:.0f} ms, the target is {SECONDS * 1e3:.0f} ms"
    return [replace(result, notes=(*result.notes, note))]


def lowering_seconds(layout: Layout) -> float:
    """Return the seconds to lower all programs of a layout."""
    template.template_of.cache_clear()
    started = time.perf_counter()
    template.template_of(replace(layout))
    return time.perf_counter() - started
