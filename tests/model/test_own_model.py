"""Tests of a user's own model: its description, its errors, and its runs."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator

import jax
import pytest
from flax import nnx
from flax.core import spmd
from hypothesis import given
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.audit import LEFT_OUT, audited
from inspector.compiling.run_layout import run_layout
from inspector.jobs import own_model_registration as registration
from inspector.jobs.agreement import disagreements
from inspector.layout import Layout, presets
from inspector.layout.plan import plan
from inspector.media import terminal as command_line
from inspector.model import ModelEntry, PipelineSizes, Size, own_model
from inspector.model.built_in import catalogue
from inspector.partition.partition_layout import partitioned_programs
from inspector.records import snapshot
from inspector.text.errors import InvalidInput
from inspector.tracing.model.abstract import abstract_state
from inspector.tracing.model.describe import entry_of

SMALL = {"rows": "8", "width": "16", "hidden": "32", "mesh": "2x4", "steps": "1"}
EXAMPLES = ("examples.linen_mlp:build", "examples.nnx_mlp:build")


@pytest.fixture(autouse=True)
def restore_catalogue(monkeypatch) -> Iterator[None]:
    """Models that a test registers are forgotten after it."""
    before = dict(catalogue.CATALOGUE)
    monkeypatch.setenv(own_model.VARIABLE, "[]")
    yield
    catalogue.CATALOGUE.clear()
    catalogue.CATALOGUE.update(before)


_numbers = itertools.count()


@pytest.fixture
def module(tmp_path, monkeypatch) -> Iterator[Callable[[str], str]]:
    """Makes a module of this text importable, and gives its name."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = []

    def write(text: str) -> str:
        names.append(
            f"theirs_{next(_numbers)}_{os.getpid()}"
        )  # what was read of a module is kept by its name
        (tmp_path / f"{names[-1]}.py").write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        return names[-1]

    yield write
    for name in names:
        sys.modules.pop(name, None)


def registered(name: str) -> ModelEntry:
    catalogue.register(entry_of(name))
    return catalogue.CATALOGUE[name]


def layout_of(name: str, **fields: str) -> Layout:
    registered(name)
    return layouts.parse({"model": name} | fields).unwrap()


def quiet(*_: object, **__: object) -> None:
    """Ignore progress reports."""


# --- The examples --------------------------------------------------------------------------------------


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_it_was_planned(name) -> None:
    layout = layout_of(name, **SMALL)
    planned = plan(layout, abstract_state(layout))
    snapshot = run_layout(layout, quiet)
    assert disagreements(planned, snapshot) == ()
    kernel = next(a for a in snapshot.arrays if a.path.endswith("params/up/kernel"))
    assert (kernel.logical_axes, kernel.spec) == (("embed", "hidden"), (None, ("model",)))
    assert kernel.group == "params"
    assert {program.name for program in snapshot.programs} == {"init", "train_step", "apply"}
    assert len(snapshot.program("train_step").losses) == 2


def test_nnx_reads_the_rules_of_a_layout_as_the_inspector_does() -> None:
    rules = "batch=data,hidden=data,embed=,hidden=model"  # to Linen the first rule of a name wins
    layout = layout_of("examples.nnx_mlp:build", **SMALL, rules=rules)
    module = importlib.import_module("examples.nnx_mlp")
    result = module.build(rows=8, width=16, hidden=32)
    key = jax.random.key(0)
    with nnx.use_eager_sharding(False):
        state = jax.eval_shape(result.init, key, jax.eval_shape(result.batch, key))
    flat = [(name, axes[0] if axes else None) for name, axes in layout.rules]
    with spmd.logical_axis_rules(flat):
        theirs = nnx.get_partition_spec(state)
    planned = plan(layout, abstract_state(layout))
    for way in ("up", "down"):
        expected = theirs["params"][way]["kernel"].get_value()
        mine = planned.array(f"params/{way}/kernel").spec
        assert tuple(axes[0] if axes else None for axes in mine) == tuple(expected)
    assert planned.array("params/up/kernel").spec == (None, ("model",))


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ("batch=data,hidden=model", "embed is not an axis of the mesh"),
        ("batch=data,hidden=model,embed=model", "mesh axis model would split two dimensions"),
    ],
)
def test_rules_that_jax_refuses_in_nnx_are_refused(rules, sentence) -> None:
    layout = layout_of("examples.nnx_mlp:build", **SMALL, rules=rules)
    with pytest.raises(InvalidInput, match=sentence):
        plan(layout, abstract_state(layout))


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_preset_that_fits_plans(name) -> None:
    layout = layout_of(name, **SMALL)
    fitting = presets.fitting(layout.entry)
    assert {one.name for one in fitting} >= {"Data", "Tensor"}
    for preset in fitting:
        changed = preset.applied_to(layout)
        assert preset.describes(changed)
        plan(changed, abstract_state(changed))


