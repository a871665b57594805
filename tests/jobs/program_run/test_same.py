"""`same`: results of a program, sharded and on one device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.records import typed_json
from inspector.records.same_results import SameResults
from tests.jobs.program_run import compared_programs as programs
from tests.jobs.program_run.test_program_run import call

SAME = ("-m", "inspector", "same", "--devices", "8")


def compared(folder: Path, text: str, *arguments: str) -> tuple[int, SameResults]:
    (folder / "script.py").write_text(text)
    ended = call(folder, *SAME, "--json", "-o", "results.json", "script.py", *arguments)
    assert "Traceback" not in ended.stderr, ended.stderr
    plain = json.loads((folder / "results.json").read_text())
    return ended.returncode, typed_json.decode(SameResults, plain)


@pytest.mark.nightly
def test_programs_that_compute_the_same(tmp_path: Path) -> None:
    status, results = compared(tmp_path, programs.RIGHT)
    assert [program.reason for program in results.programs] == [None] * 8, results
    assert status == 0 and results.same
    starts = ("gradient =", "draw =", "    product =", "jax.jit(lambda x: jnp.linalg")
    lines = [number for number, line in enumerate(programs.RIGHT.splitlines(), 1) if line.startswith(starts)]
    first, second, third, fourth = (f"<lambda> at script.py:{line}" for line in lines)
    names = ["auto", "mapped", first, second, "total", third, fourth, "each"]
    assert [program.name for program in results.programs] == names
    assert [program.results for program in results.programs] == [3, 1, 3, 4, 1, 1, 1, 1]
    assert results.unsharded == 1
    auto, _, _, draw, total, *_ = results.programs
    assert {value.path for value in auto.values} == {"loss", "w", "v"}
    # The sums of the gradients have another order, so they are equal within rounding only.
    assert 0 < auto.values[0].difference < auto.values[0].tolerance
    exact = [value for value in draw.values if not value.dtype.startswith("float")]
    assert len(exact) == 3  # two keys and a counter
    assert all(value.difference == value.tolerance == 0 for value in exact)
    assert total.values[0].tolerance > auto.values[0].tolerance  # a sum of a million terms


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("wrong")
    status, results = compared(folder, programs.WRONG, "x.npy")
    return status, results, np.load(folder / "x.npy")


def test_a_forgotten_psum(wrong: Any) -> None:
    status, results, x = wrong
    program = results.programs[0]
    assert status == 1 and results.same is False
    (value,) = program.differing
    assert value.path == "z"
    parts = (2 * x).reshape(4, 2, 16).sum(1)  # what each row of the mesh has
    whole = parts.sum(0)
    (place,) = value.index
    assert np.allclose([float(text) for text in value.values], [parts[0][place] + 1, whole[place] + 1])
    difference = np.linalg.norm(parts[0] - whole)
    expected = difference / max(np.linalg.norm(parts[0] + 1), np.linalg.norm(whole + 1))
    assert value.difference == pytest.approx(expected, rel=1e-5)
    assert program.first.operation == "shard_map"
    assert program.first.source == f"script.py:{programs.LINE}"
    unequal = program.first.value.unequal
    rows = [device // 2 for device in unequal.devices]
    assert rows[0] != rows[1]
    (place,) = unequal.index
    assert np.allclose(
        [float(text) for text in unequal.values], [parts[row][place] for row in rows], rtol=1e-5
    )


def test_psum_where_pmean_is_right(wrong: Any) -> None:
    _, results, _ = wrong
    program = results.programs[1]
    (value,) = program.differing
    assert value.path == "z" and value.unequal is None
    assert program.first.operation == "shard_map"
    assert program.first.source == f"script.py:{programs.LINE}"
    assert program.first.value.factor == pytest.approx(4)  # the size of the mesh axis


def test_a_difference_that_no_result_shows(wrong: Any) -> None:
    _, results, x = wrong
    program = results.programs[2]
    assert program.differs and not program.differing
    (value,) = program.values
    assert value.difference < 1e-8
    assert program.first.operation == "shard_map"
    value = program.first.value
    (place,) = value.index
    expected = 4 * x.mean(0)[place], x.mean(0)[place]
    assert np.allclose([float(text) for text in value.values], expected, rtol=1e-5)


@pytest.mark.nightly
def test_a_program_that_computes_with_its_devices(tmp_path: Path) -> None:
    status, results = compared(tmp_path, programs.OTHER)
    scaled, missing = results.programs
    assert status == 1
    assert scaled.first.other_constants and scaled.first.value.factor == pytest.approx(8)
    assert missing.reason is not None
    (value,) = missing.differing  # of the two results, the one with unequal replicas
    assert value.path == "0" and value.unequal is not None


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    "text",
    [programs.FAILS, programs.COMPILES_NOTHING, programs.ON_ONE_DEVICE, programs.OUTSIDE_OF_JIT],
)
def test_scripts_that_cannot_be_compared(text: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(text)
    ended = call(tmp_path, *SAME, "--json", "-o", "results.json", "script.py")
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("sharding-inspector: ")
    assert "inspector/" not in ended.stderr
    assert not (tmp_path / "results.json").exists()


CANCELS = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(8), ("data",))
random = np.random.default_rng(0)
on = NamedSharding(mesh, P("data"))
first, second = (jax.device_put((1e-4 * random.normal(size=2**14)).astype(np.float32), on) for _ in "ab")


@jax.jit
def difference(first, second):
    return jnp.sum(jnp.cos(first)) - jnp.sum(jnp.cos(second))


@jax.jit
def centred(rows, weights):
    return (jnp.exp(rows) - jnp.exp(second)) @ weights


def lost(x):
    return jax.lax.psum(jnp.cos(x).sum(), "data") - jnp.cos(x).sum()


print(difference(first, second), centred(first, jnp.cos(first)))
print(jax.jit(jax.shard_map(lost, mesh=mesh, in_specs=P("data"), out_specs=P(), check_vma=False))(first))
"""


