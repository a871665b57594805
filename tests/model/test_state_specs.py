"""Tests of a user's model without boxes: specs by path, other programs, constants, and its default mesh."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax import numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from inspector import layout as layouts
from inspector.compiling.run_layout import run_layout
from inspector.jobs.agreement import disagreements
from inspector.layout import Layout
from inspector.layout.changes import changes
from inspector.layout.plan import UNMATCHED, plan
from inspector.layout.script import script
from inspector.model.built_in import catalogue
from inspector.partition.partition_layout import partitioned_programs
from inspector.records.snapshot import Snapshot
from inspector.sharding.memory_kinds import PINNED
from inspector.sharding.state_specs import SpecRow
from inspector.text.errors import InvalidInput
from inspector.tracing.model.abstract import abstract_state
from inspector.tracing.model.describe import entry_of
from inspector.tracing.model.state_specs import Given, given_specs
from tests.layout.script.comparison import made_by_scripts, refuse_other_arrays
from tests.model.importable import importable

MODELS = """
    import jax
    from jax import numpy as jnp
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
    from inspector.model import Model, by_regex, fsdp

    TABLE = by_regex([("up$", (None, "mp")), ("down", P("mp")), ("bias", fsdp("mp", 0))])
    TREE = {"params": {"up": P(None, "mp"), "down": P("mp"), "bias": P(), "rest": None}, "step": P()}

    def of_path(path, shape, mesh):
        return P(None, "mp") if len(shape) == 2 and shape[1] % mesh.shape["mp"] == 0 else None

    def trained(state_specs, **more):
        def init(key, batch):
            params = {"up": jax.random.normal(key, (8, 16)), "down": jnp.ones((16, 8)),
                      "bias": jnp.zeros(8), "rest": jnp.zeros((3, 5))}
            return {"params": params, "step": 0}
        def step(state, batch):
            def loss(p):
                y = jnp.tanh(batch["x"] @ p["up"]) @ p["down"] + p["bias"]
                return jnp.mean((y - batch["x"]) ** 2)
            value, slopes = jax.value_and_grad(loss)(state["params"])
            params = jax.tree.map(lambda p, g: p - 0.1 * g, state["params"], slopes)
            return {"params": params, "step": state["step"] + 1}, value
        return Model(init=init, step=step, batch={"x": jax.ShapeDtypeStruct((4, 8), jnp.float32)},
                     batch_axes={"x": ("dp", None)}, state_specs=state_specs,
                     **({"mesh": {"dp": 2, "mp": 4}} | more))

    def table(): return trained(TABLE)
    def function(): return trained(of_path, set_mesh=False)
    def tree(): return trained(TREE, mesh=AbstractMesh((2, 4), ("dp", "mp")))
    def everything(): return trained(fsdp("mp", 0), axis_types="explicit")

    def serving():
        def init(key, batch):
            return {"params": {"w": jax.random.normal(key, (8, 8))}, "cache": jnp.zeros((4, 6, 8)),
                    "activation": jnp.tanh}
        def prefill(state, batch):
            new = state["activation"](batch["prompt"] @ state["params"]["w"])
            return state | {"cache": state["cache"].at[:, :3].set(new)}, new[:, -1]
        def decode(state, batch):
            return jnp.einsum("rtw,rw->rt", state["cache"], batch["token"])
        return Model(init=init, programs={"prefill": prefill, "decode": decode},
                     batch={"prompt": jnp.ones((4, 3, 8)), "token": jnp.ones((4, 8))},
                     batch_axes={"prompt": ("dp",) + (None,) * 2, "token": ("dp", None)},
                     state_specs=[("cache", ("dp", None, "mp")), ("w", (None, "mp"))],
                     mesh={"dp": 2, "mp": 2})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    """Yield a folder with the module of models, which are registered until the tests of this file end."""
    mktemp = tmp_path_factory.mktemp("specs")
    with importable(mktemp, "without_boxes", MODELS):
        for name in ("table", "function", "tree", "everything", "serving"):
            catalogue.register(entry_of(f"without_boxes:{name}"))
        yield mktemp


