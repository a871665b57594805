"""An agent answers the questions of docs/tutorial.md with the tools. Each answer is computed in another way.

The model has four blocks of two square matrices with 1,024 rows, batch 8 and Adam. The mesh is 2×4.
"""

from __future__ import annotations

import jax
import pytest
from flax import linen
from jax.sharding import AxisType, NamedSharding

from tests.media.terminal.mcp.conftest import LAYOUTS, Agent

DEPTH, BLOCKS, BATCH, DATA, MODEL = 1024, 4, 8, 2, 4
KERNELS = 2 * BLOCKS
KERNEL_BYTES = DEPTH * DEPTH * 4
COUNTERS = 2 * 4  # of Adam and of the train state
KERNEL = "params/DotReluDot_0/Dense_0/kernel"


def spec_by_flax(names: tuple[str, ...], rules: str) -> list[list[str] | None]:
    """Return the spec that Flax and JAX give an array with these logical axes."""
    pairs = [tuple(rule.split("=")) for rule in rules.split(",")]
    spec = linen.logical_to_mesh_axes(names, pairs)
    return [None if axes is None else [axes] for axes in spec]


@pytest.fixture(scope="module")
def state(agent: Agent) -> dict[str, int]:
    """Bytes of the train state on a device, by the agent's answers."""
    return {
        name: agent.ask("show", snapshot=f"{name}.json")["assessment"]["state_bytes_per_device"]
        for name in LAYOUTS
    }


def test_1_how_is_the_kernel_sharded(agent: Agent) -> None:
    for name, rules in LAYOUTS.items():
        answer = agent.ask("explain", snapshot=f"{name}.json", array=KERNEL)
        assert answer["linen"] == spec_by_flax(("embed", "hidden"), rules)


def test_2_which_rule_shards_its_second_dimension(agent: Agent) -> None:
    rules = agent.ask("show", snapshot="tensor.json")["layout"]["rules"]
    entries = agent.ask("explain", snapshot="tensor.json", array=KERNEL)["entries"]
    (taken,) = (entry for entry in entries if entry["taken_by_linen"])
    assert rules[taken["rule"]] == ["hidden", ["model"]] and taken["dimension"] == 1


def test_3_how_many_bytes_of_train_state_has_a_device(state: dict[str, int]) -> None:
    mesh = jax.make_mesh((DATA, MODEL), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    for name, rules in LAYOUTS.items():
        spec = linen.logical_to_mesh_axes(
            ("embed", "hidden"), [tuple(r.split("=")) for r in rules.split(",")]
        )
        rows, columns = NamedSharding(mesh, spec).shard_shape((DEPTH, DEPTH))
        assert state[name] == 3 * KERNELS * rows * columns * 4 + COUNTERS  # Adam has two moments


def test_4_what_does_a_device_send_over_the_axis_model(agent: Agent) -> None:
    # Each block sums its result over model, and the gradient of its input, which the first does not need.
    sums = BLOCKS + BLOCKS - 1
    payload = BATCH // DATA * DEPTH * 4
    sent = agent.ask("show", snapshot="tensor.json")["assessment"]["traffic"]["by_axes"]
    assert sent["model"] == sums * 2 * payload * (MODEL - 1) // MODEL


def test_5_what_does_it_send_over_the_axis_data(agent: Agent) -> None:
    gradients = KERNELS * KERNEL_BYTES // MODEL
    loss = 4
    sent = agent.ask("show", snapshot="tensor.json")["assessment"]["traffic"]["by_axes"]
    assert sent["data"] == 2 * (gradients + loss) * (DATA - 1) // DATA


def test_6_why_is_there_an_all_gather_over_data(agent: Agent) -> None:
    """The parameters are sharded over data by the rule of `embed`, and are gathered before they are used."""
    answer = agent.ask("explain", snapshot="fsdp.json", rule="embed", all=True)
    gathers = [
        row for row in answer["collectives"] if row["op"] == "all-gather" and row["program"] == "apply"
    ]
    moved = {path for row in gathers for path in row["arrays"]}
    assert len(gathers) == KERNELS and all(row["mesh_axes"] == ["data"] for row in gathers)
    assert len(moved) == KERNELS and all(path.startswith("params/") for path in moved)
    assert {row["payload_bytes"] for row in gathers} == {KERNEL_BYTES // MODEL}


def test_7_does_it_fit_a_tpu_v5e(agent: Agent, state: dict[str, int]) -> None:
    memory = agent.ask("show", snapshot="fsdp.json", chip="v5e")["assessment"]["memory"]
    batch = 2 * BATCH // DATA * DEPTH * 4 // DATA  # x over data, and embed wants it a second time
    assert memory["fits"] and state["fsdp"] <= memory["parts"]["state"] <= state["fsdp"] + 2 * batch
    assert memory["high"] < memory["capacity_bytes"] == int(15.75 * 2**30)


def test_8_which_layout_is_better(agent: Agent) -> None:
    answer = agent.ask("compare", snapshots=["tensor.json", "fsdp.json"], chip="v5e")
    seconds = [
        agent.ask("predict", snapshot=f"{name}.json", chip="v5e")["seconds"] for name in ("tensor", "fsdp")
    ]
    (verdict,) = answer["verdicts"]
    assert verdict["ratio"] == pytest.approx(seconds[1] / seconds[0])
    # The interval has 1 in it, so the answer is that they cannot be told apart.
    assert verdict["low"] < 1 < verdict["high"] and verdict["answer"] == "not distinguishable"


def test_9_what_differs_and_why(agent: Agent) -> None:
    (difference,) = agent.ask("compare", snapshots=["tensor.json", "fsdp.json"], all=True)["differences"]
    state = [row for row in difference["arrays"] if row["after"]["group"] in ("params", "opt_state")]
    assert len(state) == 3 * KERNELS
    assert any(sentence.startswith("Rule embed → data added") for sentence in difference["sentences"])


def test_10_what_can_be_improved_and_what_would_it_save(agent: Agent, state: dict[str, int]) -> None:
    (finding,) = [
        row for row in agent.ask("audit", snapshot="tensor.json") if row["code"] == "state-repeated-over-axis"
    ]
    assert finding["axes"] == ["data"]
    assert finding["change"]["saves_per_device"] == state["tensor"] - state["fsdp"]
    assert ["embed", ["data"]] in finding["change"]["layout"]["rules"]


def test_11_what_if_hidden_is_not_sharded(agent: Agent, state: dict[str, int]) -> None:
    """The tutorial: without hidden → model, the train state is four times as large, and more is sent."""
    answer = agent.ask("plan", layout="fsdp.json", rules="batch=data,embed=data")["assessment"]
    assert answer["state_bytes_per_device"] == 3 * KERNELS * KERNEL_BYTES // DATA + COUNTERS > state["fsdp"]
    before = agent.ask("show", snapshot="fsdp.json")["assessment"]
    assert answer["traffic"]["bytes"] > 3 * before["traffic"]["bytes"]


def test_12_what_is_the_best_layout(agent: Agent) -> None:
    """The least memory of all candidates of this mesh is that of the best one."""
    answer = agent.ask("search", layout="fsdp.json", target="tpu:v5e:2x4", lock=["mesh"], objective="memory")
    peaks = [row["peak_bytes"] for row in answer["candidates"] if row["peak_bytes"] is not None]
    assert answer["candidates"][answer["best"]]["peak_bytes"] == min(peaks)
