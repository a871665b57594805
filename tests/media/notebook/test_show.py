"""`inspector.show` and `inspector.inspect`: the same facts in a notebook and in a terminal."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import inspector
from inspector.machines import targets
from inspector.media import notebook
from inspector.recording.capture import snapshot_of
from inspector.records import snapshot
from inspector.sharding import placement
from inspector.text.errors import InvalidInput

P = PartitionSpec
MESH = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
WEIGHTS = jax.device_put(np.ones((8, 16), "float32"), NamedSharding(MESH, P("data", "model")))


@jax.jit
def step(state: Any, batch: Any) -> Any:
    return {"w": state["w"] * 2}, (batch @ state["w"]).sum()


@pytest.fixture(scope="module")
def inspected() -> snapshot.Snapshot:
    batch = jax.ShapeDtypeStruct((4, 8), "float32", sharding=NamedSharding(MESH, P("data")))
    return inspector.inspect(step, {"w": WEIGHTS}, batch=batch)


def test_inspect_has_the_figures_of_jax(inspected: snapshot.Snapshot) -> None:
    batch = jax.device_put(np.ones((4, 8), "float32"), NamedSharding(MESH, P("data")))
    compiled = step.lower({"w": WEIGHTS}, batch).compile()
    (program,) = inspected.programs
    assert program.name == "step"
    assert program.memory.arguments == compiled.memory_analysis().argument_size_in_bytes
    assert {c.op for c in program.collectives} >= {"all-reduce"}
    array = inspected.array("step/input/state/w")
    theirs = WEIGHTS.sharding.devices_indices_map(WEIGHTS.shape)
    assert {shard.device: shard.index for shard in placement.shards(array, inspected.mesh)} == {
        device.id: tuple(part.indices(size)[:2] for part, size in zip(index, (8, 16), strict=True))
        for device, index in theirs.items()
    }
    assert inspected.array("step/input/batch").spec == (("data",), None)


def test_inspect_refuses_what_it_cannot_compile() -> None:
    with pytest.raises(InvalidInput, match="must be a function"):
        inspector.inspect(3)
    with pytest.raises(InvalidInput, match="target"):
        inspector.inspect(step, target="tpu:v5e")


@pytest.mark.nightly
@pytest.mark.skipif(targets.missing_compiler(targets.parse("tpu:v5e:2x4")) is not None, reason="needs libtpu")
def test_inspect_for_a_target_keeps_shardings_and_has_its_devices() -> None:
    snapshot = inspector.inspect(lambda w: (w.T @ w).sum(), WEIGHTS, target="tpu:v5e:2x4")
    assert (snapshot.source.kind, snapshot.mesh.device_kind) == ("tpu", "TPU v5 lite")
    assert snapshot.mesh.shape == (2, 4)
    assert snapshot.array("<lambda>/input/w").spec == (("data",), ("model",))
    (program,) = snapshot.programs
    assert program.collectives and program.memory.capacity > 2**33


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        (WEIGHTS, ["array"]),
        ({"a": WEIGHTS, "b": [WEIGHTS, 3]}, ["a", "b/0"]),
        (WEIGHTS.sharding, ["sharding"]),
        (MESH, ["sharding"]),
        (jnp.ones(3).sharding, ["sharding"]),
    ],
    ids=["array", "pytree", "sharding", "mesh", "single device"],
)
def test_everything_shown_has_a_snapshot(value: Any, paths: list[str]) -> None:
    snapshot = snapshot_of(value)
    assert [array.path for array in snapshot.arrays] == paths
    assert all(notebook.as_text(snapshot)) and all(notebook.as_html(snapshot))


def test_a_sharding_is_shown_with_one_element_per_shard() -> None:
    (array,) = snapshot_of(NamedSharding(MESH, P(("data", "model"), None))).arrays
    assert (array.shape, array.shard_shape) == ((8, 1), (1, 1))


def test_values_without_arrays_are_refused() -> None:
    for value in (3, {"a": "text"}, None):
        with pytest.raises(InvalidInput, match="without arrays"):
            inspector.show(value)


def test_a_terminal_gets_text(capsys: pytest.CaptureFixture[str]) -> None:
    inspector.show(WEIGHTS)
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if re.match(r" +[0-7] .*\[", line)]) == 8


def test_html_is_one_fragment_that_contains_plotly_once(
    inspected: snapshot.Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook, "_given", type(notebook._given)())
    first, second = (notebook.html(notebook.as_html(inspected)) for _ in range(2))
    assert len(first) > 1_000_000 > len(second) * 4
    figures = re.findall(r'data-figure="(\d+)"', second)
    assert len(figures) >= 5
    for number in figures:
        assert f'"{number}":{{' in second
    assert "src=" not in second and "<link" not in second


def test_names_are_text() -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    snapshot = snapshot_of({hostile: WEIGHTS, "b": WEIGHTS})
    assert "<img" not in notebook.html(notebook.as_html(snapshot))