def layout_of(name: str, **fields: str) -> Layout:
    return layouts.parse({"model": f"without_boxes:{name}", "steps": "1"} | fields).unwrap()


def planned(name: str, **fields: str) -> Snapshot:
    layout = layout_of(name, **fields)
    return plan(layout, abstract_state(layout))


def specs(snapshot: Snapshot) -> dict[str, str]:
    """The PartitionSpec of each parameter as JAX prints it."""
    return {
        array.path.removeprefix("params/"): str(PartitionSpec(*(a and a[0] for a in array.spec)))
        for array in snapshot.arrays
        if array.group == "params"
    }


def quiet(*_: object, **__: object) -> None:
    """Ignore progress reports."""


def test_each_form_gives_its_specs(folder) -> None:
    whole = "P(None, None)"
    column, row = "P(None, 'mp')", "P('mp', None)"
    table, function, tree = map(planned, ("table", "function", "tree"))
    assert specs(table) == {"up": column, "down": row, "bias": "P('mp',)", "rest": whole}
    assert specs(function) == {"up": column, "down": column, "bias": "P(None,)", "rest": whole}
    assert specs(tree) == {"up": column, "down": row, "bias": "P(None,)", "rest": whole}
    # The largest dimension; of equal ones the last. No dimension of (3, 5) is divisible.
    assert specs(planned("everything")) == {
        "up": column, "down": row, "bias": "P('mp',)", "rest": whole,
    }  # fmt: skip
    unmatched = [
        [finding.array for finding in snapshot.findings if finding.code == UNMATCHED]
        for snapshot in (table, function, tree)
    ]
    assert unmatched == [["params/rest"], ["params/bias", "params/rest"], ["params/rest"]]
    assert table.array("params/down").pattern == "down"
    assert table.array("params/rest").pattern is None


def test_the_first_row_of_the_layout_decides(folder) -> None:
    rows = "params/(up|down)=mp;up=None.mp;rest="
    snapshot = planned("table", state_specs=rows)
    assert specs(snapshot)["up"] == "P('mp', None)"
    assert [finding.array for finding in snapshot.findings] == ["params/bias"]
    # Rows come before the code of the model, which decides for the other paths.
    assert specs(planned("function", state_specs="up=mp")) == specs(planned("function")) | {
        "up": "P('mp', None)"
    }


@pytest.mark.parametrize("name", ["table", "function", "everything"])
def test_forms_of_a_layout_agree(folder, name) -> None:
    for text in ("a{1,2}[=.,~]x=mp.None;.*=fsdp(dp+mp,7)", "a=", ""):
        layout = layout_of(name, state_specs=text)
        assert layouts.parse(layouts.to_fields(layout)).unwrap() == layout
        assert layouts.parse(layouts.to_query(layout)).unwrap() == layout
        assert layouts.from_json(json.loads(json.dumps(layout.to_json()))) == layout
    assert "state_specs" not in layouts.to_query(layout_of(name))
    one, other = (layout_of(name, state_specs=text) for text in ("a=;b=mp", "b=mp;a="))
    assert one.key() != other.key()


