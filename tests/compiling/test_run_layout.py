"""Tests of runs on emulated devices against the plan and JAX's objects."""

from __future__ import annotations

import itertools
import math
import re
from contextlib import nullcontext
from typing import Any

import jax
import pytest
from flax import linen as nn

from inspector import layout as layouts
from inspector.compiling import compiled_program
from inspector.compiling.run_layout import run_layout
from inspector.jobs.agreement import disagreements
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.model.built_in import training
from inspector.model.built_in.watching import Watched, listening
from inspector.records.snapshot import Snapshot, from_json
from inspector.text.errors import InvalidInput
from inspector.tracing import leaves, live_arrays
from inspector.tracing.leaves import Leaf
from inspector.tracing.model import build
from inspector.tracing.model.abstract import abstract_state

pytestmark = pytest.mark.close_to_jax

SMALL = {"batch": "8", "layers": "2", "depth": "64", "steps": "3"}

LAYOUTS = {
    "default": {},
    "device axes": {"model": "mlp"},
    "device axes, scan": {"model": "mlp", "scan": "true", "specs": "layer=data"},
    "scan with the layer axis sharded": {
        "scan": "true", "mesh": "2x2x2", "axes": "pipe,data,model",
        "rules": "layer=pipe,batch=data,hidden=model",
    },
    "FSDP": {"mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp"},
    "two axes on one dimension": {"mesh": "2x2x2", "axes": "a,b,c", "rules": "batch=a,hidden=c+b"},
    "optimizer state over more axes": {"donate": "true", "optimizer_axes": "data"},
    "optimizer state over more axes, device axes": {"model": "mlp", "optimizer_axes": "model,data"},
    "an axis of size 1": {"mesh": "1x8", "rules": "batch=data,hidden=model"},
    "nothing sharded": {"rules": ""},
    "six axes": {
        "mesh": "2x1x2x1x1x2",
        "axes": "a,b,c,d,e,f",
        "rules": "batch=a+b,embed=c,hidden=e+f",
    },
    "one device": {"mesh": "1x1"},
    "bfloat16, momentum": {"dtype": "bfloat16", "optimizer": "momentum"},
}  # fmt: skip


def run(fields: dict[str, str]) -> Snapshot:
    return run_layout(layouts.parse(SMALL | fields).unwrap(), lambda *_, **__: None)


@pytest.fixture(scope="module")
def default() -> Snapshot:
    """A run of the default layout."""
    return run({})


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", LAYOUTS)
def test_live_arrays_equal_the_plan(name: str) -> None:
    layout = layouts.parse(SMALL | LAYOUTS[name]).unwrap()
    planned = plan(layout, abstract_state(layout))
    snapshot = run_layout(layout, lambda *_, **__: None)
    assert disagreements(planned, snapshot) == ()
    assert from_json(snapshot.to_json()) == snapshot
    # The compiled programs have every requested sharding.
    asked = [s for program in snapshot.programs for s in program.shardings if s.same is not None]
    assert asked and all(sharding.same for sharding in asked)
    carried = {s.path for s in snapshot.program("train_step").shardings if s.role == "input"}
    assert carried == {a.path for a in planned.arrays} - {"output"}


@pytest.mark.first_jax_is_enough
@pytest.mark.nightly_but_first
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "lion", "momentum", "sgd"])
def test_every_optimizer_moves_the_parameters(optimizer: str) -> None:
    layout = layouts.parse(SMALL | {"optimizer": optimizer}).unwrap()
    model = build.build_model(layout)
    with build.tracing(layout, build.make_mesh(layout)):
        batch = model.batch(jax.random.key(0))
        state = model.init(jax.random.key(0), batch)
        after, _ = jax.jit(model.step)(state, batch)
    for before, now in zip(jax.tree.leaves(state.params), jax.tree.leaves(after.params), strict=True):
        assert (before != now).any()


def test_programs_have_memory_figures_and_every_step(default: Snapshot) -> None:
    snapshot = default
    assert [program.name for program in snapshot.programs] == ["init", "train_step", "apply"]
    for program in snapshot.programs:
        assert program.seconds.lower > 0 and program.seconds.compile > 0 and program.seconds.first > 0
        assert len(program.seconds.steps) == (0 if program.name == "init" else 3)
    step = snapshot.program("train_step")
    held = sum(
        a.bytes_per_device for a in snapshot.arrays if a.group in ("params", "opt_state", "other", "batch")
    )
    assert step.memory.arguments == held


def test_a_live_array_without_a_named_sharding_keeps_its_shards() -> None:
    layout = layouts.parse({"mesh": "2x4"}).unwrap()
    mesh = jax.sharding.Mesh([jax.devices()[1]], ("one",))
    value = jax.device_put(jax.numpy.zeros((4, 2)), jax.sharding.SingleDeviceSharding(mesh.devices[0]))
    array = live_arrays.live_array(Leaf("x", "other", value, None), layout.mesh(), logical=True)
    assert array.spec is None
    assert [(s.device, s.index, s.replica) for s in array.shards] == [(1, ((0, 4), (0, 2)), 0)]


