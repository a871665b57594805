"""Tests of captures in one process and in two."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jsonschema
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from jax import numpy as jnp
from jax.experimental import io_callback
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import inspector
from benchmarks.processes import PATIENCE
from inspector import audit
from inspector.jobs.engine import Environment, Pool
from inspector.machines import hardware
from inspector.prediction import memory
from inspector.prediction.memory import breakdown
from inspector.recording.capture import capture, capture_compiled
from inspector.records import snapshot
from inspector.records.snapshot import Array, Snapshot
from inspector.sharding import device_holdings
from inspector.sharding import placement as sharding
from inspector.sharding.totals import state_totals
from inspector.text.errors import InvalidInput

pytestmark = pytest.mark.close_to_jax

P = PartitionSpec
MESH = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))


def put(value: Any, *spec: Any, mesh: Mesh = MESH) -> jax.Array:
    return jax.device_put(value, NamedSharding(mesh, P(*spec)))


def codes(snapshot: Snapshot) -> list[str]:
    return [finding.code for finding in snapshot.findings]


# --- Two processes and one ----------------------------------------------------------------------------


Captured = Callable[[int], dict[str, Any]]


@pytest.fixture(scope="module")
def by(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Return a function that captures on 8 devices in this number of processes, once."""

    @functools.cache
    def captured(processes: int) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(f"by_{processes}")
        with Pool(workers=1, jobs="tests.recording.capturing") as pool:
            environment = Environment(8, processes=processes)
            job = pool.submit("captured", {"folder": str(folder)}, environment).wait(PATIENCE)
        assert job.state == "done", job.error
        records = {name: snapshot.from_json(job.result[name]) for name in ("snapshot", "program")}
        return job.result | records

    return captured


def placed(snapshot: Snapshot) -> list[tuple]:
    """Return every array with its shards in mesh order, without device ids."""
    places = {device: place for place, device in enumerate(snapshot.mesh.devices)}
    rows = []
    for array in snapshot.arrays:
        facts = array.facts and (array.facts.committed, array.facts.fully_replicated)
        shards = sharding.shards(array, snapshot.mesh_of(array))
        rows.append(
            (
                dataclasses.replace(array, shards=None, facts=None),
                facts,
                shards and [(places[shard.device], shard.index, shard.replica) for shard in shards],
            )
        )
    return rows


@pytest.mark.nightly
def test_two_processes_capture_the_same_as_one(by: Captured) -> None:
    alone, two = by(1)["snapshot"], by(2)["snapshot"]
    assert placed(two) == placed(alone)
    assert len(alone.arrays) == 16
    assert (alone.source.processes, two.source.processes) == (1, 2)
    assert two.mesh.processes == (0,) * 4 + (1,) * 4
    assert [axis.type for axis in two.mesh.axes] == ["auto", "auto"]
    turned = two.mesh_of(two.array("other"))
    assert turned.axis_names == ("rows", "columns") and set(turned.processes) == {0, 1}
    assert two.array("state/params/Dense_0/kernel").facts.placement == "several processes"
    assert placed(by(2)["program"]) == placed(by(1)["program"])
    one, other = (by(count)["program"].program("step") for count in (1, 2))
    assert one.shardings == other.shardings
    assert one.flops_per_device == other.flops_per_device > 0
    assert [(c.op, c.mesh_axes, c.payload_bytes) for c in one.collectives] == [
        (c.op, c.mesh_axes, c.payload_bytes) for c in other.collectives
    ]


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("processes", [2, 1])
def test_every_process_has_the_same_capture_and_no_new_array(by: Captured, processes: int) -> None:
    assert by(processes)["same"]
    assert by(processes)["untouched"] == [True] * processes


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("processes", [2, 1])
def test_captured_shards_equal_the_live_shards(by: Captured, processes: int) -> None:
    found = by(processes)["snapshot"]
    for path, spec, shard_shape, bytes_per_device, replicas in by(processes)["asked"]:
        array = found.array(path)
        assert [list(axes) if axes else None for axes in array.spec] == spec
        assert list(array.shard_shape) == shard_shape
        assert (array.bytes_per_device, array.replicas) == (bytes_per_device, replicas)