@pytest.mark.nightly
def test_the_command_line_imports_from_its_working_folder(tmp_path, module, capsys) -> None:
    name = module("from examples.nnx_mlp import build")
    out = tmp_path / "run.json"
    arguments = ["inspect", "--model", f"{name}:build", "--target", "plan", "-o", str(out)]
    assert command_line.main([*arguments, "--set", "width=64"]) == 0
    result = snapshot.read(out)
    assert result.array("params/up/kernel").shape == (64, 1024)
    assert result.layout["model"] == f"{name}:build"
    del catalogue.CATALOGUE[f"{name}:build"]
    # The file names code, and does not have it run.
    assert command_line.main(["inspect", str(out), "-o", str(tmp_path / "again.json")]) == 2
    assert f"your own model needs `--model {name}:build" in capsys.readouterr().err
    assert not (tmp_path / "again.json").exists()


# --- The description --------------------------------------------------------------------------------

PLAIN = """
    import jax
    from typing import Literal
    from inspector.model import Model

    def build(*, rows: int = 8, word: str = "a", kind: Literal["x", "y"] = "x", rate: float = 0.5,
              flag: bool = False, dtype=jax.numpy.float32, none=None, **more):
        def batch(key):
            return {"x": jax.random.normal(key, (rows, 4))}
        return Model(init=lambda key, batch: {"params": {"w": batch["x"] * rate}},
                     step=lambda state, batch: (state, batch["x"].sum()), batch=batch,
                     rules=[("a", "data"), ("b", ("data", "model")), ("c", None)])
"""


def test_sizes_are_the_parameters_with_a_plain_default(module) -> None:
    entry = registered(f"{module(PLAIN)}:build")
    assert [(size.name, size.default, size.choices) for size in entry.sizes] == [
        ("rows", 8, ()), ("word", "a", ()), ("kind", "x", ("x", "y")), ("rate", 0.5, ()),
        ("flag", False, ()),
    ]  # fmt: skip
    assert entry.rules == (("a", ("data",)), ("b", ("data", "model")), ("c", ()))
    assert vars(own_model.from_json(json.loads(json.dumps(own_model.to_json(entry))))) == vars(entry)
    (again,) = own_model.from_environment({own_model.VARIABLE: os.environ[own_model.VARIABLE]})
    assert vars(again) == vars(entry)


def test_a_model_names_the_sizes_of_its_pipeline(module) -> None:
    stages = PLAIN.replace("def build(*,", "def build(*, stages: int = 2, microbatches: int = 4,")
    text = stages.replace("rules=[", "pipeline=('stages', 'microbatches'), rules=[")
    entry = registered(f"{module(text)}:build")
    assert entry.pipeline == PipelineSizes("stages", "microbatches")
    assert vars(own_model.from_json(json.loads(json.dumps(own_model.to_json(entry))))) == vars(entry)


def test_optional_parts_may_be_absent(module) -> None:
    layout = layout_of(f"{module(PLAIN)}:build", word="any words", rate="-2", steps="1", mesh="8")
    snapshot = run_layout(layout, quiet)
    assert disagreements(plan(layout, abstract_state(layout)), snapshot) == ()
    assert {program.name for program in snapshot.programs} == {"init", "train_step"}
    assert {array.path for array in snapshot.arrays} == {"batch/x", "params/w"}
    assert snapshot.array("batch/x").replicas == 8
    assert layouts.parse(layouts.to_query(layout)).unwrap() == layout
    assert layouts.from_json(layout.to_json()) == layout


