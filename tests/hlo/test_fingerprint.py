"""Equal programs have equal digests, whatever their source looks like."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.compiled.program_text import read

pytestmark = pytest.mark.close_to_jax

MESH = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",), axis_types=(AxisType.Auto,))


def digest(function, *specs) -> str:
    shapes = [jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(MESH, spec)) for spec in specs]
    text = jax.jit(function).lower(*shapes).compile().as_text()
    fingerprint = read(text, None).fingerprint
    assert fingerprint is not None
    return fingerprint


def auto(w, x):
    return jnp.tanh(x @ w)


def manual(weights, rows):
    def body(weights, rows):
        return jnp.tanh(rows @ weights)

    return jax.shard_map(body, mesh=MESH, in_specs=(P(), P("x")), out_specs=P("x"))(weights, rows)


def test_equal_programs_from_other_sources() -> None:
    assert digest(auto, P(), P("x")) == digest(manual, P(), P("x"))


@pytest.mark.parametrize(
    "other",
    [
        lambda w, x: jnp.sin(x @ w),
        lambda w, x: jnp.tanh(w @ x),
        lambda w, x: jnp.tanh(x @ w) + 1,
        lambda w, x: jnp.tanh(x @ w) + 2,
        lambda w, x: jnp.tanh(x @ w).T,
    ],
)
def test_programs_that_differ(other) -> None:
    assert digest(auto, P(), P("x")) != digest(other, P(), P("x"))


def test_another_sharding_is_another_program() -> None:
    assert digest(auto, P(), P("x")) != digest(auto, P(), P())
    assert digest(auto, P("x"), P()) != digest(auto, P(None, "x"), P())
