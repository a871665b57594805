"""Loops and branches that depend on data: stated counts give the figures of a program with these counts."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.assessment import assess
from inspector.compiled.assumed import Assumed, Cost, assume, least, with_assumed
from inspector.compiled.program_text import read
from inspector.machines import hardware
from inspector.prediction.predicted import predicted
from inspector.records.snapshot import KernelCalls, MatmulFlops, OpenChoice, Program, Work, WorkPart
from inspector.sharding.traffic import wire_bytes_of_run
from inspector.text.errors import InvalidInput
from inspector.tracing.leaves import mesh_record
from tests.figures import samples

MESH = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",), axis_types=(AxisType.Auto,))
RECORD = mesh_record(MESH)
V5E = hardware.chip("v5e")


def compiled(function, *more) -> Program:
    x = jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(MESH, P("x")))
    text = jax.jit(function).lower(x, *more).compile().as_text()
    return read(text, RECORD).added_to(Program("step", stage="compiled"))


def body(x):
    return jnp.tanh(x @ x)  # gathers x


def until(x, limit):
    return jax.lax.while_loop(lambda pair: pair[0] < limit, lambda pair: (pair[0] + 1, body(pair[1])), (0, x))


def fixed(times):
    return lambda x: jax.lax.fori_loop(0, times, lambda _, value: body(value), x)


LIMIT = jax.ShapeDtypeStruct((), "int32")


@pytest.mark.parametrize("times", [3, 7])
def test_a_stated_trip_count_counts_as_a_known_one(times: int) -> None:
    unknown = compiled(until, LIMIT)
    (loop,) = unknown.open_choices
    assert unknown.work.flops is None and wire_bytes_of_run(*unknown.collectives) is None
    for name in (loop.name, loop.source):
        stated, known = assume(unknown, Assumed({name: times})), compiled(fixed(times))
        assert not stated.open_choices and loop.label in stated.assumptions[0]
        assert wire_bytes_of_run(*stated.collectives) == wire_bytes_of_run(*known.collectives) > 0
        assert stated.work.matmul == known.work.matmul
        assert stated.work.flops == pytest.approx(known.work.flops, rel=0.02)
        assert stated.work.bytes_accessed == pytest.approx(known.work.bytes_accessed, rel=0.05)


def sometimes(x, step):
    def save(value):
        return value + body(value)

    def one(number, value):
        return jax.lax.cond(number % step == 0, save, lambda v: v, value)

    return jax.lax.fori_loop(0, 30, one, x)


def test_a_stated_share_of_a_branch() -> None:
    result = compiled(sometimes, LIMIT)
    inside = [collective for collective in result.collectives if collective.conditional]
    assert inside and all(one.executions == 30 for one in inside)
    (label,) = {choice.label for choice in result.open_choices}
    stated = assume(result, Assumed(shares={label: 0.1}))
    assert [
        collective.executions for collective in stated.collectives if collective.name == inside[0].name
    ] == [3]
    assert not any(collective.conditional for collective in stated.collectives)
    # A share without a whole number of executions: the number above it is a bound.
    part = assume(result, Assumed(shares={label: 0.11})).collectives
    assert [(one.executions, one.conditional) for one in part if one.name == inside[0].name] == [(4, True)]
    # The product of 30 and a share is not exact in floating point.
    for whole in range(1, 30):
        (most,) = (
            (one.executions, one.conditional)
            for one in assume(result, Assumed(shares={label: whole / 30})).collectives
            if one.name == inside[0].name
        )
        assert most == (whole, False)
    nothing = least(result)
    assert sum(collective.executions for collective in nothing.collectives) == 0
    # The traffic of a program with open branches is an upper bound.
    on = samples.snapshot(RECORD, ())
    both = [assess(replace(on, programs=(program,))).traffic for program in (result, stated)]
    assert both[0].at_most and both[1].at_most is None
    assert both[0].bytes == 10 * both[1].bytes


def test_a_step_is_linear_in_the_trip_count_and_its_bound_is_below() -> None:
    unknown = compiled(until, LIMIT)
    (loop,) = unknown.open_choices
    bound = predicted(unknown, RECORD, V5E, platform="tpu")
    assert bound.at_least and bound.interval is None
    times = [
        predicted(assume(unknown, Assumed({loop.name: number})), RECORD, V5E, platform="tpu").seconds
        for number in (1, 11, 21)
    ]
    assert bound.seconds <= times[0] < times[1] < times[2]
    assert times[2] - times[1] == pytest.approx(times[1] - times[0], rel=0.02)
    # What a compiler for CPUs made says nothing about the least time on a TPU.
    assert predicted(unknown, RECORD, V5E).seconds is None
    ((label, each),) = bound.iterations
    assert label == loop.label and each == pytest.approx((times[1] - times[0]) / 10, rel=0.3)


@pytest.mark.parametrize(
    "assumed",
    [Assumed({"while.99": 3}), Assumed(shares={"x": 0.5}), Assumed(kernels={"k": Cost(1.0, 1)})],
)
def test_an_unknown_name_lists_those_that_exist(assumed: Assumed) -> None:
    snapshot = replace(samples.snapshot(), programs=(compiled(until, LIMIT),))
    with pytest.raises(InvalidInput, match="must be one whose"):
        with_assumed([snapshot], assumed)


def test_the_cost_of_a_kernel_in_a_loop_counts_as_often_as_the_loop_runs() -> None:
    """Its own bytes replace those of its operands. Its name, target and line are known."""
    inside = ("while.1",)
    parts = (WorkPart((), 1e9, (MatmulFlops("f32", 1e9),), 1e6), WorkPart(inside, 0.0, (), 3e6))
    calls = KernelCalls("mine", "tpu_custom_call", "a.py:3", "f32", inside, 2.0, 3e6)
    work = Work(None, None, None, ("mine",), parts=parts, kernels=(calls,))
    loop = OpenChoice("while.1", "loop")
    program = Program("step", stage="partitioned", work=work, open_choices=(loop,))
    for name in ("mine", "tpu_custom_call", "a.py:3"):
        stated = assume(program, Assumed({"while.1": 10}, kernels={name: Cost(5e8, 1_000)})).work
        assert (stated.flops, stated.matmul) == (1e9 + 10 * 2 * 5e8, (MatmulFlops("f32", 11e9),))
        assert stated.bytes_accessed == 1e6 + 10 * 2 * 1_000
        assert stated.not_counted == () and stated.kernels == ()
    assert assume(program, Assumed(kernels={"other": Cost(1.0, 1)})) == program


POSITIONS = 12


def generated(condition):
    """Generate tokens until all are done, or until a condition of the position and of data ends it."""

    def decode(x):
        def going_on(state):
            return condition(state[0], jnp.any(state[1] > 0.5))

        return jax.lax.while_loop(going_on, lambda state: (state[0] + 1, body(state[1])), (jnp.int32(2), x))

    return decode


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        (lambda position, data: (position < POSITIONS) & data, POSITIONS - 2),
        (lambda position, data: data & ~(position >= POSITIONS), POSITIONS - 2),
        (lambda position, data: data & (position < POSITIONS) & (position != 5), 3),
        (lambda position, data: data | (position < POSITIONS), None),
        (lambda position, data: data, None),
    ],
)
def test_the_condition_of_a_loop_limits_its_iterations(condition, most: int | None) -> None:
    program = compiled(generated(condition))
    (loop,) = program.open_choices
    assert loop.most == most
    bound = predicted(program, RECORD, V5E, platform="tpu")
    (iteration,) = bound.each_iteration
    assert iteration.most == most and bound.iterations == ((loop.label, iteration.seconds),)
    assert iteration.low < iteration.seconds < iteration.high
    assert (bound.most is None) == (most is None)
    if most is not None:
        once, longest = (
            predicted(assume(program, Assumed({loop.name: trips})), RECORD, V5E, platform="tpu")
            for trips in (1, most)
        )
        assert bound.seconds < longest.seconds < longest.high
        # The bound holds all iterations, each as long as it is said to be at most.
        assert bound.most == max(longest.high, once.high + (most - 1) * iteration.high)