def test_a_tolerance_grows_with_the_terms_that_cancel(tmp_path: Path) -> None:
    """Float64 says that both results are rounding; a sum that lacks seven of eight parts is not."""
    _, results = compared(tmp_path, CANCELS)
    assert {program.name: program.differs for program in results.programs} == {
        "difference": False, "centred": False, "lost": True,
    }  # fmt: skip


ROUTED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))
random = np.random.default_rng(0)
x, router, w = (random.normal(size=shape).astype(np.float32) for shape in ((512, 16), (16, 4), (16,)))


def kept(x, router):
    chosen = jax.nn.one_hot(jnp.argmax(x @ router, -1), 4)
    place = ((jnp.cumsum(chosen, 0) - 1) * chosen).sum(-1).astype(jnp.int32)
    return x * (place < 120 // jax.lax.axis_size("data"))[:, None]


def loss(w, x, router):
    return jax.lax.pmean(jnp.mean((kept(x, router) @ w) ** 2), "data")


@jax.jit
def step(w, x, router):
    mapped = jax.shard_map(loss, mesh=mesh, in_specs=(P(), P("data"), P()), out_specs=P())
    value, gradient = jax.value_and_grad(mapped)(w, x, router)
    return {"loss": value, "w": w - 1e-3 * gradient}


np.savez("arrays.npz", x=x, router=router, w=w)
step(w, jax.device_put(x, NamedSharding(mesh, P("data"))), router)
"""


def test_a_count_of_the_own_tokens_is_a_difference(tmp_path: Path) -> None:
    """Each device keeps its own first tokens of an expert. Rounding changes no count, so it explains nothing.

    The difference of the weights is that of the loss times a small learning rate.
    """
    _, results = compared(tmp_path, ROUTED)
    arrays = np.load(tmp_path / "arrays.npz")
    x, w = arrays["x"], arrays["w"]
    chosen = np.eye(4)[np.argmax(x @ arrays["router"], -1)]

    def loss(devices: int) -> float:
        blocks = chosen.reshape(devices, -1, 4)
        place = ((np.cumsum(blocks, 1) - 1) * blocks).sum(-1).reshape(-1)
        return float(np.mean((x[place < 120 // devices] @ w) ** 2) * np.mean(place < 120 // devices))

    (program,) = results.programs
    values = {value.path: value for value in program.differing}
    assert values.keys() == {"loss", "w"}
    expected = 1 - min(loss(8), loss(1)) / max(loss(8), loss(1))
    assert values["loss"].difference == pytest.approx(expected, rel=1e-3)
    assert all(value.tolerance < 1e-4 for value in values.values())
    assert program.first.operation == "shard_map"


BLOCKS = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))
x = jax.device_put(jnp.arange(64.0) + 1, NamedSharding(mesh, P("data")))


def normed(x):
    return x / jnp.linalg.norm(x)


def added(x):
    return x + jax.lax.psum(jnp.ones(1), "data")


for function in (normed, added, jnp.cos):
    jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("data"), out_specs=P("data")))(x)
"""


def test_a_function_of_the_block_of_a_device_cannot_be_checked(tmp_path: Path) -> None:
    """The norm of eight elements is not that of all. A sum over devices, and a cosine, can be compared."""
    _, results = compared(tmp_path, BLOCKS)
    assert [program.reason is None for program in results.programs] == [False, True, True]
    assert [program.differs for program in results.programs] == [False, True, False]
