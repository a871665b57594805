"""Explicit mesh axes: the example models and refused operations against JAX itself."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import layout as layouts
from inspector.compiled import program_text
from inspector.compiling.run_layout import run_layout
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.model.built_in import catalogue
from inspector.partition.partition_layout import partitioned_programs
from inspector.records.snapshot import Collective, Program, ShardingError
from inspector.text.errors import InvalidInput
from inspector.tracing.leaves import leaves_of, mesh_record, spec_of
from inspector.tracing.model import sharding_errors
from inspector.tracing.model.abstract import abstract_state
from inspector.tracing.model.describe import entry_of
from tests.paths import ROOT

EXAMPLES = {
    "explicit_decoder": ("data", "model"),
    "explicit_moe": ("data", "expert"),
    "explicit_serving": ("data", "model"),
}
EXPLICIT = (AxisType.Explicit, AxisType.Explicit)


pytestmark = pytest.mark.usefixtures("known_models")


def layout_of(model: str, axes: tuple[str, ...]) -> Layout:
    catalogue.CATALOGUE[model] = entry_of(model)
    return layouts.parse(
        {"model": model, "mesh": "2x4", "axes": ",".join(f"{axis}:explicit" for axis in axes)}
    ).unwrap()


def real_mesh(axes: tuple[str, ...]) -> Mesh:
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), axes, axis_types=EXPLICIT)


def wire_bytes(collectives: tuple[Collective, ...] | None) -> Counter[tuple[str, Any]]:
    sent: Counter[tuple[str, Any]] = Counter()
    for collective in collectives or ():
        assert collective.executions is not None and collective.wire_bytes_per_device is not None
        sent[collective.op, collective.mesh_axes] += collective.executions * collective.wire_bytes_per_device
    return +sent


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("name", "axes"), EXAMPLES.items(), ids=EXAMPLES)
def test_a_plan_has_the_types_of_jax(name: str, axes: tuple[str, ...]) -> None:
    layout = layout_of(f"examples.{name}:build", axes)
    model = importlib.import_module(f"examples.{name}").build()
    mesh = AbstractMesh((2, 4), axes, axis_types=EXPLICIT)
    with jax.sharding.use_abstract_mesh(mesh):
        key = jax.eval_shape(lambda: jax.random.key(0))
        batch = {
            path: jax.ShapeDtypeStruct(
                value.shape, value.dtype, sharding=NamedSharding(mesh, P(*model.batch_axes[path]))
            )
            for path, value in jax.eval_shape(model.batch, key).items()
        }
        state = jax.eval_shape(model.init, key, batch)
    planned = plan(layout, abstract_state(layout))
    assert planned.programs == ()
    assert [axis.type for axis in planned.mesh.axes] == ["explicit", "explicit"]
    sharded = 0
    for leaf in leaves_of(state):
        sharding = leaf.value.sharding  # none for a scalar
        spec = spec_of(sharding.spec if sharding else P(), leaf.value.ndim)
        assert planned.array(leaf.path).spec == spec, leaf.path
        sharded += any(spec)
    assert sharded >= 2


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("name", "axes"), EXAMPLES.items(), ids=EXAMPLES)
def test_collectives_are_those_that_a_job_compiles(name: str, axes: tuple[str, ...]) -> None:
    layout = layout_of(f"examples.{name}:build", axes)
    model = importlib.import_module(f"examples.{name}").build()
    mesh = real_mesh(axes)
    with jax.set_mesh(mesh):
        key = jax.random.key(0)
        batch = {
            path: jax.device_put(value, P(*model.batch_axes[path]))
            for path, value in model.batch(key).items()
        }
        state = jax.jit(model.init)(key, batch)
        texts = {
            program: jax.jit(function).lower(state, batch).compile().as_text()
            for program, function in (("train_step", model.step), ("apply", model.apply))
        }
    for program in partitioned_programs(layout).programs:
        if program.name in texts:
            compiled = program_text.read(texts[program.name], mesh_record(mesh)).collectives
            assert wire_bytes(program.collectives) == wire_bytes(compiled)
            assert all(collective.origins for collective in program.collectives)


def changed(tmp_path: Path, name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of an example in which `old` is replaced by `new`."""
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert text.count(old) >= 1
    module = f"{name}_without"
    (tmp_path / f"{module}.py").write_text(text.replace(old, new, 1))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return f"{module}:build"