@given(st.text(max_size=250))
def test_any_text_is_a_size_or_refused(text) -> None:
    size = Size("word", "a", "a word")
    if text.isprintable() and len(text) <= 200:
        assert layouts.fields.parse_size(text, size) == text
    else:
        with pytest.raises(InvalidInput, match="word is "):
            layouts.fields.parse_size(text, size)


def test_a_model_of_mesh_axes_is_planned(module) -> None:
    name = module("""
        import jax
        from flax import linen as nn
        from inspector.model import Model

        def build():
            def init(key, batch):
                return {"params": nn.Partitioned(batch["x"], names=("data", None))}
            return Model(init=init, step=lambda s, b: (s, b["x"].sum()), names="mesh",
                         batch=lambda key: {"x": jax.random.normal(key, (8, 4))})
    """)
    layout = layout_of(f"{name}:build", mesh="2x4", steps="1")
    snapshot = run_layout(layout, quiet)
    assert snapshot.array("params").spec == (("data",), None)
    assert disagreements(plan(layout, abstract_state(layout)), snapshot) == ()
    other = layouts.parse({"model": f"{name}:build", "mesh": "8", "axes": "fsdp"}).unwrap()
    with pytest.raises(InvalidInput, match="params has the mesh axis 'data', but the mesh has fsdp"):
        abstract_state(other)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("names", ["mesh", "logical"])
def test_specs_shorter_than_the_rank_leave_the_rest_unsharded(module, names) -> None:
    name = module(f"""
        import jax
        from flax import linen as nn
        from inspector.model import Model

        def build():
            box = nn.Partitioned if {names == "mesh"} else nn.LogicallyPartitioned
            return Model(init=lambda key, batch: {{"params": {{"w": box(batch["x"], ("data",))}}}},
                         step=lambda s, b: (s, b["x"].sum()), apply=lambda s, b: b["x"], names={names!r},
                         batch=lambda key: {{"x": jax.random.normal(key, (8, 4))}},
                         batch_axes={{"x": ("data",)}}, output_axes=("data",),
                         rules=[("data", "data")] if {names == "logical"} else ())
    """)
    layout = layout_of(f"{name}:build", mesh="2x4", steps="1")
    planned, snapshot = plan(layout, abstract_state(layout)), run_layout(layout, quiet)
    assert disagreements(planned, snapshot) == ()
    assert {array.spec for array in snapshot.arrays} == {(("data",), None)}


# --- The mesh ---------------------------------------------------------------------------------------

FIVE_AXES = """
    import jax
    from flax import linen as nn
    from jax.sharding import PartitionSpec as P
    from inspector.model import Model

    def build(names="logical"):
        boxed = ("embed", "mlp") if names == "logical" else ("mp", None)
        def init(key, batch):
            box = nn.LogicallyPartitioned if names == "logical" else nn.Partitioned
            return {"params": {"w": box(batch["x"], boxed)}}
        def step(state, batch):
            x = batch["x"]
            if names == "mesh":
                x = jax.lax.with_sharding_constraint(x, P(("dp", "mp")))
            return state, x.sum()
        return Model(init=init, step=step, names=names,
                     batch=lambda key: {"x": jax.random.normal(key, (8, 16))},
                     rules=[("batch", "dp"), ("embed", "fsdp"), ("mlp", "tp"), ("seq", "sp"),
                            ("expert", "ep")] if names == "logical" else ())

    def by_mesh():
        return build("mesh")
"""