@pytest.mark.first_jax_is_enough
def test_too_little_memory_is_refused_before_anything_runs() -> None:
    layout = layouts.parse(SMALL).unwrap()
    phases: list[str] = []
    with pytest.raises(InvalidInput, match=r"needs about .* at most"):
        run_layout(layout, lambda phase, **_: phases.append(phase), memory=100_000)
    assert "compile" in phases and "first run" not in phases


@pytest.mark.first_jax_is_enough
def test_bytes_per_device_are_the_live_buffers() -> None:
    snapshot = run(LAYOUTS["FSDP"])
    for array in snapshot.arrays:
        assert array.bytes_per_device == math.prod(array.shard_shape) * (
            array.bytes // max(1, math.prod(array.shape))
        )


@pytest.mark.first_jax_is_enough
def test_mean_squared_error_falls_step_by_step() -> None:
    snapshot = run({"loss": "mse", "steps": "8"})
    losses = snapshot.program("train_step").losses
    assert len(losses) == 9  # the first run and every measured step
    assert all(after < before for before, after in itertools.pairwise(losses))
    assert {array.path for array in snapshot.arrays if array.group == "batch"} == {
        "batch/x",
        "batch/y",
    }


def test_the_sum_is_the_guides_loss() -> None:
    layout = layouts.parse(SMALL).unwrap()
    model = build.build_model(layout)
    with build.tracing(layout, build.make_mesh(layout)):
        batch = model.batch(jax.random.key(0))
        state = model.init(jax.random.key(0), batch)
        _, loss = model.step(state, batch)
        assert loss == pytest.approx(float(model.apply(state, batch).sum()), rel=1e-5)


def compiled_with_watching(layout: Layout, watching: bool) -> tuple[Any, dict[str, Watched]]:
    """Compile forward and gradients with free output shardings, and return the watched values."""
    model = build.build_model(layout)
    mesh = build.make_mesh(layout)
    with build.tracing(layout, mesh):
        batch_sharding = {
            name: build.named_sharding(axes, model, layout, mesh) for name, axes in model.batch_axes.items()
        }
        key = jax.random.key(0)
        batch = jax.eval_shape(model.batch, key)
        state = jax.eval_shape(model.init, key, batch)
        state_sharding = build.state_shardings(state, model, layout, mesh)

        def both(state: Any, batch: Any) -> Any:
            def loss(params: Any) -> Any:
                output = model.apply(state.replace(params=params), batch)
                return output.sum(), output

            gradients, output = jax.grad(loss, has_aux=True)(state.params)
            training.watch_gradients(gradients)
            return output, gradients

        watched: dict[str, Watched] = {}
        with listening(lambda value: watched.setdefault(value.path, value)) if watching else nullcontext():
            lowered = jax.jit(both, in_shardings=(state_sharding, batch_sharding)).lower(state, batch)
            return lowered.compile(), watched


CHOICES = {
    "left to the compiler": {"unconstrained": "y,z"},
    "constrained": {},
    "left to the compiler, FSDP": {
        "mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp", "unconstrained": "y,z",
    },
    "left to the compiler, batch whole": {"rules": "embed=data,hidden=model", "unconstrained": "y,z"},
}  # fmt: skip


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", CHOICES)
def test_watched_values_have_the_shardings_of_the_program(name: str) -> None:
    """Compare with the output shardings of the executable: the last z and the gradients are outputs."""
    layout = layouts.parse(SMALL | CHOICES[name]).unwrap()
    compiled, watched = compiled_with_watching(layout, watching=True)
    output, gradients = compiled.output_shardings
    assert watched["activation/DotReluDot_1/z"].sharding.is_equivalent_to(output, 2)
    for key_path, sharding in jax.tree_util.tree_leaves_with_path(gradients):
        path = jax.tree_util.keystr(key_path, simple=True, separator="/").removesuffix("/value")
        assert watched[f"gradient/{path}"].sharding.is_equivalent_to(sharding, 2)


def test_watching_adds_no_instruction() -> None:
    layout = layouts.parse(SMALL).unwrap()

    def instructions(watching: bool) -> list[str]:
        text = compiled_with_watching(layout, watching)[0].as_text()
        # Numbers in names and tables of source lines differ between compiles.
        lines = [line for line in text.splitlines() if " = " in line and not line[0].isdigit()]
        return sorted(re.sub(r"metadata=\{[^}]*\}|\.\d+|channel_id=\d+", "", line) for line in lines)

    assert instructions(True) == instructions(False) != []


