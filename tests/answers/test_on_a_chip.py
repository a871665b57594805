"""What a chip changes for a program compiled for CPUs: not its findings, nor that it has a program."""

from __future__ import annotations

from dataclasses import replace

import jax
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import audit
from inspector.answers import memory
from inspector.assessment import assess
from inspector.machines import hardware
from inspector.machines.hardware import hbm_time
from inspector.prediction import memory as needs
from inspector.prediction.evidence import for_chip
from inspector.prediction.predicted import predicted_in
from inspector.prediction.step_model import modelled
from inspector.recording.capture import capture
from inspector.records.snapshot import Snapshot, Source
from inspector.text.formatting import bytes_text

V5E = hardware.CHIPS["v5e"]


@pytest.fixture(scope="module")
def sorted_values() -> Snapshot:
    """A program whose sort runs on every device, with the record of it after XLA's partitioner."""
    mesh = jax.make_mesh((8,), ("n",), axis_types=(AxisType.Auto,))
    values = jax.device_put(jnp.ones(1 << 16), NamedSharding(mesh, P("n")))
    compiled = jax.jit(lambda values: jnp.sort(values)[:4]).lower(values).compile()
    snapshot = capture({"values": values}, programs={"smallest": compiled})
    (program,) = snapshot.programs
    assert program.work is not None
    partitioned = replace(
        program, stage="propagated", platform="tpu", work=replace(program.work, repeated=None)
    )
    return audit.audited(replace(snapshot, partitioned=(partitioned,)))


def test_a_chip_keeps_the_findings_of_the_audit(sorted_values: Snapshot) -> None:
    codes = [finding.code for finding in sorted_values.findings]
    assert "repeated-work" in codes
    on_chip = assess(sorted_values, V5E)
    assert on_chip.basis == "partitioned"
    assert on_chip.findings == assess(sorted_values).findings


def test_a_partitioned_program_is_not_missing(sorted_values: Snapshot) -> None:
    on_chip = for_chip(sorted_values, V5E)
    (estimated,) = memory.programs(on_chip, V5E)
    need = needs.fit(on_chip, V5E).need
    # The interval of the estimate is that of the verdict above it.
    assert need is not None
    assert f"between {bytes_text(need.low)} and {bytes_text(need.high)}" in str(estimated)
    (program,) = on_chip.programs
    unknown = replace(on_chip, programs=(replace(program, memory_use=None),))
    assert "contains arrays but no program" not in str(memory.programs(unknown, V5E))
    nothing = Snapshot(Source("capture", None, "2026-01-01"), None, None, ())
    assert "contains arrays but no program" in str(memory.programs(nothing, V5E))


def test_a_schedule_above_the_compilers_total_says_so(sorted_values: Snapshot) -> None:
    (breakdown,) = needs.breakdowns(sorted_values)
    assert breakdown.use is not None and breakdown.total is not None
    for factor, above in ((0.1, False), (10, True)):
        points = replace(
            breakdown.use,
            groups=tuple(
                replace(group, bytes=tuple(round(size * factor) for size in group.bytes))
                for group in breakdown.use.groups
            ),
        )
        # Without a figure of the compiler, the peak is that of the schedule.
        figures = replace(breakdown, peak=points.peak_bytes, use=points)
        assert (points.peak_bytes > breakdown.total) == above
        assert ("share memory" in str(memory.over_program(figures, None))) == above


def test_an_estimate_has_the_arrays_of_the_programs_only(sorted_values: Snapshot) -> None:
    """A large array that no program takes is in memory, but no program needs it."""
    (values,) = sorted_values.arrays
    other = replace(values, path="other", bytes=1 << 30, bytes_per_device=1 << 30)
    beside = replace(sorted_values, arrays=(values, other))
    assert needs.fit(beside, V5E) == needs.fit(sorted_values, V5E)


def test_a_step_has_one_lower_bound(sorted_values: Snapshot) -> None:
    on_chip = for_chip(sorted_values, V5E)
    (program,) = on_chip.programs
    assert program.work is not None and on_chip.mesh is not None
    # All that it sends takes less than its arguments and results.
    work = replace(program.work, boundary_bytes=1e12, fused_bytes=2e12)
    alone = replace(on_chip, programs=(replace(program, work=work, collectives=()),))
    bound = modelled(alone.programs[0], alone.mesh, V5E).lower_seconds
    assert bound == hbm_time(1e12, V5E).seconds
    assert predicted_in(alone, alone.programs[0], V5E).least == bound


def test_members_of_an_ensemble_need_no_sharded_input() -> None:
    mesh = jax.make_mesh((8,), ("member",), axis_types=(AxisType.Auto,))
    members = jax.device_put(jnp.ones((8, 64, 64)), NamedSharding(mesh, P("member")))
    inputs = jax.device_put(jnp.ones((256, 64)), NamedSharding(mesh, P()))

    def loss(params, x):
        return jnp.tanh(x @ params).mean()

    def alone(params, x):
        return jax.vmap(jax.grad(loss), (0, None))(params, x)

    def together(params, x):
        return jax.tree.map(lambda gradients: gradients.sum(0), alone(params, x))

    for step, sends in ((alone, False), (together, True)):
        compiled = jax.jit(step).lower(members, inputs).compile()
        snapshot = capture({"params": members, "x": inputs}, programs={"train_step": compiled})
        (program,) = snapshot.programs
        assert bool(program.collectives) == sends
        arrays = tuple(
            replace(array, group="batch") if array.path == "x" else replace(array, group="params")
            for array in snapshot.arrays
        )
        codes = [finding.code for finding in audit.audit(replace(snapshot, arrays=arrays))]
        assert ("batch-not-sharded" in codes) == sends
