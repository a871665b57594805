"""The assessment against figures counted another way, for every kind of Snapshot."""

from __future__ import annotations

import gc
import json
from dataclasses import replace

import pytest

from inspector import audit
from inspector.assessment import assess
from inspector.layout.plan import INDIVISIBLE
from inspector.machines import hardware, out_of_memory
from inspector.prediction.predicted import predicted
from inspector.records import typed_json
from inspector.records.assessment import Assessment
from inspector.records.snapshot import Collective, Finding, Program, Seconds, ShardingError, Snapshot, Source
from inspector.sharding.totals import state_totals
from inspector.text.program_names import run_of
from tests.compare.glances import compiled, planned, sent
from tests.figures import samples

V5E, V5P = hardware.chip("v5e"), hardware.chip("v5p")
KEYS = [
    *("chip", "devices", "basis", "program", "step", "memory", "traffic"),
    *("state_bytes_per_device", "findings"),
]


def ran(steps: tuple[float, ...], kind: str = "cpu") -> Snapshot:
    program = Program("train_step", collectives=(), seconds=Seconds(steps=steps), stage="run")
    source = Source(kind, kind, "2026-01-01T00:00:00Z")
    return replace(samples.snapshot(), source=source, programs=(program,))


def test_the_json_form_has_the_keys_of_the_contract() -> None:
    for snapshot in (planned(sent(("data",), 8)), compiled(1), ran((1.0, 2.0)), samples.snapshot()):
        plain = typed_json.encode(assess(snapshot, V5E))
        assert list(plain)[: len(KEYS)] == KEYS
        assert typed_json.decode(Assessment, json.loads(json.dumps(plain))) == assess(snapshot, V5E)
        assert plain["basis"] in ("measured", "compiled", "partitioned", "planned")


def test_the_chip_is_the_own_one_of_a_snapshot() -> None:
    assert assess(compiled(1), V5P).chip == "v5e"
    assert assess(planned(), V5P).chip == "v5p"
    assert assess(planned()).chip is None


def test_a_plan_has_the_prediction_of_its_partitioned_step() -> None:
    snapshot = planned(sent(("data",), 1000), sent(("model",), 10, 5))
    own = assess(snapshot, V5E)
    expected = predicted(snapshot.programs[0], snapshot.mesh, V5E)
    assert own.basis == "partitioned" and own.step.kind == "predicted"
    assert (own.step.seconds, own.step.low, own.step.high) == (
        *(expected.seconds, expected.low, expected.high),
    )
    assert own.traffic.by_axes == {"data": 3000, "model": 50} and own.traffic.bytes == 3050
    assert own.traffic.largest == "data"
    assert own.state_bytes_per_device == state_totals(snapshot).per_device
    without = assess(snapshot)
    assert without.step is None and without.unknown_step and without.memory.fits is None
    assert without.traffic == own.traffic


def test_measured_steps_count_on_their_own_machine_only() -> None:
    steps = tuple(float(n) for n in range(1, 12))
    own = assess(ran(steps))
    assert own.basis == "measured"
    assert (own.step.kind, own.step.seconds, own.step.low, own.step.high) == ("measured", 6, 2, 10)
    modelled = assess(ran(steps), V5E)
    assert modelled.step is None or modelled.step.kind == "predicted"
    (single,) = (assess(ran((3.0,))).step,)
    assert (single.seconds, single.low, single.high) == (3.0, None, None)


def test_unknown_traffic_has_a_reason_and_its_known_part() -> None:
    own = assess(planned(sent(("data",), 100), sent(("model",), 8, None)))
    assert own.traffic is None and own.unknown_traffic
    assert own.known_traffic.bytes == 300
    assert assess(planned()).traffic.by_axes == {}


def test_what_does_not_fit_has_the_figures_of_the_compiler() -> None:
    short = out_of_memory.Shortage(20 * 2**30, 15 * 2**30, "HBM", "")
    finding = out_of_memory.finding("train_step", "tpu:v5e:2x4", short)
    own = assess(replace(compiled(1), findings=(finding,)))
    assert own.memory.fits is False and own.memory.peak_bytes == 20 * 2**30
    assert own.memory.capacity_bytes == 15 * 2**30 and own.memory.program == "train_step"


def test_a_rejected_layout_names_the_reason() -> None:
    error = Finding("error", INDIVISIBLE, "batch of size 2 is not divisible by 4")
    assert assess(replace(planned(), findings=(error,))).rejected == error.message
    refused = ShardingError("ShardingTypeError", "contracting dimensions are sharded differently")
    program = Program("train_step", stage="propagated", sharding_error=refused)
    own = assess(replace(planned(), programs=(program,)))
    assert own.rejected and refused.message in own.rejected


def test_findings_are_those_of_the_audit() -> None:
    snapshot = replace(samples.snapshot(), findings=(Finding("note", "own", "a note"),))
    listed = audit.merged_by_logical_axis(audit.audited(snapshot).findings)
    counts = assess(snapshot).findings
    for level in ("error", "warning", "note"):
        assert getattr(counts, level) == sum(finding.level == level for finding in listed)
    assert assess(audit.audited(snapshot)).findings == counts


@pytest.mark.nightly
def test_an_assessment_is_computed_once_for_each_snapshot() -> None:
    snapshot = planned(sent(("data",), 8))
    assert assess(snapshot, V5E) is assess(snapshot, V5E)
    assert assess(snapshot, V5P).chip == "v5p"
    for size in range(1, 20):
        # The address of a Snapshot that is gone can be that of the next one.
        assert assess(planned(sent(("data",), size))).traffic.bytes == 3 * size
        gc.collect()


def test_nothing_known_is_unknown() -> None:
    bare = replace(samples.snapshot(arrays=()), mesh=None, programs=())
    own = assess(bare, V5E)
    assert (own.devices, own.program, own.step, own.memory, own.traffic) == (None,) * 5
    assert own.basis == "planned" and own.unknown_step and own.unknown_traffic


def test_traffic_is_that_of_the_device_that_sends_most() -> None:
    """Of two permutes with other sources, no device sends both."""
    base = samples.snapshot()
    assert base.mesh is not None
    size = base.mesh.size

    def permute(name: str, axes: tuple[str, ...], wire: int, source: int) -> Collective:
        return Collective(
            "collective-permute", False, name, "main", 1, False, axes, 2, 1, wire, wire,
            source_target_pairs=((source, (source + 1) % size),),
        )  # fmt: skip

    axis = base.mesh.axis_names[0]
    apart = (permute("a", (axis,), 10, 0), permute("b", (), 30, 1))
    traffic = assess(replace(base, programs=(Program("f", collectives=apart),))).traffic
    assert traffic is not None and traffic.bytes == 30 == sum(traffic.by_axes.values())
    assert traffic.at_most is not None and traffic.text.startswith("up to")
    ring = replace(apart[0], source_target_pairs=tuple((n, (n + 1) % size) for n in range(size)))
    traffic = assess(replace(base, programs=(Program("f", collectives=(ring,)),))).traffic
    assert traffic is not None and traffic.bytes == 10 and traffic.at_most is None


@pytest.mark.parametrize(("name", "run"), [("train_step", "step"), ("stencil", "run")])
def test_only_a_train_step_is_called_a_step(name: str, run: str) -> None:
    sends = Collective("all-reduce", False, "a", "main", 1, False, ("data",), 2, 4, 64, 64)
    assessment = assess(replace(samples.snapshot(), programs=(Program(name, collectives=(sends,)),)))
    assert run_of(assessment.program) == f"one {run}"
