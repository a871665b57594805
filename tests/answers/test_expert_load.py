"""The tokens of each expert in a run against the choices of its router, and what is unknown without a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from flax.core import meta

from inspector.answers import expert_load
from inspector.compiling.run_layout import run_layout
from inspector.layout.plan import plan
from inspector.partition.partition_layout import partitioned_programs
from inspector.records.snapshot import Snapshot
from inspector.tracing.model import build
from inspector.tracing.model.abstract import abstract_state
from tests.models.language_models import SMALL, small


def quiet(phase: str, /, **figures: Any) -> None:
    """Report nothing."""


MESH = {
    "mesh": "2x4",
    "axes": "data,expert",
    "rules": "expert=expert,batch=data+expert,batch=data",
    "scan": "true",
}


def ran(**sizes: str) -> Snapshot:
    return run_layout(small("moe", **(MESH | {"target": "cpu", "steps": "1"} | sizes)), quiet)


@pytest.mark.close_to_jax
@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"routing": "dropless", "imbalance": "1.5"}, 1.5),
        pytest.param({"routing": "masks"}, None, marks=pytest.mark.nightly),
    ],
)
def test_a_run_counts_the_tokens_of_experts_and_devices(
    sizes: dict[str, str], expected: float | None
) -> None:
    snapshot = ran(**sizes)
    step = snapshot.program("train_step")
    assert step is not None and step.expert_load is not None and step.expert_load.devices is not None
    load, devices = step.expert_load, np.array(step.expert_load.devices).reshape(2, 4)
    choices = int(SMALL["batch"]) * int(SMALL["seq"]) * 2 * int(SMALL["layers"])
    assert load.layers == int(SMALL["layers"]) and sum(load.tokens) == sum(load.devices or ()) == choices
    # Both halves of the batch have two neighbors of eight experts on each device.
    assert devices.sum(axis=0).tolist() == np.array(load.tokens).reshape(4, 2).sum(axis=1).tolist()
    assert load.imbalance is not None and load.imbalance >= devices.max() / devices.mean()
    (plain,) = expert_load.json_of(snapshot).values()
    assert isinstance(plain, dict) and plain["expected"] == expected and plain["sent_bytes"] > 0
    assert plain["tokens"] == load.tokens and plain["unknown"] is None
    assert expert_load.section(snapshot)


@pytest.mark.close_to_jax
def test_the_counts_are_those_of_the_router() -> None:
    """With weights of the router that send every token to the first experts, they get all of them."""
    layout = small("moe", experts="4", experts_per_token="2", batch="4")
    model = build.build_model(layout)
    batch: Any = model.batch(jax.random.key(0))
    state = meta.unbox(model.init(jax.random.key(1), batch))
    assert model.routing is not None
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: 0 * leaf if "router" in jax.tree_util.keystr(path) else leaf, state.params
    )
    counts = np.asarray(model.routing(state.replace(params=params), batch))
    # Equal scores: the sort is stable, so experts 0 and 1 are first.
    assert counts.shape == (2, 4, 4)
    assert (counts == int(SMALL["seq"]) * np.array([1, 1, 0, 0])).all()


def test_without_a_run_the_tokens_are_unknown_with_a_reason() -> None:
    layout = small("moe", **(MESH | {"target": "plan", "routing": "dropless", "imbalance": "2"}))
    programs = partitioned_programs(layout, origins=False, only=("train_step",)).programs
    snapshot = replace(plan(layout, abstract_state(layout)), programs=programs)
    (plain,) = expert_load.json_of(snapshot).values()
    assert isinstance(plain, dict) and plain["tokens"] is None and plain["expected"] == 2
    assert plain["unknown"] == expert_load.NOT_RUN and plain["remedy"]
    recorded = replace(snapshot, layout=None)
    (plain,) = expert_load.json_of(recorded).values()
    assert isinstance(plain, dict) and plain["unknown"] == expert_load.NOT_SAID


def test_a_dense_model_has_no_section() -> None:
    layout = small("transformer", mesh="2x4", axes="data,model", rules="batch=data,mlp=model", target="cpu")
    snapshot = run_layout(layout, quiet)
    assert expert_load.section(snapshot) == () and expert_load.json_of(snapshot) == {}
