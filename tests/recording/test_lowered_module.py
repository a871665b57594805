"""Programs of users after XLA's partitioner: their memory, against that of JAX's compiled programs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import inspector

pytestmark = pytest.mark.close_to_jax

MESH = Mesh(np.array(jax.devices()[:4]), ("data",), axis_types=(AxisType.Auto,))
ROWS = NamedSharding(MESH, P("data"))


def array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32", sharding=ROWS)


def train(state: Any, batch: Any) -> Any:
    gradient = jax.grad(lambda w: jnp.sum((batch @ w) ** 2))(state["w"])
    return {"w": state["w"] - gradient, "m": 0.9 * state["m"] + gradient}


def simulate(field: Any, force: Any) -> Any:
    return 0.9 * field + force.mean(), force.sum()


@pytest.mark.parametrize(
    ("function", "state", "other"),
    [
        (train, {"w": array(512, 512), "m": array(512, 512)}, array(8, 512)),
        (simulate, array(512, 512), array(8, 512)),
    ],
)
def test_results_are_written_over_donated_arguments(function: Any, state: Any, other: Any) -> None:
    donated = sum(leaf.size * 4 // 4 for leaf in jax.tree.leaves(state))  # bytes on one of four devices
    peaks = []
    for numbers in ((), (0,)):
        step = jax.jit(function, donate_argnums=numbers, out_shardings=ROWS if function is train else None)
        assert step.lower(state, other).compile().memory_analysis().alias_size_in_bytes in (0, donated)
        (before, *_) = inspector.inspect(step, state, other).partitioned
        peaks.append(before.memory_use.peak_bytes)
    without, with_donation = peaks
    assert without - with_donation == pytest.approx(donated, rel=0.01)
