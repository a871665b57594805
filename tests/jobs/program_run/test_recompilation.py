"""Reasons for a second compile of a function, from records of its arguments."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from inspector.answers.array import placed
from inspector.jobs.program_run import folder_snapshot
from inspector.jobs.program_run.records import reasons
from inspector.prediction.memory import breakdown
from inspector.recording.recorder import _sharding_text
from inspector.records import program_run
from inspector.records.program_run import CompileReason
from tests.jobs.program_run.test_program_run import RUN, call

# A function of arrays on other devices, and one of a pytree whose static part is compared as JAX does.
PROGRAM = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

@jax.tree_util.register_pytree_node_class
class Layer:
    def __init__(self, w, activation):
        self.w, self.activation = w, activation
    def tree_flatten(self):
        return (self.w,), self.activation
    @classmethod
    def tree_unflatten(cls, activation, leaves):
        return cls(*leaves, activation)

double = jax.jit(lambda x: 2 * x)
scaled = jax.jit(lambda x, layer: layer.activation(layer.w * x))
for part in np.split(np.array(jax.devices()), 2):
    x = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(Mesh(part, ("data",)), P("data")))
    double(x)
for activation in (jax.numpy.tanh, jax.numpy.tanh, jax.numpy.sin):
    scaled(x, Layer(x, activation))
"""


def meta(*inputs: dict[str, Any], static: Any = None, new: bool = False) -> dict[str, Any]:
    return {"inputs": list(inputs), "static": static or {}, "new_function": new}


def value(name: str, shape: tuple[int, ...] = (8,), **changes: Any) -> dict[str, Any]:
    plain = {
        "name": name,
        "shape": list(shape),
        "dtype": "float32",
        "weak": False,
        "sharding": "P()",
    }
    return plain | changes


X = meta(value("x"), value("y"), static={"n": ("1", 1)})


def test_each_difference_is_a_reason() -> None:
    assert reasons([X]) == ()
    assert reasons([X, meta(value("x", (4,)), value("y"), static=X["static"])]) == (
        CompileReason("shape", "x", "[8]", "[4]"),
    )
    other = meta(value("x", dtype="int8", weak=True), value("y", sharding="P('a')"), static=X["static"])
    assert {(reason.kind, reason.argument) for reason in reasons([X, other])} == {
        ("dtype", "x"),
        ("weak type", "x"),
        ("sharding", "y"),
    }
    assert reasons([X, X | {"static": {"n": ("2", 2)}}]) == (CompileReason("static", "n", "1", "2"),)
    fewer = meta(value("x"), static=X["static"])
    assert reasons([X, fewer]) == (CompileReason("argument", "y", before="float32[8]"),)
    assert reasons([fewer, X]) == (CompileReason("argument", "y", after="float32[8]"),)


def test_equal_arguments_leave_the_function_or_nothing() -> None:
    assert reasons([X, X | {"new_function": True}]) == (CompileReason("function"),)
    assert reasons([X, X]) == (CompileReason("unknown"),)
    other = meta(value("x", (4,)), value("y"), static=X["static"]) | {"new_function": True}
    assert reasons([X, other]) == (CompileReason("function"), CompileReason("shape", "x", "[8]", "[4]"))


def test_the_most_similar_compile_is_compared() -> None:
    far = meta(value("x", (2,)), value("y", (2,)), static=X["static"])
    assert reasons([X, far, meta(value("x"), value("y", (3,)), static=X["static"])]) == (
        CompileReason("shape", "y", "[8]", "[3]"),
    )


@pytest.mark.close_to_jax
def test_other_devices_and_another_static_part_of_a_pytree_are_reasons(tmp_path: Path) -> None:
    (tmp_path / "again.py").write_text(PROGRAM)
    assert call(tmp_path, *RUN, "again.py").returncode == 0
    programs = program_run.read(tmp_path / "recorded").programs
    assert [program.reasons for program in programs] == [
        (), (CompileReason("devices", None, "[0, 1, 2, 3]", "[4, 5, 6, 7]"),), (),
        (CompileReason("structure", "layer"),),
    ]  # fmt: skip