def test_constrained_activations_have_the_specs_of_linen() -> None:
    snapshot = run({"rules": "embed=model,batch=data,hidden=model"})
    rules = (("embed", "model"), ("batch", "data"), ("hidden", "model"))
    activations = [array for array in snapshot.arrays if array.group == "activation"]
    assert len(activations) == 4
    for array in activations:
        expected = nn.logical_to_mesh_axes(array.logical_axes, rules)
        assert array.spec == leaves.spec_of(expected, 2)


@pytest.mark.first_jax_is_enough
def test_a_disabled_constraint_is_recorded() -> None:
    snapshot = run({"unconstrained": "z"})
    names = {a.path.rsplit("/")[-1]: a.logical_axes for a in snapshot.arrays if a.group == "activation"}
    assert names == {"y": ("batch", "hidden"), "z": None}
    assert snapshot.layout["unconstrained"] == ["z"]


@pytest.mark.first_jax_is_enough
def test_a_padded_activation_has_a_spec_and_no_shard_shape() -> None:
    snapshot = run({"model": "mlp", "depth": "18", "specs": "W1=None.None,W2=None.None"})
    padded = [a for a in snapshot.arrays if a.group == "activation" and a.spec[1] == ("model",)]
    assert padded and all(array.shape[1] % 4 for array in padded)
    assert all(array.shard_shape is None and array.shards is None for array in padded)


def test_facts_equal_those_of_the_arrays(default: Snapshot) -> None:
    kernel = default.array("params/DotReluDot_0/W2")
    assert (kernel.facts.committed, kernel.facts.fully_addressable) == (True, True)
    assert (kernel.facts.fully_replicated, kernel.facts.placement) == (False, "one process")
    assert kernel.facts.devices == kernel.facts.addressable_shards == kernel.facts.global_shards == 8
    assert kernel.box.kind == "LogicallyPartitioned" and kernel.box.names == (
        ("hidden",),
        ("embed",),
    )
    assert default.array("step").facts.fully_replicated
    alone = leaves.array_facts(jax.numpy.zeros(3))
    assert (alone.committed, alone.placement, alone.devices) == (False, "single device", 1)


def test_live_bytes_have_their_owners() -> None:
    forgotten = jax.device_put(jax.numpy.zeros(1000, "float32"), jax.devices()[3])
    snapshot = run({})
    on_device_3 = {live.owner: live.bytes for live in snapshot.live if live.device == 3}
    by_group = {
        owner: sum(a.bytes_per_device for a in snapshot.arrays if a.group in groups)
        for owner, groups in {
            "params": ("params",),
            "optimizer state and step": ("opt_state", "other"),
            "batch": ("batch",),
            "output": ("output",),
        }.items()
    }
    assert {owner: held for owner, held in on_device_3.items() if owner != "nobody"} == by_group
    assert on_device_3["nobody"] >= forgotten.nbytes


@pytest.mark.first_jax_is_enough
def test_timeit_is_mean_and_deviation_over_seven_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_program, "TIMEIT_LEAST", 0.01)
    snapshot = run({"timeit": "true", "depth": "16"})
    for name in ("train_step", "apply"):
        measured = snapshot.program(name).seconds.timeit
        assert measured.runs == 7 and measured.loops >= 1
        assert measured.mean > 0 and measured.deviation >= 0
    assert snapshot.program("init").seconds.timeit is None


@pytest.mark.first_jax_is_enough
def test_a_donated_state_is_overwritten_in_every_step(
    default: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_program, "TIMEIT_LEAST", 0.01)
    kept = default.program("train_step")
    donated = run({"donate": "true", "timeit": "true"})
    step = donated.program("train_step")
    state = sum(
        array.bytes_per_device for array in donated.arrays if array.group in ("params", "opt_state", "other")
    )
    assert kept.memory.aliased == 0 and step.memory.aliased == state
    assert donated.program("apply").memory.aliased == 0
    # The steps compute the same losses.
    assert step.losses == kept.losses


def test_the_profiler_traces_three_more_train_steps() -> None:
    snapshot = run({"trace": "true", "donate": "true", "depth": "64", "steps": "2"})
    step = snapshot.program("train_step")
    assert step.trace.steps == 3 and step.trace.seconds > 0
    kinds = {operation.kind: operation for operation in step.trace.operations}
    reduced = sum(collective.executions for collective in step.collectives if collective.op == "all-reduce")
    assert kinds["all-reduce"].events == reduced * 3 * snapshot.mesh.size
    assert "dot" in kinds
    together = sum(operation.seconds for operation in step.trace.operations)
    assert together <= step.trace.seconds * snapshot.mesh.size
    # Traced steps are not measured.
    assert len(step.seconds.steps) == 2 and len(step.losses) == 3
    assert snapshot.program("apply").trace is None
