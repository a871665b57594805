"""Tests of models whose code makes a mesh of `jax.devices()`, in workers with one device."""

from __future__ import annotations

import math
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.machines import targets
from inspector.producers.propagation.one_mesh import OTHER_MESHES
from inspector.service.inspection import Inspection
from inspector.service.own_model_registration import register_own
from tests.model.importable import importable

MODULE = "with_own_mesh"
SOURCE = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from inspector.model import Model, by_regex


def build(shape: str = "4x2", named: bool = True):
    sizes = tuple(map(int, shape.split("x")))
    mesh = Mesh(np.array(jax.devices()).reshape(sizes), ("data", "model"))

    def constrained(value, *spec):
        placed = NamedSharding(mesh, P(*spec)) if named else P(*spec)
        return jax.lax.with_sharding_constraint(value, placed)

    def init(key, batch):
        return {"up": jax.random.normal(key, (32, 64)), "down": jnp.zeros((64, 32))}

    def apply(params, batch):
        hidden = constrained(batch["x"] @ params["up"], "data", "model")
        return constrained(jnp.tanh(hidden) @ params["down"], "data")

    def step(params, batch):
        def loss(params):
            return jnp.mean(apply(params, batch) ** 2)

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda a, b: a - b, params, gradients), value

    return Model(
        init=init, step=step, apply=apply, names="mesh", mesh={"data": sizes[0], "model": sizes[1]},
        batch={"x": jax.ShapeDtypeStruct((16, 32), "float32")}, batch_axes={"x": ("data",)},
        state_specs=by_regex([("up", P(None, "model")), ("down", P("model"))]),
    )


def sixteen():
    return build("8x2")




def counted():
    assert (jax.device_count(), len(jax.local_devices())) == (8, 8)
    return build()


def explicit():
    jax.make_mesh((4, 2), ("data", "model"))
    return build()
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Inspection]:
    with importable(tmp_path_factory.mktemp("own_mesh"), MODULE, SOURCE):
        for function in ("build", "sixteen", "counted", "explicit"):
            register_own(f"{MODULE}:{function}")
        service = Inspection(run_workers=1)
        yield service
        service.close()


def layout_of(function: str = "build", **fields: str) -> Layout:
    return layouts.parse({"model": f"{MODULE}:{function}"} | fields).unwrap()


def planned(service: Inspection, layout: Layout) -> Snapshot:
    return service.with_programs(service.plan(layout), layout)


@pytest.mark.parametrize(
    ("function", "mesh"),
    [("build", "4x2"), ("sixteen", "8x2"), ("counted", "4x2"), ("explicit", "4x2")],
)
def test_its_own_mesh_is_the_default_and_is_planned(service, function, mesh) -> None:
    layout = layout_of(function)
    assert "x".join(map(str, layout.mesh_shape)) == mesh
    found = planned(service, layout)
    assert [program.stage for program in found.programs] == ["propagated"] * 3
    assert found.array("activation/sharding_constraint").spec == (("data",), ("model",))
    assert found.findings == ()


def test_a_compile_for_a_target_is_that_of_constraints_without_devices(service) -> None:
    by_devices, by_names = (
        layout_of(mesh="4x2", target="tpu:v5e:2x4", named=named) for named in ("true", "false")
    )
    missing = targets.missing_compiler(by_devices.machine)
    if missing is not None:
        pytest.skip(missing)
    found, expected = (
        service.start_run(layout, service.plan(layout)).wait().answer()
        for layout in (by_devices, by_names)
    )
    assert found.mesh == expected.mesh
    assert found.arrays == expected.arrays
    assert found.program("train_step").collectives
    for mine, theirs in zip(found.programs, expected.programs, strict=True):
        assert [(one.op, one.mesh_axes, one.payload_bytes) for one in mine.collectives] == [
            (one.op, one.mesh_axes, one.payload_bytes) for one in theirs.collectives
        ]
        assert mine.memory == theirs.memory
        assert mine.shardings == theirs.shardings


def test_values_on_a_mesh_with_other_sizes_have_the_shards_of_jax(service) -> None:
    found = planned(service, layout_of(mesh="2x4"))
    (finding,) = (one for one in found.findings if one.code == OTHER_MESHES)
    assert "data 4 × model 2" in finding.message and "data 2 × model 4" in finding.message
    array = found.array("activation/sharding_constraint")
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))
    theirs = NamedSharding(mesh, PartitionSpec("data", "model"))
    assert array.spec is None
    assert array.shard_shape == theirs.shard_shape(array.shape)
    assert array.bytes_per_device == math.prod(array.shard_shape) * 4
    assert array.replicas == 1
    indices = {
        device.id: tuple(
            part.indices(size)[:2] for part, size in zip(index, array.shape, strict=True)
        )
        for device, index in theirs.devices_indices_map(array.shape).items()
    }
    assert {shard.device: shard.index for shard in array.shards} == indices


def test_a_mesh_of_another_number_of_devices_is_refused(service) -> None:
    with pytest.raises(InvalidInput, match=r"with_own_mesh\.py.*size 16 into shape \(4,2\)"):
        service.plan(layout_of(mesh="4x4"))
