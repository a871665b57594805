"""The step of a model whose layers run one after the other, from two programs with fewer layers.

XLA's partitioner takes as long as a program has operations. Each further layer has the collectives, products
and traffic of the one before, so that the programs of one and of two layers tell those of many. What differs
at the ends of a program can differ in a larger one, so the result is a bound with a margin, for candidates of
a search that are not listed.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from inspector.layout import Layout
from inspector.machines.hardware import Chip
from inspector.prediction.predicted import on_whole_axes, predicted
from inspector.records.snapshot import Collective, Mesh, Program
from inspector.records.typed_json import Record
from inspector.search.bounds import seconds_per_byte, with_exposed_transfers

_FEWEST = 6  # layers; a program of four takes no longer than those of one and of two together
_SHARE = 0.97  # of what follows from fewer layers: arrays between them can be sharded in another way


def fewer_layers(layout: Layout) -> tuple[Layout, Layout] | None:
    """Return the layout with one and with two layers; None if its layers are few, in a loop, or differ.

    Also return None for several slices, whose compiler combines sums of different layers.
    """
    sizes, machine = layout.sizes, layout.machine
    layers = sizes.get("layers")
    if not isinstance(layers, int) or layers < _FEWEST or layout.entry.own or not layout.entry.has_rules:
        return None
    if sizes.get("scan") or sizes.get("stages", 1) != 1 or sizes.get("dense_layers"):
        return None
    if sizes.get("window") and sizes.get("global_every"):
        return None
    if machine is None or machine.slices > 1:
        return None
    one, two = (replace(layout, sizes={**sizes, "layers": count}) for count in (1, 2))
    return one, two


def with_layers(one: Program, two: Program, layers: int) -> Program:
    """Return the collectives and the work of a program with many layers from those of one and of two.

    Collectives of the second layer run as often as there are layers after the first.
    """
    first = Counter(map(_sent, one.collectives or ()))
    collectives = []
    for collective in two.collectives or ():
        kind, runs = _sent(collective), collective.executions
        if first[kind] > 0:
            first[kind] -= 1
        else:
            runs = (runs or 0) * (layers - 1)
        collectives.append(replace(collective, executions=runs))
    return replace(two, collectives=tuple(collectives), work=_on_line(one.work, two.work, layers - 1))


def _sent(collective: Collective) -> Hashable:
    return collective.op, collective.mesh_axes, collective.payload_bytes, collective.executions


def _on_line(first: Any, second: Any, steps: int) -> Any:
    """Return an amount after so many steps from the first one to the second; records by their fields."""
    if isinstance(second, Record) and type(first) is type(second):
        names = [field.name for field in dataclasses.fields(second)]
        return replace(
            second, **{name: _on_line(getattr(first, name), getattr(second, name), steps) for name in names}
        )
    if isinstance(second, dict):
        return {key: _on_line((first or {}).get(key, 0.0), value, steps) for key, value in second.items()}
    if isinstance(second, tuple) and len(first or ()) == len(second):
        return tuple(_on_line(*pair, steps) for pair in zip(first, second, strict=True))
    if isinstance(second, (int, float)) and isinstance(first, (int, float)):
        return type(second)(first + (second - first) * steps)
    return second


def least_seconds_of_layers(program: Program, mesh: Mesh, chip: Chip) -> float:
    """Return seconds that the predicted step of the partitioned layout is not below.

    Collectives count without their latency, because more of them can be combined in a larger program.

    program: from `with_layers`.
    """
    alone = predicted(replace(program, collectives=()), mesh, chip).seconds or 0.0
    collectives = on_whole_axes(program, mesh).collectives or ()

    def with_transfers(share: float) -> float:
        per_byte = seconds_per_byte(mesh, chip, share)
        exposed, by_axes = 0.0, defaultdict[tuple[str, ...], float](float)
        for collective in collectives:
            axes, payload = collective.mesh_axes, collective.payload_bytes
            if axes and payload:
                counted, least = per_byte(collective.op, axes)
                sent = (collective.executions or 0) * payload
                exposed += sent * counted
                by_axes[axes] += sent * least
        return _SHARE * max(alone + exposed, *by_axes.values(), 0.0)

    return with_exposed_transfers(alone, chip, with_transfers)
