"""The program whose figures are on the first screen."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from inspector.prediction.step_program import are_before_compile, step_program
from inspector.recording.inspected import inspect


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
