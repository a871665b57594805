"""What donation can save, against the compiler's own figures with and without it."""

from __future__ import annotations

import itertools
import warnings

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.prediction import memory
from inspector.recording.inspected import inspect
from inspector.records.snapshot import Program

SPECS = [P(), P("x", None), P(None, "x")]
TYPES = ["float32", "int32", "bfloat16"]
VALUES = st.lists(
    st.tuples(st.sampled_from([16, 64]), st.sampled_from(SPECS), st.sampled_from(TYPES)),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))


def program(function, *arguments) -> Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's own about donations
        (program,) = inspect(function, *arguments).programs
    return program


@pytest.mark.nightly
@settings(max_examples=12, deadline=None)
@given(inputs=VALUES, outputs=VALUES)
def test_donatable_bytes_are_those_that_the_compiler_aliases(mesh, inputs, outputs) -> None:
    """Inputs and outputs have other paths, and their types and PartitionSpecs may differ.

    If all inputs are donated, JAX can pair one with an output of as many elements and another type, which XLA
    cannot write over it. So these are the bytes of the best choice of inputs.
    """
    values = [
        jax.ShapeDtypeStruct((size, 32), dtype, sharding=NamedSharding(mesh, spec))
        for size, spec, dtype in inputs
    ]

    def step(*given):
        total = sum(jnp.sum(one) for one in given)
        return [jnp.full((size, 32), n + total, dtype) for n, (size, _, dtype) in enumerate(outputs)]

    def aliased(donated) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lowered = jax.jit(step, out_shardings=wanted, donate_argnums=donated).lower(*values)
            return lowered.compile().memory_analysis().alias_size_in_bytes

    wanted = [NamedSharding(mesh, spec) for _, spec, _ in outputs]
    result = program(jax.jit(step, out_shardings=wanted), *values)
    every = range(len(values))
    choices = itertools.chain.from_iterable(itertools.combinations(every, n) for n in every)
    most = aliased(tuple(every))
    if result.donation.donatable != most:
        most = max(most, *map(aliased, choices))
    assert result.donation.donatable == most
    assert result.donation.unused == ()


def test_only_the_donation_that_cannot_be_used_is_named(mesh) -> None:
    """jax-ml/jax#9675: which donated argument is not used, and why."""
    rows, columns = (NamedSharding(mesh, spec) for spec in SPECS[1:])
    half = jax.ShapeDtypeStruct((64, 32), "bfloat16", sharding=rows)
    whole = jax.ShapeDtypeStruct((64, 32), "float32", sharding=rows)

    def scaled(state):
        return state.astype("float32") * 0.9

    good = program(jax.jit(scaled, donate_argnums=0, out_shardings=rows), whole)
    moved = program(jax.jit(scaled, donate_argnums=0, out_shardings=columns), whole)
    cast = program(jax.jit(scaled, donate_argnums=0, out_shardings=rows), half)
    assert good.memory.aliased == moved.memory.aliased == 64 * 32 * 4 // 4
    assert good.donation.unused == moved.donation.unused == ()
    (unused,) = cast.donation.unused
    assert cast.memory.aliased == 0 and unused.bytes == 64 * 32 * 2 // 4
    assert unused.path == "scaled/input/state"
    assert "bfloat16" in unused.reason and "float32" in unused.reason
    spread = program(jax.jit(scaled, donate_argnums=0, out_shardings=NamedSharding(mesh, P())), whole)
    (unused,) = spread.donation.unused
    assert spread.memory.aliased == 0 and "8.0 KiB" in unused.reason


def test_an_argument_that_the_program_drops_is_named(mesh) -> None:
    def step(state, old):
        return state + 1

    value = jax.ShapeDtypeStruct((64, 32), "float32", sharding=NamedSharding(mesh, P("x")))
    snapshot = inspect(jax.jit(step, donate_argnums=(0, 1)), value, value)
    (unused,) = snapshot.programs[0].donation.unused
    assert unused.path == "step/input/old"
    (finding,) = [one for one in snapshot.findings if one.code == "donation-not-used"]
    assert "step/input/old" in finding.message


def test_a_figure_of_what_is_aliased_is_never_negative(mesh) -> None:
    value = jax.ShapeDtypeStruct((64, 32), "float32", sharding=NamedSharding(mesh, P("x")))
    snapshot = inspect(jax.jit(lambda state: state + 1, donate_argnums=0), value)
    (breakdown,) = memory.breakdowns(snapshot)
    from inspector.answers.memory import rows

    assert breakdown.aliased == 64 * 32 * 4 // 4
    assert all(np.sign(size) >= 0 for _, size in rows(breakdown) if size is not None)
    assert breakdown.not_donated == 0


def test_the_batch_is_no_advice(mesh) -> None:
    """A batch that happens to have the type of an output is needed by no next step."""
    w = jax.ShapeDtypeStruct((32, 32), "float32", sharding=NamedSharding(mesh, P()))

    def step(w, x):
        gradient = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
        return w - gradient

    (program,) = inspect(step, w, w).programs
    assert program.donation.donatable == 32 * 32 * 4


@pytest.mark.parametrize("optimizer", ["momentum", "none"])
def test_the_finding_saves_what_the_compiler_aliases_after_a_donation(mesh, optimizer: str) -> None:
    """The finding is about the program as a user wrote it; donation is XLA's own figure."""
    state = [jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, P("x")))]
    state *= 1 + (optimizer == "momentum")
    batch = jax.ShapeDtypeStruct((32, 64), "float32", sharding=NamedSharding(mesh, P()))

    def step(state, batch):
        gradient = jax.grad(lambda w: jnp.mean((batch @ w) ** 2))(state[0])
        velocity = 0.9 * state[-1] + gradient
        return [state[0] - velocity, velocity][: len(state)]

    plain, donating = (inspect(jax.jit(step, donate_argnums=n), state, batch) for n in ((), (0,)))
    (finding,) = [one for one in plain.findings if one.code == "arguments-not-donated"]
    before, after = plain.programs[0].memory, donating.programs[0].memory
    assert finding.bytes == after.aliased - before.aliased == len(state) * 64 * 64 * 4 // 4
    assert not [one for one in donating.findings if one.code == "arguments-not-donated"]
    forward = inspect(jax.jit(lambda state, batch: (batch @ state[0]).sum()), state, batch)
    assert not [one for one in forward.findings if one.code == "arguments-not-donated"]
