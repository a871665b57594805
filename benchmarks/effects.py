"""Effects of each rule, constraint and mesh axis on a train step: one change, compared with lowering."""

from __future__ import annotations

import time
from dataclasses import replace

from benchmarks.pairing import Result
from benchmarks.partition import FIELDS, compared_with_lowering
from inspector import layout as layouts
from inspector.machines import hardware
from inspector.partition import effects, template

PAIRS = 3


def measure(pairs: int = PAIRS, **fields: str) -> list[Result]:
    """Compute all effects and lower the layout in turn. A ratio is that of the mean change."""
    layout = layouts.parse(FIELDS | fields).unwrap()
    chip = hardware.chip("v5p")
    counts: list[int] = []
    totals: list[float] = []

    def change() -> float:
        template.template_of(layout)
        effects.forget()
        started = time.perf_counter()
        found = effects.layout_effects(layout, "train_step", chip, lambda *_, **__: None)
        totals.append(time.perf_counter() - started)
        counts.append(len(found.changes))
        return totals[-1] / counts[-1]

    what = f"one change of the layout, {layout.devices:,} devices"
    result = compared_with_lowering("effects", what, change, layout, pairs)
    note = f"{counts[0]} changes take {min(totals):.1f} s at best"
    return [replace(result, notes=(*result.notes, note))]