# What is replaced by what, and the operation, its line and one of the choices.
MISTAKES = {
    "explicit_decoder": (
        'w["project"], out_sharding=P("data", None, None))', 'w["project"])',
        "dot_general", 'w["project"]', "out_sharding=P('data', None, None)",
    ),
    "explicit_moe": (
        '"down": P("expert", None, None)', '"down": P("expert", None, "data")',
        "dot_general", 'w["down"]', "out_sharding=P('expert', 'data', None, None)",
    ),
    "explicit_serving": (
        ".at[tokens].get(out_sharding=BY_REQUEST)", "[tokens]",
        "gather", '["embedding"]', ".at[…].get(out_sharding=P('data', None, None))",
    ),
}  # fmt: skip


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", MISTAKES)
def test_an_example_with_a_mistake(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, operation, line_has, code = MISTAKES[name]
    model = changed(tmp_path, name, old, new, monkeypatch)
    layout = layout_of(model, EXAMPLES[name])
    planned = plan(layout, abstract_state(layout))
    assert {program.name for program in planned.programs} == {"train_step", "apply"}
    assert {"params", "batch"} <= {array.path.partition("/")[0] for array in planned.arrays}
    partitioned = partitioned_programs(layout).programs
    by_name = {program.name: program for program in partitioned}
    assert by_name["init"].sharding_error is None
    lines = (tmp_path / f"{model.partition(':')[0]}.py").read_text().splitlines()
    for program in (*planned.programs, by_name["train_step"], by_name["apply"]):
        error = program.sharding_error
        assert (error.error, error.operation) == ("ShardingTypeError", operation)
        file, _, line = error.source.partition(":")
        assert file == f"{name}_without.py" and line_has in lines[int(line) - 1]
        assert code in [choice.code for choice in error.choices]
    with pytest.raises(InvalidInput, match=operation):
        run_layout(layout, lambda *_, **__: None)


def refused(function: Any, *arguments: Any, axes: str = "data:explicit,model:explicit") -> ShardingError:
    layout = layouts.parse({"axes": axes}).unwrap()
    mesh = arguments[0].sharding.mesh
    with (
        jax.sharding.use_abstract_mesh(mesh),
        pytest.raises(sharding_errors.Refused) as raised,
        sharding_errors.reading(layout),
    ):
        jax.jit(function).trace(*arguments)
    return raised.value.error


def typed(shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=EXPLICIT)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


# A refused function and its operands; `resolve` gives it an `out_sharding`, if it accepts one.
OPERATIONS = {
    "dot_general": (
        lambda a, b: a @ b, (typed((16, 64), "data", "model"), typed((64, 32), "model", None)),
        lambda out: lambda a, b: jnp.dot(a, b, out_sharding=out),
    ),
    "an einsum with transposed result": (
        lambda a, b: jnp.einsum("bsm,mf->fbs", a, b),
        (typed((8, 4, 16), "data", None, "model"), typed((16, 32), "model", None)),
        lambda out: lambda a, b: jnp.einsum("bsm,mf->fbs", a, b, out_sharding=out),
    ),
    "one axis in two dimensions": (
        lambda a, b: a @ b, (typed((8, 16), "data", None), typed((16, 32), None, "data")),
        lambda out: lambda a, b: jnp.dot(a, b, out_sharding=out),
    ),
    "reshape": (
        lambda a: a.reshape(8, 2, 8, 4), (typed((8, 16, 4), "data", "model", None),),
        lambda out: lambda a: jnp.reshape(a, (8, 2, 8, 4), out_sharding=out),
    ),
    "gather": (
        lambda a, i: a[i],
        (typed((64, 16), "model", None), typed((8, 4), "data", None, dtype=jnp.int32)),
        lambda out: lambda a, i: a.at[i].get(out_sharding=out),
    ),
    "add": (
        lambda lhs, rhs: lhs + rhs,
        (typed((8, 16), "data", "model"), typed((8, 16), "model", None)), None,
    ),
    "concatenate": (
        lambda lhs, rhs: jnp.concatenate([lhs, rhs]),
        (typed((8, 16), "data", "model"), typed((8, 16), "data", None)), None,
    ),
    "dynamic_update_slice": (
        lambda operand, update: lax.dynamic_update_slice(operand, update, (0, 0)),
        (typed((8, 16), "data", "model"), typed((8, 4), "data", None)), None,
    ),
    "cumsum": (lambda operand: jnp.cumsum(operand, 1), (typed((8, 16), "data", "model"),), None),
    "top_k": (lambda operand: lax.top_k(operand, 2)[0], (typed((8, 16), "data", "model"),), None),
    "with_sharding_constraint": (
        lambda operand: lax.with_sharding_constraint(operand, P("data", None)),
        (typed((8, 16), "data", "model"),), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_jax_accepts_each_choice(name: str) -> None:
    """Each choice is executed as code on real devices: same values, and the sharding that it names."""
    function, operands, resolve = OPERATIONS[name]
    error = refused(function, *operands)
    if name.isidentifier():
        assert error.operation == name
    specs = {spec_of(operand.sharding.spec, operand.ndim) for operand in operands}
    assert {operand.spec for operand in error.operands} <= specs | {
        (*spec, None) for spec in specs
    }  # indices have one more dimension
    assert 1 <= len(error.choices) <= 3
    mesh = real_mesh(("data", "model"))
    rng = np.random.default_rng(0)
    values = [np.asarray(rng.integers(0, 8, operand.shape), operand.dtype) for operand in operands]
    expected = function(*values) if name != "with_sharding_constraint" else values[0]
    if name == "gather":
        expected = values[0][values[1]]
    with jax.set_mesh(mesh):
        arrays = [
            jax.device_put(value, operand.sharding.spec)
            for value, operand in zip(values, operands, strict=True)
        ]
        for choice in error.choices:
            if "reshard" in choice.code:
                result = resharded(function, arrays, error, choice.code)
            else:
                text = choice.code.partition("out_sharding=")[2].removesuffix(")")
                text += ")" * (text.count("(") - text.count(")"))
                result = jax.jit(resolve(eval(text, {"P": P})))(*arrays)
            np.testing.assert_allclose(result, expected, rtol=1e-4)
            assert spec_of(result.sharding.spec, result.ndim) == choice.result


def resharded(function: Any, arrays: list[jax.Array], error: ShardingError, code: str) -> jax.Array:
    """Run the function on operands that the code reshards. An einsum may swap its operands."""
    names = [operand_type.name for operand_type in error.operands]
    by_name: dict[str, int] = {}
    for operand in error.operands:
        by_name[operand.name] = next(
            number
            for number, array in enumerate(arrays)
            if (array.shape, spec_of(array.sharding.spec, array.ndim)) == (operand.shape, operand.spec)
        )
    assert len(names) == len(set(names))
    scope: dict[str, Any] = {"jax": jax, "P": P}
    scope |= {name: arrays[number] for name, number in by_name.items()}
    exec(code, scope)
    changed = list(arrays)
    for name, number in by_name.items():
        changed[number] = scope[name]
    if error.operation == "with_sharding_constraint":
        return changed[0]
    return jax.jit(function)(*changed)


def test_the_cost_of_a_choice_is_that_of_the_compiled_operation() -> None:
    function, operands, resolve = OPERATIONS["dot_general"]
    choices = {choice.code: choice for choice in refused(function, *operands).choices}
    mesh = real_mesh(("data", "model"))
    with jax.set_mesh(mesh):
        arrays = [
            jax.device_put(np.ones(operand.shape, operand.dtype), operand.sharding.spec)
            for operand in operands
        ]
        lowered = jax.jit(resolve(P("data", None))).lower(*arrays)
    compiled = program_text.read(lowered.compile().as_text(), mesh_record(mesh)).collectives
    assert wire_bytes(choices["out_sharding=P('data', None)"].collectives) == wire_bytes(compiled)


def test_a_gradient_is_refused_at_the_line_of_the_forward_pass() -> None:
    @jax.custom_vjp
    def identity(x: jax.Array) -> jax.Array:
        return x

    identity.defvjp(lambda x: (x, None), lambda _, g: (lax.top_k(g, 16)[0],))

    def loss(x: jax.Array) -> jax.Array:
        return jnp.sum(identity(x) ** 2)

    error = refused(jax.grad(loss), typed((8, 16), "data", "model"))
    assert error.operation == "top_k"
    assert error.source.startswith("test_explicit_axes.py:")


def test_a_carry_whose_type_changes_is_refused_with_both_types() -> None:
    def loop(x: jax.Array) -> Any:
        return lax.scan(lambda c, _: (jax.sharding.reshard(c, P()), None), x, None, length=2)

    error = refused(loop, typed((8, 16), "data", "model"))
    assert (error.error, error.operation) == ("TypeError", "scan")
    assert "8@data,16@model" in error.message and error.choices == ()


def test_errors_without_shardings_pass_unchanged() -> None:
    layout = layouts.parse({"axes": "data:explicit,model:explicit"}).unwrap()
    with pytest.raises(ZeroDivisionError), sharding_errors.reading(layout):
        _ = 1 // 0
    automatic = layouts.parse({}).unwrap()
    with pytest.raises(ValueError, match="sharding"), sharding_errors.reading(automatic):
        raise ValueError("a sharding")


@pytest.mark.parametrize("model", ["logical_mlp", "mlp"])
def test_a_built_in_model_without_its_constraint_is_refused(model: str) -> None:
    layout = layouts.parse(
        {"model": model, "axes": "data:explicit,model:explicit", "depth": "64"} | {"unconstrained": "z"}
    ).unwrap()
    # Shapes do not depend on the types of the axes.
    assert plan(layout, abstract_state(layout)).array("output").shape == (8, 64)
    (init,) = partitioned_programs(layout).programs
    assert isinstance(init, Program) and init.sharding_error is not None
    assert init.sharding_error.operation == "dot_general"
    assert init.sharding_error.source.startswith(f"{model}.py:")
    assert init.sharding_error.choices[0].result == (("data",), None)


def test_flax_boxes_of_a_users_model_are_refused_with_the_reshard_they_need() -> None:
    layout = layout_of("examples.linen_mlp:build", ("data", "model"))
    (init,) = plan(layout, abstract_state(layout)).programs
    assert init.sharding_error is not None
    assert init.sharding_error.operation == "with_sharding_constraint"
    (choice,) = init.sharding_error.choices
    assert choice.code.startswith("operand = jax.sharding.reshard(operand, P(")
