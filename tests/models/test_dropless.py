"""Dropless experts against the experts with buffers for every token, and what is said of their work."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from flax import linen as nn
from jax import numpy as jnp

from inspector.model.built_in import dropless
from inspector.model.built_in.moe import DroplessExperts, MixtureOfExperts
from inspector.partition.partition_layout import partitioned_programs
from inspector.records.snapshot import Collective, Program
from inspector.text.errors import InvalidInput
from inspector.tracing.model import build
from tests.models.language_models import CONFIG, SMALL, small

pytestmark = pytest.mark.close_to_jax

Rules = tuple[tuple[str, Any], ...]
BATCH, SEQ, EMBED, COLUMNS, EXPERTS, CHOICES = 8, 8, 16, 24, 8, 2

# Mesh and rules: experts on the axes of the batch, on others, on some of both, without, and of sequences.
SENT = ("data 2, expert 4", (("expert", "expert"), ("batch", ("data", "expert"))))
CASES: tuple[tuple[str, Rules], ...] = (
    SENT,
    ("expert 8", (("expert", "expert"), ("batch", "expert"))),
    ("data 2, expert 4", (("expert", "expert"), ("batch", "data"))),
    ("data 2, expert 4", (("expert", ("data", "expert")), ("batch", "data"))),
    ("fsdp 2, tensor 4", (("batch", "fsdp"), ("embed", "fsdp"), ("mlp", "tensor"))),
    (
        "fsdp 2, expert 2, tensor 2",
        (("expert", "expert"), ("mlp", "tensor"), ("batch", ("fsdp", "expert")), ("embed", "fsdp")),
    ),
    ("data 4, expert 2", (("expert", "expert"), ("batch", "data"), ("seq", "expert"))),
)


def layer(routing: str, **sizes: Any) -> MixtureOfExperts:
    config = replace(CONFIG, embed=EMBED, mlp=COLUMNS)
    kind = DroplessExperts if routing == "dropless" else MixtureOfExperts
    return kind(config, EXPERTS, CHOICES, capacity_factor=EXPERTS, routing=routing, **sizes)


def values(of: MixtureOfExperts, params: Any, x: jax.Array) -> Any:
    """The sum of the squares of the outputs, and its gradients."""
    squares = lambda params, x: (of.apply(params, x) ** 2).sum()  # noqa: E731
    return jax.jit(jax.value_and_grad(squares, argnums=(0, 1)))(params, x)


def arguments() -> tuple[Any, jax.Array]:
    x = jax.random.normal(jax.random.key(0), (BATCH, SEQ, EMBED))
    return nn.unbox(layer("masks").init(jax.random.key(1), x)), x


def on(mesh: str, kind: jax.sharding.AxisType = jax.sharding.AxisType.Auto) -> jax.sharding.Mesh:
    names, sizes = zip(*(axis.split() for axis in mesh.split(", ")), strict=True)
    return jax.make_mesh(tuple(map(int, sizes)), names, axis_types=(kind,) * len(names))


def assert_as_the_reference(mesh: jax.sharding.Mesh, rules: Rules) -> None:
    params, x = arguments()
    expected = values(layer("masks"), params, x)
    with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
        result = values(layer("dropless"), params, x)
    for leaf, other in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-4, atol=1e-4 * float(jnp.abs(other).max()))


def test_one_device_has_the_results_and_gradients_of_experts_with_room_for_all() -> None:
    params, x = arguments()
    expected, found = (values(layer(routing), params, x) for routing in ("masks", "dropless"))
    for leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("mesh", "rules"), [CASES[0], *(pytest.param(*case, marks=pytest.mark.nightly) for case in CASES[1:])]
)
@pytest.mark.parametrize("kind", ["Auto", pytest.param("Explicit", marks=pytest.mark.nightly)])
def test_devices_together_have_the_same_results(mesh: str, rules: Rules, kind: str) -> None:
    assert_as_the_reference(on(mesh, getattr(jax.sharding.AxisType, kind)), rules)


def all_gathered(
    operand: Any, output: Any, starts: Any, sizes: Any, places: Any, received: Any, *, axis_name: Any
) -> Any:
    """`ragged_all_to_all` as StableHLO defines it: each receiver takes its rows of what all have."""
    me, at = jax.lax.axis_index(axis_name), jnp.arange(len(output))
    everyone = [jax.lax.all_gather(array, axis_name) for array in (operand, starts, sizes, places)]
    for rows, start, size, place in zip(*everyone, strict=True):
        number = at - place[me]
        used = (number >= 0) & (number < size[me])
        taken = rows.at[jnp.where(used, start[me] + number, len(rows))].get(mode="fill", fill_value=0)
        output = jnp.where(used[:, None], taken, output)
    return output


@pytest.mark.parametrize(
    ("mesh", "rules"), [CASES[0], *(pytest.param(*CASES[n], marks=pytest.mark.nightly) for n in (1, 5, 6))]
)
def test_ragged_all_to_alls_send_the_same(mesh: str, rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA has the operation for TPUs and GPUs alone, so its definition runs here."""
    monkeypatch.setattr(jax.lax, "ragged_all_to_all", all_gathered)
    monkeypatch.setattr(dropless, "has_ragged_all_to_all", lambda: True)
    assert_as_the_reference(on(mesh), rules)


