"""Tests of models whose code makes a mesh of `jax.devices()`, in workers with one device."""

from __future__ import annotations

import math
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector import layout as layouts
from inspector.jobs.engine import Environment, Pool
from inspector.jobs.inspection import Inspection
from inspector.jobs.own_model_registration import IMPORT_TIMEOUT
from inspector.layout import Layout
from inspector.machines import targets
from inspector.model import own_model
from inspector.model.built_in.catalogue import register
from inspector.partition.one_mesh import OTHER_MESHES
from inspector.records.snapshot import Snapshot
from inspector.sharding.memory_kinds import PINNED, in_host_memory
from inspector.text.errors import InvalidInput
from tests.model.importable import importable

pytestmark = pytest.mark.close_to_jax

MODULE = "with_own_mesh"
SOURCE = """
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, reshard

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


def by_names():
    return build(named=False)


def sixteen():
    return build("8x2")




def counted():
    assert (jax.device_count(), len(jax.local_devices())) == (8, 8)
    return build()


def on_host(width: int = 1024):
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    kept = NamedSharding(mesh, P(None, "model"), memory_kind="pinned_host")
    optimizer = optax.trace(0.9)

    def init(key, batch):
        params = {"up": jax.random.normal(key, (width, width))}
        return {"params": params, "opt_state": optimizer.init(params)}

    def step(state, batch):
        opt_state = jax.device_put(state["opt_state"], jax.memory.Space.Device)
        loss = lambda params: jnp.mean((batch["x"] @ params["up"]) ** 2)
        value, gradients = jax.value_and_grad(loss)(state["params"])
        updates, opt_state = optimizer.update(gradients, opt_state)
        opt_state = jax.device_put(opt_state, jax.memory.Space.Host)
        return {"params": optax.apply_updates(state["params"], updates), "opt_state": opt_state}, value

    return Model(
        init=init, step=step, names="mesh", mesh=mesh,
        batch={"x": jax.ShapeDtypeStruct((64, width), "float32")}, batch_axes={"x": ("data",)},
        # A pytree with the class of the optimizer state, as `jax.tree.map` over a state makes it.
        state_specs={"params": P(None, "model"), "opt_state": optax.TraceState({"up": kept})},
    )


def partial_sums():
    # A matrix product whose result is a partial sum, in a model without a train step.

    def apply(params, batch):
        x = reshard(batch["x"], P("data", "model"))
        y = jnp.dot(x, params["w"], out_sharding=P("data", None, unreduced={"model"}))
        return reshard(y, P("data", None))

    return Model(
        init=lambda key, batch: {"w": reshard(jnp.ones((16, 32)), P("model", None))}, apply=apply,
        batch={"x": jax.ShapeDtypeStruct((8, 16), "float32")}, batch_axes={"x": ("data",)},
        names="mesh", mesh={"data": 4, "model": 2}, axis_types="explicit",
    )


def mapped_by_its_own_mesh():
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    rows = NamedSharding(mesh, P("model", None))

    def init(key, batch):
        return {"w": jax.jit(lambda key: jax.random.normal(key, (16, 32)), out_shardings=rows)(key)}

    def apply(params, batch):
        local = lambda w, x: jax.lax.psum(x @ w, "model")
        specs = (P("model", None), P("data", "model"))
        mapped = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P("data", None))
        return mapped(params["w"], reshard(batch["x"], P("data", "model")))

    return Model(
        init=init, apply=apply, names="mesh", mesh=mesh,
        batch={"x": jax.ShapeDtypeStruct((8, 16), "float32")}, batch_axes={"x": ("data", None)},
    )


def explicit():
    jax.make_mesh((4, 2), ("data", "model"))
    return build()
"""

FUNCTIONS = ("build", "by_names", "sixteen", "counted", "explicit", "on_host", "partial_sums",
             "mapped_by_its_own_mesh")  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Inspection]:
    with importable(tmp_path_factory.mktemp("own_mesh"), MODULE, SOURCE):
        with Pool(1) as pool:  # one process with one device describes all of them
            for function in FUNCTIONS:
                payload = {"model": f"{MODULE}:{function}"}
                answer = pool.submit("describe", payload, Environment(1), IMPORT_TIMEOUT).wait()
                register(own_model.from_json(answer.answer()["entry"]))
        service = Inspection(run_workers=1)
        yield service
        service.close()


def layout_of(function: str = "build", **fields: str) -> Layout:
    return layouts.parse({"model": f"{MODULE}:{function}"} | fields).unwrap()


def planned(service: Inspection, layout: Layout) -> Snapshot:
    return service.with_programs(service.plan(layout), layout)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("function", "mesh"),
    [("build", "4x2"), ("sixteen", "8x2"), ("counted", "4x2"), ("explicit", "4x2")],
)
def test_its_own_mesh_is_the_default_and_is_planned(service, function, mesh) -> None:
    layout = layout_of(function)
    assert "x".join(map(str, layout.mesh_shape)) == mesh
    snapshot = planned(service, layout)
    assert [program.stage for program in snapshot.programs] == ["partitioned"] * 3
    assert snapshot.array("activation/sharding_constraint").spec == (("data",), ("model",))
    assert snapshot.findings == ()


