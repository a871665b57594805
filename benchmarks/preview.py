"""A change of the rules in the server, with 1,000 arrays × 512 devices: the plan and the figures as JSON.

It is compared with `devices_indices_map` of JAX for 1,000 arrays. All differ, because JAX caches equal ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import plotly.io

from benchmarks.pairing import Result, Spread, Timed, interleave, seconds_result, seconds_text
from benchmarks.plain_process import PlainProcess
from inspector import layout as layouts
from inspector.answers import whole_model
from inspector.figures.block_map import block_map
from inspector.figures.mesh_map import mesh_map
from inspector.figures.whole_model.picture import draw
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.records.snapshot import Array, Group, Snapshot
from inspector.sharding.abstract import AbstractArray, AbstractState

PAIRS = 11
LIMIT = 0.080  # seconds in the server
MESH = "16x32"
ARRAYS = 1000


def measure(pairs: int = PAIRS, mesh: str = MESH, arrays: int = ARRAYS) -> list[Result]:
    """Time the preview of a state like that of a transformer, and of one in which all arrays differ."""
    layout = layouts.parse(
        {"mesh": mesh, "axes": "fsdp,tensor", "rules": "batch=fsdp,embed=fsdp,hidden=tensor"}
    ).unwrap()
    alike, different = _state(arrays_of_layers(arrays)), _state(arrays_all_different(arrays))
    states = {"preview, layers alike": alike, "preview, all different": different}
    question = {
        "mesh": list(layout.mesh_shape),
        "axes": list(layout.axis_names),
        "arrays": [[one.shape, one.spec] for one in plan(layout, different).arrays],
    }
    with PlainProcess(layout.devices) as plain:
        return [
            _measure(name, layout, state, lambda: plain.ask("places", **question)["seconds"], pairs)
            for name, state in states.items()
        ]


def _state(arrays: list[AbstractArray]) -> AbstractState:
    return AbstractState("logical", tuple(arrays), {})


def _measure(name: str, layout: Layout, state: AbstractState, baseline: Timed, pairs: int) -> Result:
    parts: list[dict[str, float]] = []

    def ours() -> float:
        parts.append(preview_seconds(layout, state))
        return sum(parts[-1].values())

    taken = interleave(ours, baseline, pairs)
    counted = parts[-pairs:]
    each = (f"{part} {seconds_text(Spread.of([one[part] for one in counted]))}" for part in counted[0])
    return seconds_result(
        LIMIT,
        name=name,
        ours=f"plan and figures of {len(state.arrays):,} arrays × {layout.devices} devices",
        baseline="devices_indices_map of JAX for the same number of different arrays",
        pairs=taken,
        notes=("of which " + ", ".join(each),),
    )


def preview_seconds(layout: Layout, state: AbstractState) -> dict[str, float]:
    """Return the seconds of each part; figures include their JSON for the browser."""
    seconds: dict[str, float] = {}

    def timed(part: str, make: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        made = make()
        if part != "plan":
            assert made is not None, f"{part} has nothing to show"
            json.dumps(made) if isinstance(made, str) else plotly.io.to_json(made, validate=False)
        seconds[part] = time.perf_counter() - began
        return made

    planned = timed("plan", lambda: plan(layout, state))
    array = largest_parameter(planned.arrays)
    timed("block map", lambda: block_map(array, planned.mesh))
    timed("mesh map", lambda: mesh_map(array, planned.mesh))
    timed("whole model", lambda: _picture(planned))
    return seconds


def _picture(planned: Snapshot) -> str:
    """Return the drawing of the whole model, as SVG."""
    model = whole_model.of_snapshot(planned)
    assert model is not None, "a plan has arrays and a mesh"
    return draw(model).text


def largest_parameter(arrays: tuple[Array, ...]) -> Array:
    """Return the array that the page shows first."""
    parameters = [array for array in arrays if array.group == "params"]
    return max(parameters, key=lambda array: array.bytes or 0)


def arrays_of_layers(count: int) -> list[AbstractArray]:
    """Return `count` arrays: a step, and parameters in equal layers with two moments each."""
    embed, hidden = 4096, 16384
    in_layer = {
        "attention/query": ((embed, hidden), ("embed", "hidden")),
        "attention/key": ((embed, hidden // 4), ("embed", "hidden")),
        "attention/value": ((embed, hidden // 4), ("embed", "hidden")),
        "attention/output": ((hidden, embed), ("hidden", "embed")),
        "mlp/up": ((embed, hidden), ("embed", "hidden")),
        "mlp/gate": ((embed, hidden), ("embed", "hidden")),
        "mlp/down": ((hidden, embed), ("hidden", "embed")),
        "norm/scale": ((embed,), (None,)),
    }
    arrays = [_array("step", "other", (), ())]
    names = list(in_layer)
    for number in range(count - 1):
        parameter, copy = divmod(number, 3)
        layer, place = divmod(parameter, len(names))
        shape, axes = in_layer[names[place]]
        group: Group = "opt_state" if copy else "params"
        root = ("params", "opt_state/0/mu", "opt_state/0/nu")[copy]
        arrays.append(_array(f"{root}/layer_{layer}/{names[place]}/kernel", group, shape, axes))
    return arrays


def arrays_all_different(count: int) -> list[AbstractArray]:
    """Return `count` parameters with different shapes and paths, which cannot be folded or cached."""
    return [
        _array(f"params/part_{number}_{number * 7919 % 10007:x}/w", "params", shape, axes)
        for number in range(count)
        for shape, axes in [
            (
                (512 * (number + 1), 1024, 512 * (1 + number % 3)),
                (("embed", "hidden", None), (None, "hidden", "embed"), ("hidden", None, None))[number % 3],
            )
        ]
    ]


def _array(path: str, group: Group, shape: tuple[int, ...], axes: tuple[str | None, ...]) -> AbstractArray:
    names = tuple((axis,) if axis else None for axis in axes)
    return AbstractArray(path, group, shape, "float32", 4, names)