@pytest.mark.nightly
def test_mesh_axes_come_from_the_rules_of_the_model(module, tmp_path, capsys) -> None:
    name = f"{module(FIVE_AXES)}:build"
    layout = layout_of(name, mesh="2x4")
    assert layout.axis_names == ("dp", "fsdp")
    every = layout_of(name)
    assert every.axis_names == ("dp", "fsdp", "tp", "sp", "ep") and every.devices == 8
    assert not [
        finding
        for finding in audited(plan(every, abstract_state(every))).findings
        if finding.code == LEFT_OUT
    ]
    result = audited(plan(layout, abstract_state(layout)))
    (left,) = [finding for finding in result.findings if finding.code == LEFT_OUT]
    assert left.level == "warning"
    assert left.rules == ("mlp → tp", "seq → sp", "expert → ep")
    out = tmp_path / "run.json"
    arguments = ["inspect", "--model", name, "--mesh", "2x2", "--target", "plan", "-o", str(out)]
    assert command_line.main([*arguments, "--axes", "fsdp,tp"]) == 0
    assert "batch → dp" in capsys.readouterr().err
    assert snapshot.read(out).array("params/w").spec == (("fsdp",), ("tp",))
    # A rule of the layout for the same logical axis replaces the one of the model.
    rules = "batch=dp,embed=fsdp,mlp=,seq=,expert="
    replaced = layout_of(name, mesh="2x4", rules=rules)
    shown = audited(plan(replaced, abstract_state(replaced)))
    assert LEFT_OUT not in {finding.code for finding in shown.findings}


def test_mesh_axes_come_from_the_specs_of_the_model(module) -> None:
    layout = layout_of(f"{module(FIVE_AXES)}:by_mesh")
    assert layout.axis_names == ("mp", "dp")  # the state first, then the code
    assert plan(layout, abstract_state(layout)).array("params/w").spec == (("mp",), None)
    one_axis = layout_of(layout.model, mesh="2")
    assert one_axis.axis_names == ("mp",)


@pytest.mark.nightly
def test_code_that_fails_under_a_mesh_is_traced_without_one(module) -> None:
    """Flax takes the names of a `Partitioned` box as mesh axes if a mesh is set."""
    name = module("""
        import jax
        from flax import linen as nn
        from flax.core import meta
        from inspector.model import Model

        def build(rows=8):
            def step(state, batch):
                return state, (batch["x"] @ meta.unbox(state)["params"]["w"]).sum()
            return Model(init=lambda key, batch: {
                             "params": {"w": nn.Partitioned(jax.numpy.ones((16, 32)), ("embed", "mlp"))}},
                         step=step, apply=lambda state, batch: batch["x"],
                         batch=lambda key: {"x": jax.random.normal(key, (rows, 16))},
                         batch_axes={"x": ("batch", None)}, output_axes=("batch", None),
                         rules=[("batch", "data"), ("mlp", "model")])
    """)
    layout = layout_of(f"{name}:build", mesh="2x4", steps="1")
    assert not layout.entry.set_mesh
    snapshot = run_layout(layout, quiet)
    assert snapshot.array("params/w").spec == (None, ("model",))
    planned = plan(layout, abstract_state(layout))
    assert disagreements(planned, snapshot) == ()
    assert {program.name for program in partitioned_programs(layout).programs} >= {"train_step", "apply"}


# --- Errors --------------------------------------------------------------------------------

