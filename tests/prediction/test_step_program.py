"""The program whose figures are on the first screen."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from inspector.prediction.step_program import are_before_compile, initializers, step_program
from inspector.recording.inspected import inspect
from inspector.records.snapshot import Memory, Program, ProgramArray


def test_flops_before_a_compile_count_if_they_are_those_of_all_programs() -> None:
    value = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    (small,) = inspect(jax.jit(lambda x: x @ x), value).programs
    snapshot = inspect(jax.jit(lambda x: x @ x @ x @ x), value)
    (large,) = snapshot.programs
    small, large = replace(small, name="small"), replace(large, name="large")
    both = replace(snapshot, programs=(small, large), source=replace(snapshot.source, file="job"))
    # A compiler can remove what is wasted, so each order is possible.
    swapped = tuple(
        replace(one, flops_per_device=other.flops_per_device)
        for one, other in ((small, large), (large, small))
    )
    known, partly = (replace(both, partitioned=tuple(given)) for given in (swapped, swapped[:1]))
    assert step_program(both) == large and not are_before_compile(both)
    assert step_program(known) == small and are_before_compile(known)
    assert step_program(partly) == large and not are_before_compile(partly)


def test_a_program_that_only_makes_the_state_of_others_is_no_step() -> None:
    def program(name: str, flops: float, *shardings: ProgramArray) -> Program:
        return Program(name, flops_per_device=flops, shardings=shardings)

    value = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    snapshot = inspect(jax.jit(lambda x: x @ x), value)
    weight, data = (
        ProgramArray("input", path, None, None, None, use=use)
        for path, use in (("w", "weight"), ("x", "data"))
    )
    returned = ProgramArray("output", "w", None, None, None)
    create, step = program("create", 9.0, returned), program("step", 1.0, weight, data, returned)
    # A function of data, such as the labels of a teacher, can run in each step.
    label = program("label", 9.0, data, returned)
    made = replace(snapshot, programs=(create, step), source=replace(snapshot.source, file="job"))
    assert step_program(made) == step and initializers(made) == (create,)
    assert step_program(replace(made, programs=(label, step))) == label
    # Roles are unknown. The step replaces what another program makes from a key.
    state, replaced = (ProgramArray(role, "s", None, None, None) for role in ("input", "output"))
    advance = program("advance", 1.0, state, replaced)
    for size, also, expected in ((8, replaced, 1.0), (4096, replaced, 9.0), (8, returned, 9.0)):
        start = replace(program("start", 9.0, also), memory=Memory(arguments=size))
        assert step_program(replace(made, programs=(start, advance))).flops_per_device == expected
    # An optimizer whose moments are unknown takes the weights that it returns.
    update = program("update", 9.0, ProgramArray("input", "w", None, None, None), returned)
    assert step_program(replace(made, programs=(update, step))) == update
    alone = replace(made, programs=(create,))
    assert step_program(alone) == create and initializers(alone) == ()
