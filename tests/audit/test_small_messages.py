"""Small collective-permutes, counted by what the program does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import audit
from inspector.answers import screen
from inspector.answers.catalogue import Subject
from inspector.machines import hardware
from inspector.recording.inspected import inspect

pytestmark = pytest.mark.close_to_jax

MESH = Mesh(np.array(jax.devices()[:4]), ("x",), axis_types=(AxisType.Auto,))
FORWARD = [(n, n + 1) for n in range(3)]
BACKWARD = [(n + 1, n) for n in range(3)]


def stencil(steps: int, rows: int) -> Any:
    """Return a heat equation that exchanges rows with both neighbors for as many steps."""

    def body(u: Any) -> Any:
        def exchange(u: Any, _: Any) -> Any:
            above = jax.lax.ppermute(u[-rows:], "x", FORWARD)
            below = jax.lax.ppermute(u[:rows], "x", BACKWARD)
            u = jnp.concatenate([above, u, below])
            for _ in range(rows):
                u = (u[:-2] + u[2:]) / 2
            return u, None

        return jax.lax.scan(exchange, u, None, length=steps // rows)[0]

    return jax.jit(jax.shard_map(body, mesh=MESH, in_specs=P("x"), out_specs=P("x")))


@pytest.mark.parametrize(
    ("steps", "rows", "columns", "messages"),
    [
        (16, 1, 512, 32),
        (16, 4, 512, None),  # 8 messages of 4 rows
        (4, 1, 512, None),
        (16, 1, 2**16, None),  # 256 KiB each
    ],
)
def test_messages_of_one_row(steps: int, rows: int, columns: int, messages: int | None) -> None:
    on = NamedSharding(MESH, P("x"))
    u = jax.ShapeDtypeStruct((64, columns), "float32", sharding=on)
    snapshot = inspect(stencil(steps, rows), u)
    (program,) = snapshot.programs
    sent = sum(c.executions for c in program.collectives if c.op == "collective-permute")
    assert sent == 2 * steps // rows
    findings = [finding for finding in snapshot.findings if finding.code == "small-messages"]
    assert len(findings) == (messages is not None)
    if messages is not None:
        assert f" {messages} times " in findings[0].message
        # The two permutes are in two lines, so the line is only that of the largest.
        lines = {c.source for c in program.collectives if c.op == "collective-permute"}
        assert len(lines) == 2 and f", the largest at {findings[0].source}." in findings[0].message


@pytest.mark.parametrize("shift", [1, 2])
def test_a_count_is_that_of_executions_and_not_of_messages(shift: int) -> None:
    """Half of the devices send in each permute, and to the next device only if it shifts by one."""

    def body(u: Any) -> Any:
        def exchange(u: Any, _: Any) -> Any:
            for first in range(2):
                u = u + jax.lax.ppermute(u, "x", [(n, (n + shift) % 4) for n in (first, first + 2)])
            return u, None

        return jax.lax.scan(exchange, u, None, length=10)[0]

    u = jax.ShapeDtypeStruct((64, 512), "float32", sharding=NamedSharding(MESH, P("x")))
    snapshot = inspect(jax.jit(jax.shard_map(body, mesh=MESH, in_specs=P("x"), out_specs=P("x"))), u)
    sends = [one.source_target_pairs for one in snapshot.programs[0].collectives]
    assert sorted(len(pairs) for pairs in sends) == [2, 2]  # so each device sends 10 times, not 20
    (finding,) = [finding for finding in snapshot.findings if finding.code == "small-messages"]
    assert " 20 times " in finding.message and "neighbors" not in finding.message


@pytest.mark.parametrize(("count", "product", "noted"), [(40, 64, True), (8, 64, False), (40, 2**15, False)])
def test_messages_outside_of_a_loop_are_counted_too(count: int, product: int, noted: bool) -> None:
    """They are noted if they are many, and cost at least 1% of what the program sends anyway."""

    def body(x: Any, w: Any) -> Any:
        for shift in range(count):
            x = x + jax.lax.ppermute(x * shift, "x", [(n, (n + 1 + shift) % 4) for n in range(4)])
        return x, jax.lax.all_gather(w, "x", axis=0, tiled=True)

    step = jax.jit(
        jax.shard_map(body, mesh=MESH, in_specs=(P("x"), P("x")), out_specs=(P("x"), P()), check_vma=False)
    )
    on = NamedSharding(MESH, P("x"))
    arrays = [jax.ShapeDtypeStruct(shape, "float32", sharding=on) for shape in ((8, 4), (product, product))]
    snapshot = inspect(step, *arrays)
    assert any(finding.code == "small-messages" for finding in snapshot.findings) == noted


def test_messages_that_take_most_of_a_step_are_on_the_first_screen() -> None:
    """Neither on an unknown chip nor on one are they among the findings that are not shown."""
    u = jax.ShapeDtypeStruct((64, 512), "float32", sharding=NamedSharding(MESH, P("x")))
    snapshot = inspect(stencil(16, 1), u)
    (finding,) = [finding for finding in snapshot.findings if finding.code == "small-messages"]
    assert finding.bytes is None and finding.wire_bytes is None
    for chip in (None, hardware.chip("v5e")):
        assert finding in screen.matter(snapshot.findings, Subject.of(snapshot, chip))


def test_a_program_that_was_compiled_again_is_not_a_second_finding() -> None:
    u = jax.ShapeDtypeStruct((64, 512), "float32", sharding=NamedSharding(MESH, P("x")))
    snapshot = inspect(stencil(16, 1), u)
    (program,) = snapshot.programs
    again = replace(program, name="again")
    other = replace(again, fingerprint="of other instructions")
    counts = [
        sum(finding.code == "small-messages" for finding in audit.audit(replace(snapshot, programs=both)))
        for both in ((program, again), (program, other))
    ]
    assert counts == [1, 2]
