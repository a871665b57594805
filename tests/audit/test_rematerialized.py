"""XLA's warning *Involuntary full rematerialization*, of a program that has it and one that does not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.hlo.text import rematerializations
from inspector.recording.inspected import inspect

pytestmark = pytest.mark.close_to_jax

MESH = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "stage"), axis_types=(AxisType.Auto,) * 2)


def on(*axes: Any) -> NamedSharding:
    return NamedSharding(MESH, P(*axes))


def moved(x: Any) -> Any:
    x = jax.lax.with_sharding_constraint(jnp.sin(x), on(None, "data"))
    return jax.lax.with_sharding_constraint(x, on("stage")) * 2


def kept(x: Any) -> Any:
    x = jax.lax.with_sharding_constraint(jnp.sin(x), on(None, "data"))
    return jax.lax.with_sharding_constraint(x, on("data")) * 2


@pytest.mark.parametrize(("function", "count"), [(moved, 1), (kept, 0)])
def test_the_warning_of_the_partitioner(function: Any, count: int, capfd: Any) -> None:
    """XLA moves an axis to another dimension, but not two of them at once."""
    x = jax.ShapeDtypeStruct((64, 64, 32), "float32", sharding=on(None, "data"))
    jax.jit(function).lower(x).compile()
    assert ("Involuntary full rematerialization" in capfd.readouterr().err) == bool(count)
    snapshot = inspect(jax.jit(function), x)
    findings = [finding for finding in snapshot.findings if finding.code == "involuntary-rematerialization"]
    assert len(findings) == count
    assert all((finding.source or "").startswith("test_rematerialized.py:") for finding in findings)


def test_texts_of_both_versions_are_read() -> None:
    start = "W1 a.cc:1] [SPMD] Involuntary full rematerialization. The compiler cannot go from "
    old = (
        "sharding {devices=[8,1]<=[8]} to {maximal device=0} efficiently for HLO operation %p = "
        'f32[128,512]{1,0} get-tuple-element(%param), index=1, metadata={op_name="a/sin" '
        'source_file="/home/me/train.py" source_line=12}. As the last resort, SPMD will replicate'
    )
    new = old.replace("{devices=[8,1]<=[8]}", "{mesh['x'=8], [{'x'}, {}]}")
    (read,) = rematerializations(start + old)
    assert (read.before, read.after) == ("{devices=[8,1]<=[8]}", "{maximal device=0}")
    assert (read.shape, read.source) == ("f32[128,512]", "train.py:12")
    assert [
        rematerialization.before for rematerialization in rematerializations(f"{start}{new}\n{start}{new}")
    ] == ["{mesh['x'=8], [{'x'}, {}]}"]
    assert rematerializations("no warning") == ()