MODEL = """
    import jax
    from flax import linen as nn
    from inspector.model import Model

    def build(bad={}):
        parts = dict(init=lambda key, batch: {{"params": batch["x"]}},
                     step=lambda state, batch: (state, batch["x"].sum()),
                     batch=lambda key: {{"x": jax.random.normal(key, (8, 4))}})
        return Model(**(parts | {}))
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import not_there_at_all", r"fails at theirs_\w+.py:1: ModuleNotFoundError: No module"),
        ("def build(:", r"fails at theirs_\w+.py:1: SyntaxError"),
        ("\n1 / 0", r"fails at theirs_\w+.py:2: ZeroDivisionError: division by zero"),
        ("x = 1", r"has nothing named 'build'"),
        ("build = 1", r"has int, not a function, named 'build'"),
        ("def build(a): pass", r"the parameter a, but every parameter must"),
        ("def build(mesh=1): pass", r"parameter mesh, which is a field of every layout"),
        ("def build(): return 3", r"returns int, but must return"),
        ("def build():\n  raise ValueError('no\\nway')", r"_\w+.py:2: ValueError: no way"),
        (MODEL.format(0, "{'init': 3}"), r"init is '3', but must be a function"),
        (MODEL.format(0, "{'names': 'x'}"), r"names is 'x', but must be one of logical, mesh"),
        (MODEL.format(0, "{'rules': [3]}"), r"rules has '3', but a rule is"),
        (
            MODEL.format(0, "{'pipeline': ('bad', 'x')}"),
            r"pipeline is .*, but must be the names",
        ),
        (MODEL.format(0, "{'batch': lambda key: [key]}"), r"batch.key. returns list"),
        (MODEL.format(0, "{'init': lambda key, batch: batch['y']}"), r"_\w+.py:\d+: KeyError"),
    ],
)
def test_errors_of_descriptions(module, text, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence) as refused:
        entry_of(f"{module(text)}:build")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("{'step': lambda s, b: s}", r"step returns dict, but must return \(state, loss\)"),
        ("{'step': lambda s, b: (s, b['x'])}", "the loss of step must be a scalar"),
        ("{'step': lambda s, b: (b['x'], 1.)}", "the loss of step must be|another tree structure"),
        ("{'step': lambda s, b: s['no']}", r"_\w+.py:\d+: KeyError: 'no'"),
        ("{'batch_axes': {'x': 'abc'}}", "batch_axes has 'x' with 3 names, but the array has 2"),
        ("{'batch_axes': {'y': ('a',)}}", "batch_axes has 'y', but the batch has x"),
        ("{'apply': lambda s, b: b['x'], 'output_axes': tuple('abc')}", "output_axes has 3 names"),
        (
            "{'init': lambda k, b: {'params': nn.LogicallyPartitioned(b['x'], ('a', 'a'))}}",
            "params: a logical axis occurs twice",
        ),
        (
            "{'init': lambda k, b: {'params': nn.LogicallyPartitioned(b['x'], ('a', 'b', 'c'))}}",
            "params has 3 names for 2 dimensions",
        ),
    ],
)
def test_errors_of_plans(module, part, sentence) -> None:
    layout = layout_of(f"{module(MODEL.format(0, part))}:build", mesh="2x4")
    with pytest.raises(InvalidInput, match=sentence):
        plan(layout, abstract_state(layout))


def test_a_state_that_changes_at_each_call_is_refused(module) -> None:
    part = "{'init': lambda k, b: nn.Partitioned(b['x'], names=(None, None), mesh=object())}"
    layout = layout_of(f"{module(MODEL.format(0, part))}:build")
    with pytest.raises(InvalidInput, match="init returns a different tree structure"):
        abstract_state(layout)


# --- Who names it --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["os:system", "examples.linen_mlp:build", "inspector.model.built_in.mlp:build"]
)
def test_code_is_never_named_by_a_layout(name) -> None:
    for read in (
        lambda: layouts.parse({"model": name}).unwrap(),
        lambda: layouts.from_json({"model": name}),
    ):
        with pytest.raises(InvalidInput, match=f"your own model needs `--model {name}"):
            read()


@pytest.mark.parametrize("name", ["a:b:c", "a/b:c", "a b:c", ".a:b", "a:", ":b", "a;b:c", "é:b\n"])
def test_a_name_is_a_module_and_a_function(name) -> None:
    with pytest.raises(InvalidInput, match=r"must be the name of a model, or package\.module:function"):
        registration.register_own(name)


@pytest.mark.nightly
def test_a_server_starts_without_an_invalid_model(capsys, module) -> None:
    name = module("import not_there_at_all")
    registration.register_all(["--model", f"{name}:build", "--model=logical_mlp"])
    (problem,) = registration.PROBLEMS
    assert problem.startswith(f"{name}:build fails at {name}.py:1: ModuleNotFoundError")
    assert layouts.opening_fields() == {}
    registration.register_all(["--port", "80"])
    (problem,) = registration.PROBLEMS
    assert problem.startswith("--port is not an option of app.py")
    registration.PROBLEMS.clear()


def test_a_server_opens_with_its_model() -> None:
    registered(EXAMPLES[0])
    assert layouts.opening_fields() == {"model": EXAMPLES[0]}
    default = layouts.parse({}).unwrap()
    assert layouts.to_query(default) == {"model": "logical_mlp"}  # else a link would open the other
