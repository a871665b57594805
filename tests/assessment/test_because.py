"""The parts of a predicted step and of its memory add up, and the reason is the largest of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.assessment import assess, because, latency_text
from inspector.jobs.inspection import Inspection
from inspector.machines import hardware
from inspector.machines.mesh_links import bytes_between_slices
from inspector.records import typed_json
from inspector.records.assessment import Assessment, MemoryNeed, Step, StepPart
from inspector.records.snapshot import Collective, Mesh, MeshAxis, ScheduledOperation, ShardingError, Snapshot
from inspector.text.formatting import bytes_text, seconds_text
from tests.compare.glances import compiled, planned, sent
from tests.prediction.schedules import long_step, schedule

SMALL = {
    "layers": "2", "embed": "64", "mlp": "128", "heads": "4", "kv_heads": "4", "head_dim": "16",
    "vocab": "128", "seq": "32", "scan": "true",
}  # fmt: skip
TRANSFORMER = SMALL | {
    "model": "transformer", "mesh": "2x4", "axes": "fsdp,tensor",
    "rules": "batch=fsdp,embed=fsdp,heads=tensor,mlp=tensor",
}  # fmt: skip
LAYOUTS: dict[str, tuple[dict[str, str], str | None]] = {
    "mlp, no chip": ({"depth": "64", "target": "plan"}, None),
    "mlp, chosen chip": ({"depth": "64", "target": "plan"}, "v5p"),
    "transformer, v5e": (TRANSFORMER | {"target": "tpu:v5e:2x4"}, None),
    "transformer, h100": (TRANSFORMER | {"target": "gpu:h100:8"}, None),
    "experts, v5e": (
        TRANSFORMER | {"model": "moe", "target": "tpu:v5e:2x4", "rules": "batch=fsdp,expert=tensor"},
        None,
    ),
    "two slices, one axis": (
        TRANSFORMER
        | {"target": "tpu:v5e:2x4*2", "mesh": "16", "axes": "fsdp", "batch": "16"}
        | {"rules": "batch=fsdp,embed=fsdp"},
        None,
    ),
    "two slices, two axes": (
        TRANSFORMER
        | {"target": "tpu:v5e:2x4*2", "axes": "replica,fsdp", "mesh": "2x8", "batch": "16"}
        | {"rules": "batch=replica+fsdp,embed=fsdp"},
        None,
    ),
}


@pytest.fixture(params=LAYOUTS)
def case(request: pytest.FixtureRequest, service: Inspection) -> tuple[Snapshot, str | None]:
    fields, chip = LAYOUTS[request.param]
    layout = layouts.parse(fields).unwrap()
    service.state(layout).answer()
    return service.with_programs(service.plan(layout), layout), chip


def check(found: Assessment) -> None:
    """Check that the parts add up, and that the reason names the largest."""
    step, need, why = found.step, found.memory, because(found)
    if need is not None:
        assert sum(need.parts.values()) == need.peak_bytes
    if found.traffic is not None:
        for axes, size in found.traffic.between_slices.items():
            assert 0 < size <= found.traffic.by_axes[axes]
    if step is None or step.kind == "measured":
        assert step is None or step.parts == ()
        return
    assert step.parts and math.fsum(part.seconds for part in step.parts) == step.seconds
    largest = max(step.parts, key=lambda part: part.seconds)
    if need is None or need.fits is not False:
        assert seconds_text(largest.seconds) in why
        for axis in (largest.axes or "").split("+"):
            assert f"`{axis}`" in why or not axis
    for part in step.parts:
        if part.bytes is not None and found.traffic is not None:
            between = found.traffic.between_slices.get(part.axes, 0)
            own = between if part.kind == "between" else found.traffic.by_axes[part.axes] - between
            assert part.bytes == own
    assert typed_json.decode(Assessment, typed_json.encode(found)) == found


def test_the_parts_of_a_layout_add_up(case: tuple[Snapshot, str | None]) -> None:
    snapshot, chip = case
    assessment = assess(snapshot, None if chip is None else hardware.chip(chip))
    check(assessment)
    assert bool(because(assessment)) == bool(assessment.step is not None and assessment.step.parts)
    if "slice" in snapshot.source.kind or snapshot.mesh.slice_index:
        assert any(part.kind == "between" for part in assessment.step.parts)
        assert assessment.traffic.between_slices


def test_the_parts_of_a_compiled_step_add_up() -> None:
    gather = Collective(
        op="all-gather", asynchronous=False, name="all-gather", computation="main", executions=1,
        conditional=False, mesh_axes=("data",), group_size=4, groups=1, payload_bytes=10**8,
        wire_bytes_per_device=75 * 10**6, op_name=None, source=None,
    )  # fmt: skip
    step = long_step()
    for collectives, more in (((), ()), ((gather,), (ScheduledOperation("g", "all-gather", collective=0),))):
        operations = (*step.programs[0].schedule.by_name["main"].operations[:50], *more)
        program = replace(step.programs[0], schedule=schedule(*operations), collectives=collectives)
        assessment = assess(replace(step, programs=(program,)), hardware.chip("v5e"))
        check(assessment)
        assert any(part.axes == "data" for part in assessment.step.parts) == bool(collectives)


def test_measured_steps_have_no_parts() -> None:
    check(assess(compiled(1)))
    assert assess(planned(sent(("data",), 1000))).step is None


def test_a_layout_that_jax_rejects_sends_nothing() -> None:
    allowed = planned(sent(("data",), 1000))
    assert assess(allowed, hardware.chip("v5e")).traffic is not None
    refused = replace(allowed.programs[0], sharding_error=ShardingError("no", "ShardingTypeError"))
    assessment = assess(replace(allowed, programs=(refused,)), hardware.chip("v5e"))
    assert assessment.rejected and assessment.traffic is assessment.step is assessment.known_traffic is None
    assert assessment.rejected in because(assessment)


@pytest.mark.parametrize("op", ["all-gather", "all-reduce", "reduce-scatter", "all-to-all"])
@pytest.mark.parametrize(("slices", "members"), [(2, 1), (2, 4), (4, 2)])
def test_bytes_between_slices_are_those_of_a_hierarchical_collective(
    op: str, slices: int, members: int
) -> None:
    size, payload = slices * members, 48 * 10**6
    index = tuple(place // members for place in range(size))
    mesh = Mesh((MeshAxis("fsdp", size),), tuple(range(size)), slice_index=index)
    rounds = 2 if op == "all-reduce" else 1
    collective = Collective(
        op=op, asynchronous=False, name=op, computation="main", executions=3, conditional=False,
        mesh_axes=("fsdp",), group_size=size, groups=1, payload_bytes=payload,
        wire_bytes_per_device=rounds * payload * (size - 1) // size, op_name=None, source=None,
    )  # fmt: skip
    # Counted over all devices: a gather of one slice's share over the others, divided among its members.
    share = payload * (slices - 1) / slices
    expected = 3 * rounds * (share if op == "all-to-all" else share / members)
    assert bytes_between_slices([collective], mesh)["fsdp"] == pytest.approx(expected, rel=1e-6)
    inside = replace(collective, group_size=members, groups=slices)
    assert members in (1, slices) or bytes_between_slices([inside], mesh) == {}
    across = replace(collective, group_size=slices, wire_bytes_per_device=1000, network="dcn")
    assert bytes_between_slices([across], mesh) == {"fsdp": 3000}
    result = replace(mesh, slice_index=(0,) * size)
    assert bytes_between_slices([collective], result) == {}


def assessed(need: MemoryNeed | None, *parts: StepPart) -> Assessment:
    seconds = math.fsum(part.seconds for part in parts)
    step = Step(seconds, None, None, "predicted", parts=parts) if parts else None
    return Assessment("v5e", 8, "partitioned", "train_step", step, need, None, None, None)


def test_memory_that_does_not_fit_is_the_reason() -> None:
    gib = 2**30
    need = MemoryNeed(
        60 * gib, 50 * gib, 70 * gib, 16 * gib, False, None, {"state": 40 * gib, "temporaries": 20 * gib}
    )
    why = because(assessed(need, StepPart("compute", 1.0)))
    for size in (40 * gib, 60 * gib, 16 * gib):
        assert bytes_text(size) in why
    fits = replace(need, peak_bytes=8 * gib, fits=True)
    assert "1.00 s" in because(assessed(fits, StepPart("compute", 1.0)))


def test_the_rate_is_bytes_over_seconds() -> None:
    why = because(assessed(None, StepPart("compute", 1.0), StepPart("between", 2.0, "fsdp", 0.5, 5 * 10**9)))
    assert "2.00 GB/s" in why and "2.50 s" in why and "2.00 s" in why and "3.00 s" in why
    assert because(assessed(None)) == ""


def test_many_small_messages_have_latency_as_their_reason() -> None:
    """4,000 exchanges of 2 KiB with neighbors: 5.8 µs each, of which the bytes take 0.05 µs."""
    latency, sending = 4000 * 5.8e-6, 4000 * 2048 / 4.5e10
    part = StepPart("inside", latency + sending, "x", 0.0, 4000 * 2048, 4000, latency)
    assert part.is_latency
    why = because(assessed(None, part, StepPart("compute", 1e-3)))
    for named in ("`x`", "latency", "4,000", "2.0 KiB", seconds_text(latency + sending)):
        assert named in why
    assert seconds_text(latency) not in why  # the model's own number is no fact of the program
    assert "9,000" in latency_text(part, 9000) and "4,000" in latency_text(part, 9000)
    # Whether fewer of them can send the same is not known: one can need the result of another.
    assert "larger" not in why
    large = replace(part, messages=4, latency=4 * 5.8e-6)
    assert not large.is_latency
    assert "latency" not in because(assessed(None, large, StepPart("compute", 1e-3)))


@pytest.mark.parametrize(("share", "named"), [(0.79, False), (0.81, True), (1.0, True)])
@pytest.mark.parametrize(
    ("longest", "second"),
    [
        (StepPart("memory", 1.0), StepPart("between", 1.0, "replica")),
        (StepPart("between", 1.0, "replica", bytes=10**9), StepPart("memory", 1.0)),
        (StepPart("compute", 1.0), StepPart("inside", 1.0, None)),
    ],
)
def test_a_second_part_that_is_almost_as_long_is_named(
    longest: StepPart, second: StepPart, share: float, named: bool
) -> None:
    second = replace(second, seconds=share * longest.seconds)
    rest = StepPart("rest", 0.1)
    seconds = longest.seconds + second.seconds + rest.seconds
    step = Step(seconds, None, None, "predicted", parts=(second, rest, longest))
    why = because(Assessment("v5e", 32, "partitioned", "train_step", step, None, None, None, None))
    assert why.endswith(".") and seconds_text(longest.seconds) in why
    assert (why.count(seconds_text(second.seconds)) > (share == 1.0)) == named
    assert (f"{round(100 * second.seconds / seconds)}%." in why) == named


def test_products_that_take_longest_are_the_reason_before_a_compile() -> None:
    parts = (StepPart("compute", 1.0), StepPart("memory", 0.7))
    step = Step(1.7, None, None, "predicted", parts=parts)
    why = because(Assessment("v5p", 64, "partitioned", "train_step", step, None, None, None, None))
    assert why.startswith("Matrix products take") and seconds_text(1.0) in why