# Arguments that are not committed share a compile, whoever made them; a weak type and a commitment do not.
UNCOMMITTED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
x = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("data")))
scale = jax.jit(lambda x, t: x * t)
arguments = np.float32(1), jnp.float32(1), 1.0, jax.device_put(np.float32(1), NamedSharding(mesh, P()))
compiles = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: compiles.append(name))
for t in arguments:
    scale(x, t)
print(compiles.count("/jax/core/compile/backend_compile_duration"))
"""


@pytest.mark.close_to_jax
def test_arguments_that_are_not_committed_differ_in_nothing(tmp_path: Path) -> None:
    (tmp_path / "weak.py").write_text(UNCOMMITTED)
    ran = call(tmp_path, *RUN, "weak.py")
    programs = program_run.read(tmp_path / "recorded").programs
    assert int(ran.stdout) == 3 == len(programs)
    kinds = [[(reason.kind, reason.argument) for reason in program.reasons] for program in programs]
    assert kinds == [[], [("weak type", "t")], [("sharding", "t")]]


def test_shardings_that_jax_calls_equivalent_are_no_reason() -> None:
    mesh = jax.make_mesh((4, 1, 2), ("data", "one", "model"), axis_types=(AxisType.Auto,) * 3)
    entries = (None, "data", "one", ("data",), ("data", "model"), ("model", "data"), ("one", "data"), ())
    specs = [(), *((entry,) for entry in entries), *((entry, None) for entry in entries), (None, "model")]
    shardings = [NamedSharding(mesh, PartitionSpec(*spec)) for spec in specs]
    for one, other in itertools.product(shardings, repeat=2):
        assert (_sharding_text(one) == _sharding_text(other)) is one.is_equivalent_to(other, 2)


# One function compiled for two dtypes, one for two sizes of its result. It prints the text of the type and
# the bytes on one device of what each compile took and returned.
OTHER_TYPES = """
import functools, json
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
rows = NamedSharding(mesh, P("data", None))

@jax.jit
def total(weights):
    return (weights * weights).sum(1).astype(jnp.float32)

@functools.partial(jax.jit, static_argnums=1, out_shardings=rows)
def nearest(weights, width):
    return jnp.argsort(weights, axis=1)[:, :width]

weights = jax.device_put(np.ones((64, 32), np.float32), rows)
small = weights.astype(jnp.bfloat16)
of = lambda *arrays: [[str(jax.typeof(array)), array.addressable_shards[0].data.nbytes] for array in arrays]
known = {}
for name, array in (("total", weights), ("total (2)", small)):
    known[name] = of(array, total(array))
for name, width in (("nearest", 8), ("nearest (2)", 16)):
    found = nearest(weights, width)
    known[name] = of(weights, found)
print(json.dumps(known))
"""


def test_an_array_is_a_value_of_a_program_only_with_its_type(tmp_path: Path) -> None:
    (tmp_path / "two_types.py").write_text(OTHER_TYPES)
    ended = call(tmp_path, *RUN, "two_types.py")
    assert ended.returncode == 0, ended.stderr
    known = json.loads(ended.stdout)
    snapshot = folder_snapshot.read(tmp_path / "recorded")
    arrays = {array.path: array for array in snapshot.arrays}
    for program in snapshot.programs:
        memory = breakdown(snapshot, program)
        assert memory is not None
        for role, parts, (kind, size) in zip(
            ("input", "output"), (memory.arguments, memory.outputs), known[program.name], strict=True
        ):
            assert sum(part.bytes or 0 for part in parts) == size
            assert all((part.bytes or 0) >= 0 for part in parts)
            for array in (arrays.get(value.path) for value in program.shardings if value.role == role):
                if array is not None:
                    assert f"{array.dtype}[{','.join(map(str, array.shape or ()))}]" == kind.replace(
                        "@data", ""
                    )
    names = {(array.dtype, array.shape): array for array in snapshot.arrays}
    said = {key: " ".join(map(str, placed(array, snapshot).blocks)) for key, array in names.items()}
    assert "total, nearest and nearest (2) take an argument of its path and type" in said["float32", (64, 32)]
    assert "total (2) takes an argument of its path and type" in said["bfloat16", (64, 32)]
    assert "nearest (2) returns it" in said["int32", (64, 16)]
