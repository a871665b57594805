"""Programs after XLA's partitioner, against full compiles of the same functions by JAX."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir

from inspector.compiled import program_text
from inspector.hlo import replica_groups
from inspector.hlo.analysis import Analysis
from inspector.hlo.loop_invariants import simplified
from inspector.partition import large_mesh
from inspector.recording import imported_module
from inspector.recording.lowered_module import partitioned_module
from inspector.records.snapshot import Collective, Mesh, MeshAxis
from inspector.text.errors import InvalidInput
from inspector.tracing.leaves import mesh_record
from inspector.tracing.mlir import xla_partitioner

pytestmark = pytest.mark.close_to_jax

SIZES = {"data": 2, "model": 4}


@pytest.fixture
def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), tuple(SIZES), axis_types=(AxisType.Auto,) * 2)


def sent(collectives: tuple[Collective, ...] | None) -> Counter:
    """Executions by operation, mesh axes and payload."""
    counter: Counter = Counter()
    for collective in collectives or ():
        counter[collective.op, collective.mesh_axes, collective.axis_parts, collective.payload_bytes] += (
            collective.executions or 1
        )
    return counter


def product(x: Any, w: Any) -> Any:
    return jax.nn.relu(x @ w)


def loop(x: Any, w: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ w @ w.T), x)


def fallbacks(x: Any, w: Any) -> Any:
    values, _ = jax.lax.top_k(x, 2)
    return jnp.cumsum(x, axis=1), values, jnp.roll(w, 1, axis=0), jnp.argmax(x, axis=1)


def accumulated(x: Any, w: Any) -> Any:
    parts = x.reshape(2, x.shape[0] // 2, -1)  # so each part is on half of the devices of an axis
    return jax.lax.map(lambda part: (part @ w).sum(), parts)


FUNCTIONS = [product, loop, fallbacks, accumulated]
SPECS = [
    (P("data", "model"), P("model", None)),
    (P(("data", "model"), None), P(None, "data")),
    (P(None, ("model", "data")), P("data", "model")),
    (P("model"), P()),
]


@pytest.mark.parametrize("specs", SPECS, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_collectives_are_those_of_the_compile(
    function: Callable[..., Any], specs: tuple[P, P], mesh: jax.sharding.Mesh
) -> None:
    shapes = [
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
        for shape, spec in zip(((16, 32), (32, 64)), specs, strict=True)
    ]
    lowered = jax.jit(function).lower(*shapes)
    module = lowered.compiler_ir("stablehlo")
    text = xla_partitioner.partitioned(ir.Module.parse(str(module), module.context), 8)
    record = mesh_record(mesh)
    expected = program_text.read(lowered.compile().as_text(), record).collectives
    found, module = program_text.read(text, record).collectives, program_text.parsed(text)
    assert found is not None and module is not None
    assert sent(simplified(found, Analysis(module))) == sent(expected)
    # The result that ends the compile is gone.
    assert "rng-bit-generator" not in text
    root = next(line for line in text.splitlines()[::-1] if line.startswith("  ROOT"))
    count = len(jax.tree.leaves(lowered.out_info))
    assert len(program_text.parsed(text).computations[-1].root.operands) == count, root


def test_a_module_for_other_devices_is_a_sentence() -> None:
    with jax_context(), pytest.raises(InvalidInput) as error:
        module = ir.Module.parse(
            "func.func public @main(%0: tensor<8xf32>) -> tensor<8xf32> {"
            ' %1 = "stablehlo.custom_call"(%0) {call_target_name = "Sharding",'
            ' mhlo.sharding = "{devices=[64]<=[64]}"} : (tensor<8xf32>) -> tensor<8xf32>'
            " return %1 : tensor<8xf32> }"
        )
        xla_partitioner.partitioned(module, 8)
    assert str(error.value).startswith("XLA cannot partition") and "\n" not in str(error.value)


def jax_context() -> Any:
    from jax._src.interpreters import mlir as jax_mlir

    return jax_mlir.make_ir_context()


def test_a_result_with_a_layout_of_its_own(mesh: jax.sharding.Mesh) -> None:
    """The product of the gradient is transposed, which a round trip through HLO writes as a layout."""

    def step(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)

    shapes = [
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
        for shape, spec in (((64, 32), P("model")), ((16, 64), P(("data", "model"))))
    ]
    lowered = jax.jit(step).lower(*shapes)
    record = mesh_record(mesh)
    result = partitioned_module(lowered.compiler_ir("stablehlo"), "step", record, ["w", "x"], ["gradient"])
    expected = program_text.read(lowered.compile().as_text(), record).collectives
    assert sent(result.program.collectives) == sent(expected)


def test_causes_name_arguments_and_lines(mesh: jax.sharding.Mesh) -> None:
    def step(x: Any, w: Any) -> Any:
        return (x @ w).sum()

    x = jax.ShapeDtypeStruct((16, 32), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    w = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=NamedSharding(mesh, P("model")))
    module = jax.jit(step).lower(x, w).compiler_ir("stablehlo")
    result = partitioned_module(module, "step", mesh_record(mesh), ["in/x", "in/w"], ["out"])
    by_axes = {collective.mesh_axes: collective for collective in result.program.collectives or ()}
    contracted = by_axes["model",]
    assert {origin.from_ for origin in contracted.origins or ()} == {"in/w"}
    line = step.__code__.co_firstlineno + 1
    assert contracted.source == f"test_xla_partitioner.py:{line}"
    assert {origin.from_ for origin in by_axes["data",].origins or ()} == {"in/x"}


@pytest.mark.parametrize("names", [None, ("x", "y")])
def test_shardings_of_jax_before_shardy(names: Any, mesh: jax.sharding.Mesh) -> None:
    def step(x: Any, w: Any) -> Any:
        y = jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("data", "model")))
        return jnp.sin(y)

    shapes = [
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
        for shape, spec in (((16, 32), P("data")), ((32, 64), P("model")))
    ]
    expected = program_text.read(
        jax.jit(step).lower(*shapes).compile().as_text(), mesh_record(mesh)
    ).collectives
    with jax.enable_x64(False):
        before = jax.config.jax_use_shardy_partitioner
        jax.config.update("jax_use_shardy_partitioner", False)
        try:
            jax.clear_caches()
            module = jax.jit(step).lower(*shapes).compiler_ir("stablehlo")
        finally:
            jax.config.update("jax_use_shardy_partitioner", before)
            jax.clear_caches()
    assert "mhlo.sharding" in str(module) and "sdy.mesh" not in str(module)
    mesh_in_text = None
    if names is not None:
        mesh_in_text = imported_module.NamedMesh(tuple(zip(names, (2, 4), strict=True)))
    with module.context:
        rewritten = imported_module.with_sdy(module, mesh_in_text)
        found_names = names or ("axis_0", "axis_1")
        record = Mesh(
            tuple(MeshAxis(n, s) for n, s in zip(found_names, (2, 4), strict=True)), tuple(range(8))
        )
        result = partitioned_module(rewritten, "step", record, ["x", "w"], ["y"])
    renamed = dict(zip(found_names, SIZES, strict=True))
    ours = Counter(
        {
            (op, tuple(renamed[axis] for axis in axes), parts, size): count
            for (op, axes, parts, size), count in sent(result.program.collectives).items()
        }
    )
    assert ours == sent(expected)


@given(st.data())
def test_parts_of_axes_form_the_groups(data: st.DataObject) -> None:
    """Groups are made from chosen digits of device numbers, and named again."""
    shape = data.draw(st.lists(st.sampled_from([2, 4, 8, 16]), min_size=1, max_size=3))
    mesh = Mesh(
        tuple(MeshAxis(f"a{n}", size) for n, size in enumerate(shape)),
        tuple(range(math.prod(shape))),
    )
    axis = data.draw(st.integers(0, len(shape) - 1))
    sizes = [d for d in range(2, shape[axis]) if shape[axis] % d == 0]
    if not sizes:
        return
    size = data.draw(st.sampled_from(sizes))
    before = data.draw(
        st.sampled_from([d for d in range(1, shape[axis] // size + 1) if shape[axis] % (d * size) == 0])
    )
    places = np.arange(mesh.size).reshape(
        *shape[:axis], before, size, shape[axis] // before // size, *shape[axis + 1 :]
    )
    groups = np.moveaxis(places, axis + 1, -1).reshape(-1, size)
    named = replica_groups.parts_of_axes(tuple(map(tuple, groups.tolist())), mesh)
    assert named == (f"a{axis}:({before}){size}",)


def test_a_program_is_scaled_to_a_mesh_that_cannot_be_emulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from inspector import layout as layouts
    from inspector.partition.partition_layout import SCALED, partitioned_programs

    fields = {"target": "plan", "mesh": "32x4", "depth": "256", "batch": "256"}
    layout = layouts.parse(fields).unwrap()
    exact = partitioned_programs(layout, only=("train_step",))
    monkeypatch.setattr(large_mesh, "MOST_DEVICES", 16)
    scaled = partitioned_programs(layout, only=("train_step",))
    (program,), (other,) = exact.programs, scaled.programs
    assert program.collectives == other.collectives and program.collectives
    assert program.work == other.work and program.memory_use == other.memory_use
    assert SCALED not in {finding.code for finding in exact.findings}


def test_axes_with_no_factor_of_two_are_a_sentence() -> None:
    mesh = Mesh((MeshAxis("a", 3**8),), tuple(range(3**8)))
    with pytest.raises(InvalidInput, match="6,561 devices"):
        large_mesh.smaller(mesh)