def test_logical_axes_come_from_boxes(by: Captured) -> None:
    found = by(2)["snapshot"]
    moment = found.array("state/opt_state/0/mu/Dense_0/kernel")
    assert moment.logical_axes == ("embed", "hidden")
    assert (moment.box.kind, moment.group) == ("LogicallyPartitioned", "opt_state")
    by_mesh = found.array("state/params/Dense_1/kernel")
    assert (by_mesh.logical_axes, by_mesh.group) == (None, "params")  # its names are mesh axes
    assert by_mesh.box.names == (("model",), None)


# --- Any pytree ----------------------------------------------------------------------------------------


specs = st.permutations([None, "data", "model"]).flatmap(
    lambda axes: st.sampled_from([P(*axes[:2]), P(tuple(a for a in axes[:2] if a)), P(axes[0])])
)


@given(st.lists(specs, min_size=1, max_size=4))
def test_every_array_has_the_shards_of_jax(drawn) -> None:
    state = {f"a{n}": put(jnp.zeros((8, 16)), *spec) for n, spec in enumerate(drawn)}
    result = capture(state, mesh=MESH)
    assert result == snapshot.from_json(json.loads(snapshot.dumps(result)))
    for path, value in state.items():
        theirs = {
            shard.device.id: (
                tuple(part.indices(size)[:2] for part, size in zip(shard.index, value.shape, strict=True)),
                shard.replica_id,
            )
            for shard in value.addressable_shards
        }
        mine = sharding.shards(result.array(path), result.mesh)
        assert {shard.device: (shard.index, shard.replica) for shard in mine} == theirs
        assert result.array(path).bytes_per_device == value.addressable_shards[0].data.nbytes


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    """A registered class with arrays, functions and numbers, as in Equinox."""

    weight: jax.Array
    activation: Any
    inner: Any


def test_arrays_of_a_registered_class() -> None:
    snapshot = capture(Layer(put(jnp.ones((8, 8)), "data"), jax.nn.relu, [jnp.ones(3), 5, np.ones(2)]))
    assert [array.path for array in snapshot.arrays] == ["weight", "inner/0"]
    (left,) = [finding for finding in snapshot.findings if finding.code == "left-out"]
    assert left.message.startswith("Skipped 3 leaves")
    assert "activation, inner/1, inner/2" in left.message


def test_groups_come_from_optax_types_and_from_certain_names() -> None:
    params = {"w": put(jnp.ones((8, 8)), "data")}
    chained = optax.chain(optax.clip(1.0), optax.masked(optax.adam(1e-3), {"w": True}))
    state = {
        "anything": chained.init(params),  # `ScaleByAdamState` inside of other states
        "weights": params,
        "optimizer": {"momentum": params},
        "params": {"opt": params},  # the certain name wins
        "ema": params,
    }
    snapshot = capture(state)
    assert {array.path: array.group for array in snapshot.arrays} == {
        "anything/1/inner_state/0/count": "opt_state",
        "anything/1/inner_state/0/mu/w": "opt_state",
        "anything/1/inner_state/0/nu/w": "opt_state",
        "weights/w": "other",  # a name that anything can have
        "optimizer/momentum/w": "opt_state",
        "params/opt/w": "params",
        "ema/w": "other",
    }


