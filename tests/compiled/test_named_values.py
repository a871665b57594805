"""Names and lines of values in memory, against the lines of this file and the compiled text."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.answers.collectives import phases
from inspector.jax_private.checkpoint_names import checkpoint_names
from inspector.recording.inspected import inspect
from inspector.records.snapshot import CARRY, LiveValue, Snapshot

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="the programs need 8 devices")

LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


def line(code: str) -> str:
    """Return the place of the only line of this file with this end."""
    (number,) = (number for number, text in enumerate(LINES, 1) if text.endswith(code))
    return f"{Path(__file__).name}:{number}"


def array(shape: tuple[int, ...], *spec: str | None) -> jax.ShapeDtypeStruct:
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


def layer(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
    up = checkpoint_name(x @ w["up"], "up")  # up
    return x + jnp.tanh(up) @ w["down"], None  # down


def step(w: dict[str, jax.Array], x: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    policy = jax.checkpoint_policies.dots_saveable

    def loss(w: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean(lax.scan(jax.checkpoint(layer, policy=policy), x, w)[0] ** 2)

    value, gradient = jax.value_and_grad(loss)(w)
    norm = jnp.sqrt(sum(jnp.sum(one**2) for one in jax.tree.leaves(gradient)))
    return jax.tree.map(lambda one, other: one - 0.1 * other / norm, w, gradient), value


WEIGHTS = {"up": array((6, 128, 512)), "down": array((6, 512, 128))}


def values(snapshot: Snapshot) -> tuple[LiveValue, ...]:
    use = snapshot.programs[0].memory_use
    assert use is not None
    return use.values


def test_stacked_gradients_of_one_collective_have_their_own_lines() -> None:
    snapshot = inspect(jax.jit(step), WEIGHTS, array((64, 128), "data"))
    lines = {value.shape: value.source for value in values(snapshot) if value.group == "gradient"}
    assert (
        lines and lines.items() <= {"f32[6,128,512]": line("# up"), "f32[6,512,128]": line("# down")}.items()
    )


def test_a_name_that_the_backward_pass_gives_again_is_not_that_of_the_loop() -> None:
    names = checkpoint_names(jax.jit(step).trace(WEIGHTS, array((64, 128), "data")).jaxpr)
    assert {name.name for name in names} == {"up"}
    assert CARRY not in {name.primitive for name in names}


def test_the_name_of_what_a_loop_passes_on() -> None:
    def named(x: jax.Array) -> jax.Array:
        return lax.scan(lambda x, _: (jnp.sin(checkpoint_name(x, "residual")), None), x, length=3)[0]

    (name,) = checkpoint_names(jax.jit(jax.grad(lambda x: jnp.sum(named(x)))).trace(np.ones(8)).jaxpr)
    assert (name.name, name.primitive) == ("residual", CARRY)


def test_derivatives_that_update_no_parameter_are_no_gradients() -> None:
    def energy(w: jax.Array, r: jax.Array) -> jax.Array:
        return jnp.sum(jnp.tanh(w * jnp.sum(jnp.sin(r[:, None] - r[None, :]))))

    def update(w: jax.Array, r: jax.Array) -> tuple[jax.Array, jax.Array]:
        local = jax.vmap(lambda r: jnp.trace(jax.hessian(energy, 1)(w, r)))(r)
        gradient = jax.grad(lambda w: jnp.mean(local * jax.vmap(energy, (None, 0))(w, r)))(w)
        return w - 0.1 * gradient, jnp.mean(local)

    snapshot = inspect(jax.jit(update), array((64,)), array((512, 16), "data"))
    assert all(value.shape == "f32[64]" for value in values(snapshot) if value.group == "gradient")


def test_a_cache_has_the_line_of_its_update() -> None:
    def decode(cache: jax.Array, x: jax.Array) -> jax.Array:
        def token(cache: jax.Array, place: jax.Array) -> tuple[jax.Array, None]:
            for number in range(2):
                part = jnp.stack([jnp.sin(cache[number, 0, :, 0]) + x, x])[None, :, :, None]
                cache = lax.dynamic_update_slice(cache, part, (number, 0, 0, place, 0, 0))  # write
            return jnp.take(cache, jnp.arange(8)[::-1], axis=2), None

        return lax.scan(token, cache, jnp.arange(16))[0]

    snapshot = inspect(jax.jit(decode), array((2, 2, 8, 16, 2, 16)), array((8, 2, 16)))
    found = [value.op_name for value in values(snapshot) if value.shape == "f32[2,2,8,16,2,16]"]
    assert found
    assert not any(str(name).endswith(("/sin", "/add", "/slice", "concatenate")) for name in found)


def test_kept_values_have_the_name_of_an_operation_with_their_shape() -> None:
    def loss(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        hidden = jnp.tanh(x @ w["in"])
        mean, value = (hidden @ w["mean"])[:, 0], (hidden @ w["value"])[:, 0]
        ratio = jnp.exp(-((x[:, 0] - mean) ** 2))
        return jnp.mean(jnp.minimum(ratio, jnp.clip(ratio, 0.8, 1.2)) + (value - x[:, 1]) ** 2)

    weights = {"in": array((32, 64)), "mean": array((64, 1)), "value": array((64, 1))}
    jitted, x = jax.jit(jax.grad(loss)), array((4096, 32), "data")
    compiled = jitted.lower(weights, x).compile().as_text()
    residuals = inspect(jitted, weights, x).programs[0].residuals
    assert compiled is not None and residuals is not None
    for kept in residuals.kept:
        shape = re.escape(kept.shape)
        by_name = rf"= {shape}\S* \S+\(.*op_name=\"[^\"]*/{kept.primitive}[\"/:;]"
        assert re.search(by_name, compiled) or re.search(rf"= {shape}\S* {kept.primitive}\(", compiled), kept


def test_a_combined_collective_has_the_phases_of_all_its_parts() -> None:
    weights = WEIGHTS | {"up": array((6, 128, 512), None, "data")}
    snapshot = inspect(jax.jit(step), weights, array((64, 128), "data"))
    mixed = 0
    for collective in snapshot.programs[0].collectives or ():
        of_parts = {"jvp(" in (part.op_name or "") for part in collective.parts or ()}
        if len(of_parts) == 2:
            mixed += 1
            assert "unknown" in phases(collective)
    assert mixed


def test_gradients_of_a_combined_collective_are_not_kept_for_the_backward_pass() -> None:
    def loss(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        for name in ("a", "b", "a"):
            x = jnp.tanh(x @ w[name])
        return jnp.mean(jnp.sum(x**2, -1))

    weights = {"a": array((16, 48)), "b": array((48, 16))}
    snapshot = inspect(jax.jit(jax.value_and_grad(loss)), weights, array((128, 16), "data"))
    residuals = snapshot.programs[0].residuals
    assert residuals is not None
    assert {kept.shape for kept in residuals.kept} <= {"f32[16,16]", "f32[16,48]"}
    lines = {kept.source for kept in residuals.kept}
    assert line("x = jnp.tanh(x @ w[name])") in lines and line("jnp.sum(x**2, -1))") not in lines


def test_the_pieces_of_a_split_are_moved_for_the_split() -> None:
    def attention(w: jax.Array, x: jax.Array) -> jax.Array:
        q, k, v = jnp.split(x @ w, 3, axis=-1)
        scores = jnp.einsum("bthd,bshd->bhts", *(one.reshape(4, 16, 8, 16) for one in (q, k)))
        return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v.reshape(4, 16, 8, 16))

    snapshot = inspect(jax.jit(attention), array((128, 384), None, "data"), array((4, 16, 128)))
    permutes = [
        one
        for one in snapshot.programs[0].collectives or ()
        if one.op == "collective-permute" and one.op_name
    ]
    assert permutes
    for permute in permutes:
        if str(permute.op_name).endswith("/split"):
            assert permute.operation == "split"
