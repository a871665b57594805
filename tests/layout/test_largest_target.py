"""A plan of the largest target, 131,072 devices: time and memory grow with its devices alone."""

from __future__ import annotations

import time
import tracemalloc

from inspector import layout as layouts
from inspector.assessment import assess
from inspector.audit import checks
from inspector.layout.plan import plan
from inspector.machines import targets
from inspector.sharding.abstract import AbstractArray, AbstractState

LAYERS = 80
ARRAYS = {"query": (8192, 8192), "up": (8192, 28672), "down": (28672, 8192), "norm": (8192,)}
NAMES = {
    "query": ("embed", "heads"),
    "up": ("embed", "mlp"),
    "down": ("mlp", "embed"),
    "norm": ("embed",),
}


def state() -> AbstractState:
    arrays = [
        AbstractArray(
            f"{group}/block_{layer}/{name}", role, shape, "float32", 4,
            tuple((axis,) for axis in NAMES[name]),
        )
        for group, role in (("params", "params"), ("mu", "opt_state"), ("nu", "opt_state"))
        for layer in range(LAYERS)
        for name, shape in ARRAYS.items()
    ]  # fmt: skip
    return AbstractState("logical", tuple(arrays), {})


def test_a_plan_of_the_largest_target_takes_seconds_and_little_memory() -> None:
    target = targets.parse("tpu:v5e:16x16*512")
    assert target.devices == targets.MOST_DEVICES == 131_072
    layout = layouts.parse(
        {
            "model": "transformer", "target": target.text, "mesh": "512x64x4",
            "axes": "replica,fsdp,tensor", "batch": "131072",
            "rules": "batch=replica+fsdp,embed=fsdp,mlp=tensor,heads=tensor",
        }
    ).unwrap()  # fmt: skip
    tracemalloc.start()
    began = time.process_time()
    snapshot = checks.audited(plan(layout, state()))
    assessed = assess(snapshot)
    seconds, (_, most) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert snapshot.mesh is not None and snapshot.mesh.size == 131_072
    # Matrices are sharded over fsdp × tensor, norms over fsdp: float32, with two moments of Adam.
    elements = LAYERS * ((8192 * 8192 + 2 * 8192 * 28672) // 256 + 8192 // 64)
    assert assessed.state_bytes_per_device == 3 * 4 * elements
    # A list of the devices for each of the 960 arrays would take 8 GB.
    assert seconds < 10 and most < 200e6