@pytest.mark.nightly
def test_a_compile_for_a_target_is_that_of_constraints_without_devices(service) -> None:
    by_devices, by_names = (
        layout_of(function, mesh="4x2", target="tpu:v5e:2x4") for function in ("build", "by_names")
    )
    missing = targets.missing_compiler(by_devices.machine)
    if missing is not None:
        pytest.skip(missing)
    found, expected = (
        service.run(layout, service.plan(layout)).answer() for layout in (by_devices, by_names)
    )
    assert found.mesh == expected.mesh
    assert found.arrays == expected.arrays
    assert found.program("train_step").collectives
    for mine, theirs in zip(found.programs, expected.programs, strict=True):
        assert [
            (collective.op, collective.mesh_axes, collective.payload_bytes) for collective in mine.collectives
        ] == [
            (collective.op, collective.mesh_axes, collective.payload_bytes)
            for collective in theirs.collectives
        ]
        assert mine.memory == theirs.memory
        assert mine.shardings == theirs.shardings


def test_values_on_a_mesh_with_other_sizes_have_the_shards_of_jax(service) -> None:
    snapshot = planned(service, layout_of(mesh="2x4"))
    (finding,) = (one for one in snapshot.findings if one.code == OTHER_MESHES)
    assert "data 4 × model 2" in finding.message and "data 2 × model 4" in finding.message
    array = snapshot.array("activation/sharding_constraint")
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))
    theirs = NamedSharding(mesh, PartitionSpec("data", "model"))
    assert array.spec is None
    assert array.shard_shape == theirs.shard_shape(array.shape)
    assert array.bytes_per_device == math.prod(array.shard_shape) * 4
    assert array.replicas == 1
    indices = {
        device.id: tuple(part.indices(size)[:2] for part, size in zip(index, array.shape, strict=True))
        for device, index in theirs.devices_indices_map(array.shape).items()
    }
    assert {shard.device: shard.index for shard in array.shards} == indices


def test_a_mesh_of_another_number_of_devices_is_refused(service) -> None:
    with pytest.raises(InvalidInput, match=r"with_own_mesh\.py.*size 16 into shape \(4,2\)"):
        service.plan(layout_of(mesh="4x4"))


@pytest.mark.nightly
def test_arrays_in_host_memory_are_planned_run_and_compiled_there(service) -> None:
    here = layout_of("on_host")
    plan = planned(service, here)
    path, held = "opt_state/trace/up", 1024 * 1024 * 4 // 2
    kinds = {"params/up": None, path: PINNED}
    assert {kind: plan.array(kind).memory_kind for kind in kinds} == kinds
    assert memory_of_state(plan) == (held, held)
    assert plan.program("train_step").memory_use is None, "it is not estimated with such arrays"
    run = service.run(here, plan).answer()
    assert run.array(path).memory_kind == PINNED and run.array("params/up").memory_kind == "device"
    assert run.findings == ()


@pytest.mark.nightly
def test_the_peak_of_a_tpu_leaves_out_host_memory(service) -> None:
    layout = layout_of("on_host", target="tpu:v5e:2x4", width="8192")
    if (missing := targets.missing_compiler(layout.machine)) is not None:
        pytest.skip(missing)
    answer = service.run(layout, service.plan(layout)).answer()
    program, held, batch = answer.program("train_step"), 8192 * 8192 * 4 // 2, 64 * 8192 * 4 // 4
    memory = program.memory
    assert memory.arguments == held + batch
    assert memory.host == pytest.approx(2 * held, rel=0.01), "the old and the new array"
    assert memory.peak == pytest.approx(program.memory_use.peak_bytes, rel=0.01)
    assert memory.peak <= memory.arguments + memory.outputs + memory.temporaries


def memory_of_state(snapshot: Snapshot) -> tuple[int, int]:
    """Return the bytes of the train state on each device, and in host memory."""
    state = [array for array in snapshot.arrays if array.group in ("params", "opt_state")]
    sums = [
        sum(array.bytes_per_device for array in state if in_host_memory(array) is host)
        for host in (False, True)
    ]
    return sums[0], sums[1]


def test_partial_sums_on_explicit_axes_are_not_copies(service) -> None:
    snapshot = planned(service, layout_of("partial_sums"))
    inside = {array.path: array for array in snapshot.arrays if array.group == "activation"}
    assert list(inside) == ["activation/dot_general", "activation/reshard"]
    product, reduced = inside.values()
    assert product.spec == reduced.spec == (("data",), None)
    assert (product.unreduced, product.replicas) == (("model",), 1)
    assert (reduced.unreduced, reduced.replicas) == ((), 2)
    (collective,) = snapshot.program("apply").collectives
    assert (collective.op, collective.mesh_axes) == ("all-reduce", ("model",))
    line = 1 + SOURCE[: SOURCE.index("y = jnp.dot")].count("\n")
    assert [origin.from_ for origin in product.origins] == [f"explicit sharding {MODULE}.py:{line}"]


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("target", ["plan", "cpu", "tpu:v5e:2x4", "gpu:h100:8"])
def test_a_shard_map_on_its_own_explicit_mesh_is_the_same_everywhere(service, target) -> None:
    layout = layout_of("mapped_by_its_own_mesh", target=target)
    if target not in ("plan", "cpu") and (missing := targets.missing_compiler(layout.machine)):
        pytest.skip(missing)
    snapshot = planned(service, layout)
    if target != "plan":
        snapshot = service.run(layout, service.plan(layout)).answer()
    assert [finding for finding in snapshot.findings if finding.level == "error"] == []
    assert snapshot.array("w").spec == (("model",), None)
    (reduced,) = [
        collective for collective in snapshot.program("apply").collectives if collective.op == "all-reduce"
    ]
    # 2 of 8 rows on each device, times 32 float32.
    assert (reduced.mesh_axes, reduced.payload_bytes) == (("model",), 2 * 32 * 4)
