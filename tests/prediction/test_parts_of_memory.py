"""The parts of the memory of a device in the verdict, against the figures of JAX's compiled program."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from inspector.assessment import assess
from inspector.recording.inspected import inspect
from inspector.records.snapshot import GroupUse

TABLE = np.arange(512 * 512, dtype=np.float32).reshape(512, 512)


def step(w: jax.Array, x: jax.Array) -> jax.Array:
    return w - jnp.tanh(x @ w) @ jnp.asarray(TABLE)


def test_constants_are_no_temporaries() -> None:
    value = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    compiled = jax.jit(step).lower(value, value).compile().memory_analysis()
    need = assess(inspect(jax.jit(step), value, value)).memory
    assert need is not None and compiled is not None
    assert need.parts["constants"] == TABLE.nbytes
    computed = compiled.output_size_in_bytes + compiled.temp_size_in_bytes
    assert need.parts.get("temporaries", 0) <= computed
    assert need.parts["state"] == compiled.argument_size_in_bytes


def test_buffers_that_values_share_are_taken_from_computed_values_alone() -> None:
    value = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    snapshot = inspect(jax.jit(step), value, value)
    (program,) = snapshot.programs
    use = program.memory_use
    assert use is not None and use.points
    # Roles that are known later come last.
    groups = tuple(sorted(use.groups, key=lambda group: group.group in ("params", "other", "batch")))
    groups = tuple(
        GroupUse(one.group, tuple(size + 4096 for size in one.bytes)) if one.group == "output" else one
        for one in groups
    )
    changed = replace(snapshot, programs=(replace(program, memory_use=replace(use, groups=groups)),))
    before, after = assess(snapshot).memory, assess(changed).memory
    assert before is not None and after is not None and after.peak_bytes == before.peak_bytes
    assert after.parts["state"] == before.parts["state"]