def test_an_nnx_module_and_its_optimizer() -> None:
    with nnx.use_eager_sharding(False):
        init = nnx.with_partitioning(nnx.initializers.ones, ("embed", "hidden"))
        module = nnx.Linear(8, 16, kernel_init=init, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(module, optax.adam(1e-3), wrt=nnx.Param)
        snapshot = capture({"model": module, "tx": optimizer})
        by_state = capture(nnx.state(module))
    kernel = snapshot.array("model/kernel")
    assert (kernel.group, kernel.logical_axes) == ("params", ("embed", "hidden"))
    assert kernel.box.kind == "Param"
    moment = snapshot.array("tx/opt_state/0/mu/kernel")
    assert (moment.group, moment.logical_axes) == ("opt_state", ("embed", "hidden"))
    assert {array.path for array in by_state.arrays} == {"bias", "kernel"}


def test_unreduced_and_unconstrained_specs() -> None:
    explicit = jax.make_mesh((2, 4), ("data", "model"), (AxisType.Explicit,) * 2)
    partial = NamedSharding(explicit, P("data", unreduced={"model"}))
    snapshot = capture(
        {
            "sum": jax.ShapeDtypeStruct((8, 4), "float32", sharding=partial),
            "host": jax.device_put(
                np.ones(8), NamedSharding(explicit, P("data"), memory_kind="unpinned_host")
            ),
            "uneven": jax.ShapeDtypeStruct((3,), "int8", sharding=NamedSharding(explicit, P("data"))),
            "unknown": jax.ShapeDtypeStruct((3,), "int8"),
        },
        mesh=explicit,
    )
    assert [axis.type for axis in snapshot.mesh.axes] == ["explicit", "explicit"]
    summed = snapshot.array("sum")
    assert summed.unreduced == ("model",)
    assert (summed.spec, summed.replicas) == ((("data",), None), 1)  # partial sums are not replicas
    assert snapshot.array("host").facts.memory_kind == "unpinned_host"
    uneven = snapshot.array("uneven")
    assert (uneven.shard_shape, uneven.bytes_per_device, uneven.replicas) == (None, None, None)
    unknown: Array = snapshot.array("unknown")
    assert (unknown.spec, unknown.shards, unknown.shard_shape) == (None, None, None)
    assert codes(snapshot) == ["indivisible", "unreduced"]


def test_arrays_on_another_mesh_have_specs_of_that_mesh() -> None:
    line = Mesh(np.array(jax.devices()[2:6]), ("line",))
    state = {
        "a": put(jnp.ones((8, 4)), "data"),
        "b": put(jnp.ones((8, 4)), "data"),
        "c": put(jnp.ones((8, 4)), "line", mesh=line),
        "d": jnp.ones(()),
    }
    snapshot = capture(state)
    assert snapshot.mesh.axis_names == ("data", "model")
    other = snapshot.array("c")
    assert other.spec == (("line",), None)
    mesh = snapshot.mesh_of(other)
    assert (mesh.axis_names, mesh.devices) == (("line",), (2, 3, 4, 5))
    assert snapshot.mesh_of(snapshot.array("a")) == snapshot.mesh
    assert [(shard.device, shard.index) for shard in sharding.shards(other, mesh)] == [
        (device, ((2 * place, 2 * place + 2), (0, 4))) for place, device in enumerate((2, 3, 4, 5))
    ]
    assert (other.shard_shape, other.replicas) == ((2, 4), 1)
    assert [shard.device for shard in snapshot.array("d").shards] == [jax.devices()[0].id]
    assert codes(snapshot) == []
    chosen = capture(state, mesh=line)
    assert chosen.mesh.axis_names == ("line",) and chosen.array("c").mesh is None
    assert codes(capture({"d": state["d"]})) == ["no-mesh"]


def test_an_abstract_mesh_has_axes_and_no_devices() -> None:
    spec = NamedSharding(MESH.abstract_mesh, P("data"))
    snapshot = capture({"a": jax.ShapeDtypeStruct((8,), "float32", sharding=spec)})
    assert (snapshot.mesh.device_kind, snapshot.mesh.processes) == (None, None)
    assert codes(snapshot) == ["abstract-mesh"]
    with_devices = capture({"a": jax.ShapeDtypeStruct((8,), "float32", sharding=spec), "b": put(jnp.ones(8))})
    assert with_devices.array("a").spec == (("data",),)
    assert with_devices.mesh.processes == (0,) * 8


def test_names_and_groups_can_be_given() -> None:
    state = {"w": put(jnp.ones((8, 4)), "data"), "m": put(jnp.ones(4))}
    snapshot = capture(state, logical_axes={"w": ("embed", None)}, group="params")
    assert snapshot.array("w").logical_axes == ("embed", None)
    assert {array.group for array in snapshot.arrays} == {"params"}
    by_path = capture(state, group=lambda path: "opt_state" if path == "m" else "params")
    assert by_path.array("m").group == "opt_state"


def test_repeated_paths_get_numbers() -> None:
    snapshot = capture({"a/b": jnp.ones(1), "a": {"b": jnp.ones(2)}})
    assert sorted(array.path for array in snapshot.arrays) == ["a/b", "a/b (2)"]


# --- Programs ------------------------------------------------------------------------------------------


def test_a_program_has_the_figures_of_xla(tmp_path) -> None:
    state = {"w": put(jnp.ones((8, 16)), "data", "model"), "idle": put(jnp.ones(3))}
    x = put(jnp.ones((4, 8)), "data")
    compiled = jax.jit(lambda s, x: {"y": x @ s["w"]}, donate_argnums=1).lower(state, x).compile()
    result = capture_compiled({"matmul": compiled}, tmp_path / "run.json")
    assert snapshot.read(tmp_path / "run.json") == result
    schema = json.loads(snapshot.SCHEMA_PATH.read_text())
    jsonschema.validate(json.loads((tmp_path / "run.json").read_text()), schema)
    (program,) = result.programs
    analysis = compiled.memory_analysis()
    assert program.memory.arguments == analysis.argument_size_in_bytes
    assert program.memory.temporaries == analysis.temp_size_in_bytes
    assert program.flops_per_device == 2 * 4 * 8 * 16 / 8
    assert {(c.op, c.mesh_axes) for c in program.collectives} <= {
        (op, (axis,)) for op in ("all-gather", "all-reduce", "collective-permute", "all-to-all")
        for axis in ("data", "model")
    }  # fmt: skip
    told = {sharding.path: sharding for sharding in program.shardings}
    assert not told["matmul/input/0/idle"].used
    assert told["matmul/input/1"].donated
    out, chosen = result.array("matmul/output/y"), compiled.output_shardings["y"]
    assert out.shard_shape == chosen.shard_shape((4, 16))
    assert math.prod(out.shard_shape) * 4 == out.bytes_per_device
    together = capture(state, programs={"matmul": compiled})
    inputs = [sharding.path for sharding in together.programs[0].shardings if sharding.role == "input"]
    assert inputs == ["idle", "w", "matmul/input/1"]
    assert [array.path for array in together.arrays] == ["idle", "w"]


def test_the_arguments_of_a_program_are_the_captured_arrays() -> None:
    """Every argument but the batch is explained, whether the state is one argument or several."""
    layer = {"kernel": put(jnp.ones((8, 8)), "data"), "bias": put(jnp.ones(8), "model")}
    params, opt = {"a": layer, "b": layer}, optax.adam(1e-3)
    moments = jax.tree.map(lambda x: jax.device_put(x, x.sharding), (params, params))
    opt_state = (optax.ScaleByAdamState(put(jnp.int32(0)), *moments), optax.EmptyState())
    x = put(jnp.ones((4, 8)), "data")

    def whole(state, x):
        loss = lambda p: ((x @ p["a"]["kernel"] + p["b"]["bias"]) @ p["b"]["kernel"]).sum()  # noqa: E731
        grads = jax.grad(loss)(state["params"])
        updates, after = opt.update(grads, state["opt_state"])
        return {"params": optax.apply_updates(state["params"], updates), "opt_state": after}

    def parts(params, opt_state, x):
        result = whole({"params": params, "opt_state": opt_state}, x)
        return result["params"], result["opt_state"]

    state = {"params": params, "opt_state": opt_state}
    programs = {
        "whole": jax.jit(whole).lower(state, x).compile(),
        "parts": jax.jit(parts).lower(params, opt_state, x).compile(),
    }
    snapshot = capture(state, programs=programs)
    paths = [array.path for array in snapshot.arrays]
    for program in snapshot.programs:
        inputs = [sharding.path for sharding in program.shardings if sharding.role == "input"]
        assert sorted(inputs[:-1]) == sorted(paths)
        (rest,) = [part.bytes for part in breakdown(snapshot, program).arguments if part.group is None]
        assert rest == x.addressable_shards[0].data.nbytes
    # Another dtype or sharding is another array.
    other = {"params": jax.tree.map(lambda v: jax.device_put(v, put(v).sharding), params)}
    unlike = capture(other, programs=programs).programs[0]
    assert not {sharding.path for sharding in unlike.shardings if sharding.path.startswith("params")}


def test_programs_of_nnx_and_wrapped_programs() -> None:
    """nnx.jit numbers the arrays of a module; its own state has their paths."""
    with nnx.use_eager_sharding(False):
        module = nnx.Linear(8, 16, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(module, optax.adam(1e-3), wrt=nnx.Param)

    @nnx.jit
    def step(module, optimizer, x):
        loss, grads = nnx.value_and_grad(lambda module: (module(x) ** 2).mean())(module)
        optimizer.update(module, grads)
        return loss

    compiled = step.lower(module, optimizer, jnp.ones((4, 8))).compile()
    snapshot = capture({"model": module, "tx": optimizer}, programs={"step": compiled})
    paths = [array.path for array in snapshot.arrays]
    inputs = [sharding.path for sharding in snapshot.programs[0].shardings if sharding.role == "input"]
    assert inputs == [*paths, "step/input/2"]
    alone = capture_compiled(compiled)
    assert alone.array("program/input/0/kernel").group == "params"
    assert alone.array("program/input/1/opt_state/0/mu/kernel").group == "opt_state"
    assert alone.programs[0].memory.arguments == compiled.memory_analysis().argument_size_in_bytes


@dataclasses.dataclass
class FilterJitted:
    """A wrapper as `eqx.filter_jit(...).lower(...).compile()` returns it."""

    compiled: Any


def test_numbered_arguments_match_arrays_in_their_order() -> None:
    """Equinox passes the leaves of a module as lists."""
    params = {"a": put(jnp.ones((8, 8)), "data"), "b": put(jnp.ones(8))}
    opt_state = optax.adam(1e-3).init(params)
    leaves = jax.tree.leaves(params), [*jax.tree.leaves(opt_state), put(jnp.ones((4, 8)))]
    compiled = jax.jit(lambda first, rest: (first, rest)).lower(*leaves).compile()
    state = {"opt_state": opt_state, "params": params}
    snapshot = capture(state, programs={"step": FilterJitted(compiled)})
    inputs = [sharding.path for sharding in snapshot.programs[0].shardings if sharding.role == "input"]
    assert inputs == [
        *("params/a", "params/b", "opt_state/0/count"),
        *(f"opt_state/0/{moment}/{name}" for moment in ("mu", "nu") for name in "ab"),
        "step/input/1/5",
    ]
    # Parameters alone could also be moments.
    unclear = capture({"params": params}, programs={"step": compiled}).programs[0]
    assert not any(sharding.path.startswith("params") for sharding in unclear.shardings)


@pytest.mark.parametrize("dtype", ["int4", "float32"])
def test_arguments_of_packed_types_are_explained(dtype) -> None:
    """XLA packs two int4 elements into a byte; JAX counts one byte for each."""
    state = {"w": put(jnp.ones((8, 64), dtype), "data")}
    compiled = jax.jit(lambda s: s["w"] + s["w"]).lower(state).compile()
    snapshot = capture(state, programs={"add": compiled})
    (part,) = breakdown(snapshot, snapshot.programs[0]).arguments
    assert part.bytes == compiled.memory_analysis().argument_size_in_bytes
    assert snapshot.array("w").bytes == state["w"].nbytes


def test_arrays_in_host_memory_take_no_device_memory() -> None:
    on_host = NamedSharding(MESH, P("data"), memory_kind="pinned_host")
    state = {
        "params": {"w": put(jnp.ones((8, 16)), "data")},
        "opt_state": {"w": jax.device_put(jnp.ones((8, 16)), on_host)},
    }
    compiled = jax.jit(lambda s: s["params"]["w"] + 1).lower(state).compile()
    snapshot = capture(state, programs={"add": compiled})
    half = 8 * 16 * 4 // 2
    sums = state_totals(snapshot)
    assert (sums.per_device, sums.host, sums.bytes) == (half, half, 4 * half)
    held = device_holdings.holdings(snapshot, [0])
    assert (held.bytes, held.host) == (half, half)
    assert [piece.memory_kind for piece in held.pieces] == ["pinned_host", "device"]
    need = memory.fit(dataclasses.replace(snapshot, programs=()), hardware.chip("v5e")).need
    assert need is not None and need.peak_bytes == half
    assert audit.audit(snapshot) == audit.audit(dataclasses.replace(snapshot, arrays=snapshot.arrays[1:]))


# --- Invalid arguments ---------------------------------------------------------------------------------


def boxed_in_a_jit(x: jax.Array) -> jax.Array:
    capture({"x": x})
    return x


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: capture({"a": jnp.ones(1)}, "/dev/null/x.json"), "cannot be written"),
        (lambda: capture({1: 1, "a": 2}), "cannot be read as a pytree"),
        (lambda: jax.jit(boxed_in_a_jit)(1.0), "'x' is a traced value"),
        (lambda: capture({"a": jnp.ones(1)}, group="weights"), "group is 'weights', but must be"),
        (lambda: capture({"a": jnp.ones(1)}, mesh=3), "mesh is .3., but must be"),
        (lambda: capture({"a": jnp.ones(1)}, logical_axes={"b": ("x",)}), "no array has this path"),
        (lambda: capture({"a": jnp.ones(1)}, logical_axes={"a": ()}), "0 names at 'a'"),
        (lambda: capture_compiled(jax.jit(abs)), "must be a compiled program"),
    ],
)
def test_invalid_arguments_are_refused(wrong, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        wrong()


def test_a_failed_write_keeps_the_old_file(tmp_path) -> None:
    file = tmp_path / "run.json"
    file.write_text("before")
    with pytest.raises(InvalidInput):
        capture({"a": jnp.ones(1)}, file, group="nonsense")
    assert file.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


# --- Imported packages ---------------------------------------------------------------------------------

ALONE = """
import sys
BLOCKED = {"flax", "optax", "streamlit", "plotly", "rich", "jinja2", "orbax", "tensorstore"}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
import inspector
assert "jax" not in sys.modules and "numpy" not in sys.modules
from inspector import capture, capture_compiled
import jax
from jax.experimental import io_callback
import jax.numpy as jnp
state = {"params": {"w": jnp.ones((4, 3))}, "step": 0}
program = jax.jit(lambda x: x @ x.T).lower(state["params"]["w"]).compile()
found = capture(state, sys.argv[1], programs={"matmul": program})
assert found.arrays[0].shape == (4, 3) and found.programs[0].memory is not None
assert capture_compiled(program).programs[0].work is not None
assert not BLOCKED & {name.partition(".")[0] for name in sys.modules}
"""


def test_capture_imports_only_jax_numpy_and_msgspec(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    root = Path(inspector.__file__).parents[1]
    command = [sys.executable, "-c", ALONE, str(file)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert snapshot.read(file).array("params/w").bytes == 48


# --- Specs and memory kinds ------------------------------------------------------------------------------


def test_a_spec_with_fewer_entries_than_dimensions_leaves_the_others_unsharded() -> None:
    short = capture({"a": put(jnp.ones((8, 4, 3)), "data")}).array("a")
    assert short == capture({"a": put(jnp.ones((8, 4, 3)), "data", None, None)}).array("a")
    assert short.spec == (("data",), None, None) and short.shard_shape == (4, 4, 3)
    abstract = jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=NamedSharding(MESH, P("model")))
    assert capture({"a": abstract}).array("a").spec == (("model",), None)


def test_the_memory_kind_of_an_array_is_kept(tmp_path: Path) -> None:
    on_host = NamedSharding(MESH, P("data"), memory_kind="pinned_host")
    state = {
        "device": put(jnp.ones(8), "data"),
        "host": jax.device_put(jnp.ones(8), on_host),
        "abstract": jax.ShapeDtypeStruct((8,), jnp.float32, sharding=on_host),
    }
    capture(state, tmp_path / "it.json")
    result = snapshot.read(tmp_path / "it.json")
    assert result.array("device").memory_kind == jax.devices()[0].default_memory().kind
    assert result.array("host").memory_kind == "pinned_host"
    assert result.array("abstract").memory_kind == "pinned_host"
    assert result.array("host").facts.memory_kind == "pinned_host"


def test_boxes_with_several_arrays() -> None:
    box = nn.Partitioned({"scale": jnp.ones(2), "values": jnp.ones((2, 2))}, names=("a", "b"))
    snapshot = capture({"w": box})
    assert [array.path for array in snapshot.arrays] == ["w/scale", "w/values"]
    assert snapshot.array("w/values").logical_axes is None


# --- Every kind of placement ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "renamed"),
    [("programs.json", ("/values/", "/0/")), ("state.json", ("/input/values", ""))],
)
def test_every_kind_of_placement_equals_that_of_jax(
    placements: Path, file: str, renamed: tuple[str, str]
) -> None:
    result = snapshot.read(placements / file)
    expected = json.loads((placements / "expected.json").read_text())
    live = file == "state.json"
    compared = 0
    for key, jax_array in expected.items():
        if live and "/output/" in key:
            continue
        array = result.array(key.replace(*renamed))
        assert array.shape == tuple(jax_array["shape"]) and array.dtype == jax_array["dtype"], key
        assert array.memory_kind == jax_array["memory_kind"], key
        assert list(array.unreduced) == jax_array["unreduced"], key
        held = {
            str(shard.device): [list(part) for part in shard.index]
            for shard in sharding.shards(array, result.mesh_of(array))
        }
        assert held == jax_array["shards"], key
        compared += 1
    # The sum of the first program has no expected placement.
    assert compared == len(result.arrays) - (not live)


def test_a_program_on_several_meshes_has_mesh_axes(placements: Path) -> None:
    """Its devices are in the order of the main mesh, so groups that fit axes of this one have them."""
    result = snapshot.read(placements / "programs.json")
    total = result.program("jit_total")
    axes = {
        collective.mesh_axes: (collective.groups, collective.group_size) for collective in total.collectives
    }
    assert axes[("data", "model")] == (1, 8)
    assert axes[("data",)] == (4, 2) and axes[("model",)] == (2, 4)


def test_a_program_with_ordered_effects_is_recorded() -> None:
    """JAX passes tokens between ordered effects, which have no layout."""
    mesh = jax.make_mesh((8,), ("d",))

    def step(x):
        io_callback(lambda largest: None, None, jnp.max(x), ordered=True)
        return {"x": x * 2, "largest": jnp.max(x)}

    x = jax.device_put(jnp.ones((64, 8)), NamedSharding(mesh, PartitionSpec("d")))
    compiled = jax.jit(step).lower(x).compile()
    (program,) = capture({"x": x}, programs={"step": compiled}).programs
    outputs = {
        sharding.path: sharding.compiled for sharding in program.shardings if sharding.role == "output"
    }
    assert outputs == {"step/output/largest": (), "x": (("d",), None)}
    assert {collective.op for collective in program.collectives or ()} == {"all-reduce"}
