"""Transformers and mixtures of experts, built and run on emulated devices under the presets."""

from __future__ import annotations

import functools
import itertools
import math

import jax
import pytest
from flax import linen as nn

from inspector.compiling.run_layout import run_layout
from inspector.jobs.agreement import disagreements
from inspector.layout import Layout, presets
from inspector.layout.plan import plan
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records.snapshot import Snapshot
from inspector.tracing.model import build
from inspector.tracing.model.abstract import abstract_state
from tests.models.language_models import MODELS, SMALL, small

pytestmark = pytest.mark.close_to_jax

# One preset for each kind of sharding. Other presets combine these.
LAID_OUT = [
    ("transformer", "FSDP + tensor"),
    ("transformer", "Tensor + sequence"),
    ("moe", "Expert + tensor"),
]


def layout_of(model: str, preset: str) -> Layout:
    (chosen,) = (one for one in presets.fitting(CATALOGUE[model]) if one.name == preset)
    return chosen.applied_to(small(model, mesh="2x4", scan="true", remat="true"))


@functools.cache
def run(model: str, preset: str) -> Snapshot:
    return run_layout(layout_of(model, preset), lambda *_, **__: None)


@functools.cache
def losses_on_one_device(model: str) -> tuple[float | None, ...]:
    layout = small(model, mesh="1", rules="", scan="true", steps="19")
    return run_layout(layout, lambda *_, **__: None).program("train_step").losses


@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS)
def test_the_loss_falls_in_every_one_of_twenty_steps(model: str) -> None:
    result = losses_on_one_device(model)
    assert len(result) == 20
    assert result[0] == pytest.approx(math.log(64), rel=0.2)  # as of one who knows nothing
    assert all(after < before for before, after in itertools.pairwise(result))


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("model", "preset"), LAID_OUT)
def test_every_preset_is_laid_out_as_planned(model: str, preset: str) -> None:
    layout = layout_of(model, preset)
    planned = plan(layout, abstract_state(layout))
    assert not planned.findings
    snapshot = run(model, preset)
    assert disagreements(planned, snapshot) == ()
    asked = [s for program in snapshot.programs for s in program.shardings if s.same is not None]
    assert asked and all(sharding.same for sharding in asked)


@pytest.mark.nightly
@pytest.mark.parametrize(("model", "preset"), LAID_OUT)
def test_every_preset_learns_what_one_device_learns(model: str, preset: str) -> None:
    losses = run(model, preset).program("train_step").losses
    assert losses == pytest.approx(losses_on_one_device(model)[:4], rel=1e-4)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("model", "preset"), LAID_OUT)
def test_constrained_activations_have_the_specs_of_linen(model: str, preset: str) -> None:
    layout = layout_of(model, preset)
    mesh = build.make_mesh(layout)
    activations = [a for a in run(model, preset).arrays if a.group == "activation"]
    # Each is reported once, though the backward pass computes it again.
    assert {a.path.rsplit("/")[-1] for a in activations} == set(layout.entry.constraints)
    assert len({a.path for a in activations}) == len(activations) == len(layout.entry.constraints)
    for array in activations:
        spec = nn.logical_to_mesh_axes(array.logical_axes, build.linen_rules(layout))
        expected = jax.sharding.NamedSharding(mesh, spec).shard_shape(array.shape)
        assert array.shard_shape == expected, array.path


@pytest.mark.nightly
def test_a_constraint_that_is_off_is_said_to_be_off() -> None:
    layout = small("transformer", mesh="4x2", layers="1", steps="1", unconstrained="query,logits")
    snapshot = run_layout(layout, lambda *_, **__: None)
    names = {a.path.rsplit("/")[-1]: a.logical_axes for a in snapshot.arrays if a.group == "activation"}
    assert names["query"] is None and names["logits"] is None
    assert names["key"] == ("batch", "seq", "kv_heads", "head_dim")


@pytest.mark.first_jax_is_enough
@pytest.mark.parametrize("preset", ["Expert + tensor"])
def test_tokens_go_to_their_experts_and_back_all_to_all(preset: str) -> None:
    collectives = run("moe", preset).program("apply").collectives
    moves = [
        collective
        for collective in collectives
        if collective.op == "all-to-all" and collective.mesh_axes == ("expert",)
    ]
    # There and back in each of two blocks, and no more.
    assert sum(move.executions for move in moves) == 2 * int(SMALL["layers"])
    # Experts do not move: no all-gather over their axis alone is as large as one expert's matrix.
    matrix = int(SMALL["embed"]) * int(SMALL["mlp"]) * 4
    gathers = [
        collective
        for collective in collectives
        if collective.op == "all-gather" and collective.mesh_axes == ("expert",)
    ]
    assert all(gather.payload_bytes < matrix for gather in gathers)