@pytest.mark.nightly
@pytest.mark.parametrize("ragged", [False, True])
def test_full_buffers_drop_tokens_and_nothing_else(ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expert that all tokens choose gets so many of them as its device has room for."""
    monkeypatch.setattr(jax.lax, "ragged_all_to_all", all_gathered)
    monkeypatch.setattr(dropless, "has_ragged_all_to_all", lambda: ragged)
    tokens, width = 16, 4
    x = jnp.ones((tokens, 1, width))
    experts, weights = jnp.zeros((tokens, 1, 1), int), jnp.ones((tokens, 1, 1))
    matrices = (jnp.ones((8, width, width)), jnp.ones((8, width, width)), jnp.ones((8, width, width)))
    rules = (("expert", "expert"), ("batch", "expert"))
    with jax.set_mesh(on("expert 8")), nn.logical_axis_rules(rules):
        for factor, kept in ((0, tokens), (2, 4)):
            result = jax.jit(dropless.grouped_experts, static_argnums=(4, 5, 6))(
                x, experts, weights, matrices, ("batch", "seq", "embed"), factor, 1
            )
            assert int((np.asarray(result)[:, 0, 0] != 0).sum()) == kept


def programs(**sizes: str) -> tuple[Program, Program]:
    """A train step on data × expert, on the layout's own target and on a TPU."""
    mesh = {"mesh": "2x4", "axes": "data,expert", "rules": "batch=data+expert,expert=expert"}
    layout = small("moe", **({"routing": "dropless", "scan": "true", "target": "plan"} | mesh | sizes))
    known = partitioned_programs(layout, origins=False, only=("train_step",), platforms=("tpu",))
    return known.programs[0], (*known.on_platforms, *known.programs)[0]


def sends(program: Program) -> list[Collective]:
    """The exchanges of rows, without those of the positions of rows."""
    return [c for c in program.collectives or () if "all-to-all" in c.op and (c.payload_bytes or 0) > 64]


TOKENS = int(SMALL["batch"]) * int(SMALL["seq"]) // 8  # of a device
ROWS = 2 * TOKENS
# Forward, and the gradients of both operands of three products, in two layers.
PRODUCTS = 3 * 3 * 2 * 2 * ROWS * int(SMALL["embed"]) * int(SMALL["mlp"])


@pytest.mark.parametrize(
    ("sizes", "factor"),
    [
        ({}, 1),
        ({"imbalance": "1.5"}, 1.5),
        pytest.param({"buffer_factor": "2"}, 1, marks=pytest.mark.nightly),
        pytest.param({"target": "cpu"}, 1, marks=pytest.mark.nightly),
        pytest.param({"target": "tpu:v5e:2x4", "imbalance": "2"}, 2, marks=pytest.mark.nightly),
    ],
)
def test_work_and_transfers_are_those_of_the_expected_rows(sizes: dict[str, str], factor: float) -> None:
    _, step = programs(**sizes)
    assert step.work is not None and sum(step.work.grouped.values()) == factor * PRODUCTS
    # To the experts and back, forward and backward, in each of two executions.
    expected = factor * ROWS * int(SMALL["embed"]) * 4
    assert [(c.op, c.mesh_axes, c.executions, c.payload_bytes) for c in sends(step)] == [
        ("ragged-all-to-all", ("expert",), 2, expected)
    ] * 4
    assert any(f"{int(factor * ROWS)} rows" in clause for clause in step.assumptions)


@pytest.mark.nightly
def test_room_for_rows_is_a_fact_of_memory() -> None:
    """Arrays of rows have room for all tokens, or for the stated multiple of a device's share."""
    peaks = {}
    for factor in ("0", "1", "2"):
        step, _ = programs(buffer_factor=factor, seq="512", layers="1", target="tpu:v5e:2x4")
        assert step.memory_use is not None
        peaks[factor] = step.memory_use.peak_bytes
    assert peaks["1"] < peaks["2"] < peaks["0"]


@pytest.mark.nightly
def test_emulated_devices_send_room_for_every_row() -> None:
    """What XLA compiles for CPUs is what the partitioned program says."""
    step, _ = programs(target="cpu")
    assert {(c.op, c.payload_bytes) for c in sends(step)} == {
        ("all-to-all", 4 * ROWS * int(SMALL["embed"]) * 4)
    }


@pytest.mark.nightly
def test_the_compiled_program_sends_room_for_every_row() -> None:
    params, x = arguments()
    mesh, rules = SENT
    with jax.set_mesh(on(mesh)), nn.logical_axis_rules(rules):
        apply = layer("dropless").apply
        text = jax.jit(jax.grad(lambda p, x: (apply(p, x) ** 2).sum())).lower(params, x).compile().as_text()
    rows = 4 * BATCH * SEQ // 8 * CHOICES
    sent = [line.partition(" all-to-all(")[0] for line in text.splitlines() if " all-to-all(" in line]
    counts = [sum(int(n) * int(m) for n, m in re.findall(r"f32\[(\d+),(\d+)\]", result)) for result in sent]
    assert counts and set(counts) == {rows * EMBED}


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"buffer_factor": "1", "imbalance": "2"}, ("buffer_factor is 1", "imbalance", "2")),
        ({"quantization": "int8"}, ("quantization is int8", "none")),
        ({"weight_dtype": "int4"}, ("weight_dtype is int4", "type")),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(sizes: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as error:
        build.build_model(small("moe", routing="dropless", **sizes))
    assert all(word in str(error.value) for word in words)