def test_the_default_mesh_is_that_of_the_model(folder) -> None:
    assert layout_of("table").mesh_shape == (2, 4)
    assert layout_of("table").axis_names == ("dp", "mp")
    assert layout_of("serving", target="tpu:v5e:2x2").mesh_shape == (2, 2)
    assert layout_of("serving", target="tpu:v5e:4x4").mesh_shape == (4, 4)
    explicit = layout_of("everything")
    assert explicit.explicit_axes == ("dp", "mp")
    mesh = AbstractMesh((2, 4), ("dp", "mp"), axis_types=(AxisType.Explicit,) * 2)
    assert [axis.type for axis in explicit.mesh().axes] == [kind.name.lower() for kind in mesh.axis_types]
    auto = layout_of("everything", axis_types="auto")
    assert auto.explicit_axes == ()
    assert layouts.from_json(auto.to_json()) == auto
    assert layouts.parse(layouts.to_query(auto)).unwrap() == auto


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("up", "must be PATTERN=SPEC"),
        ("(=", "not a regular expression"),
        ("up=data", "names mesh axis 'data', but the mesh has dp, mp"),
        ("up=mp.mp", "may use each mesh axis only once"),
        ("up=fsdp()", "fsdp needs a mesh axis"),
        ("bias=None.mp", "gives params/bias 2 entries, but the array has 1 dimension"),
        (".*" * 20 + "%=mp", "took longer than"),
    ],
)
def test_errors_of_rows(folder, rows, words, monkeypatch) -> None:
    monkeypatch.setattr("inspector.tracing.model.state_specs.SECONDS", 0.1)
    with pytest.raises(InvalidInput, match=words):
        planned("table", state_specs=rows)


def test_changes_replicate_one_row_at_a_time(folder) -> None:
    result, _ = changes(layout_of("table"))
    (first, *_) = [change for change in result if change.kind == "spec"]
    changed = layouts.from_json(first.layout)
    assert changed.state_specs[0].spec == ()
    assert changed.state_specs[1:] == layout_of("table").state_specs[1:]
    (unused,) = [change for change in result if change.label == "Leave axis mp unused"]
    assert not any(row.axes for row in layouts.from_json(unused.layout).state_specs)


@pytest.mark.nightly
def test_runs_and_scripts_place_arrays_as_planned(folder) -> None:
    layouts_to_run = [layout_of("table"), layout_of("function"), layout_of("serving")]
    paths = [folder / f"script_{number}.py" for number in range(3)]
    for path, layout in zip(paths, layouts_to_run, strict=True):
        path.write_text(script(layout), encoding="utf-8")
        expected = plan(layout, abstract_state(layout))
        snapshot = run_layout(layout, quiet)
        assert disagreements(expected, snapshot) == ()
        patterns = {array.path: array.pattern for array in expected.arrays}
        assert {array.path: array.pattern for array in snapshot.arrays} == patterns
        names = [program.name for program in partitioned_programs(layout).programs]
        assert names == [program.name for program in snapshot.programs]
    assert names == ["init", "prefill", "decode"]
    assert [len(program.seconds.steps) for program in snapshot.programs] == [0, 1, 1]
    assert snapshot.array("cache").spec == (("dp",), None, ("mp",))
    for theirs, layout in zip(made_by_scripts(paths), layouts_to_run, strict=True):
        refuse_other_arrays(theirs["arrays"], plan(layout, abstract_state(layout)))


def test_the_mesh_of_a_model_without_set_mesh_is_not_set(folder) -> None:
    seen = []
    layout = layout_of("function")
    module = sys.modules["without_boxes"]
    original = module.of_path
    module.of_path = lambda *given: seen.append(jax.sharding.get_abstract_mesh()) or original(*given)
    try:
        abstract_state(layout)
    finally:
        module.of_path = original
    assert seen and all(mesh.empty for mesh in seen)


def test_a_row_keeps_the_memory_of_the_model_and_replaces_an_invalid_spec() -> None:
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    state = {name: jax.ShapeDtypeStruct((8, 8), jnp.float32) for name in ("kept", "invalid")}

    def specs(path, shape, mesh):
        if path == "invalid":
            return PartitionSpec(None, None, "data")  # longer than the rank
        return NamedSharding(mesh, PartitionSpec("data"), memory_kind=PINNED)

    rows = [SpecRow(".*", (("model",), None))]
    spec = (("model",), None)
    assert given_specs(state, specs, rows, mesh) == {
        "kept": Given(spec, ".*", PINNED),
        "invalid": Given(spec, ".*"),
    }
    with pytest.raises(InvalidInput, match="invalid"):
        given_specs(state, specs, [], mesh)
