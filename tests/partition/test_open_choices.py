"""Every door records the loops that depend on data, so that no chip has an interval around one iteration."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import inspector
from inspector.assessment import assess
from inspector.machines import hardware

pytestmark = pytest.mark.close_to_jax

MESH = Mesh(np.array(jax.devices()[:4]), ("x",), axis_types=(AxisType.Auto,))


def relax(field, limit):
    def more(pair):
        return pair[0] < limit

    return jax.lax.while_loop(more, lambda pair: (pair[0] + 1, jnp.sin(pair[1]) * 0.9), (0, field))


@pytest.fixture(scope="module")
def found() -> inspector.Snapshot:
    field = jax.ShapeDtypeStruct((1024, 512), "float32", sharding=NamedSharding(MESH, P("x")))
    return inspector.inspect(jax.jit(relax), field, jax.ShapeDtypeStruct((), "int32"))


@pytest.mark.parametrize("chip", ["v5e", "h100"])
def test_a_recorded_loop_has_a_lower_bound_on_every_chip(found, chip: str) -> None:
    programs = (*found.programs, *found.partitioned)
    assert len(programs) == 4 and all(len(program.open_choices) == 1 for program in programs)
    own = assess(found, hardware.chip(chip))
    assert own.evidence.platform == hardware.chip(chip).kind
    assert (own.step.kind, own.step.low, own.step.high) == ("at least", None, None)
