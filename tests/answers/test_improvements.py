"""The ranked list of findings and effects: its order, and that every medium has the same."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from inspector import audit
from inspector import layout as layouts
from inspector.answers import effects as effects_section
from inspector.answers import improvements
from inspector.answers.report import short
from inspector.answers.section import Notice
from inspector.layout.plan import plan
from inspector.machines import hardware
from inspector.media import report
from inspector.media.terminal import render
from inspector.records.assessment import Assessment, MemoryNeed
from inspector.records.snapshot import (
    Array,
    Change,
    Collective,
    Effects,
    Finding,
    LayoutCost,
    Mesh,
    MeshAxis,
    Program,
    Snapshot,
    Source,
)
from inspector.text.formatting import bytes_text
from inspector.tracing.model.abstract import abstract_state
from tests.compare import glances

NOW = LayoutCost(100, {"data": 50}, 1.0, 2.0)
COSTS = {
    "faster": replace(NOW, seconds=1.0, answer="better"),
    "fastest": replace(NOW, seconds=0.5, answer="better"),
    "not decided": replace(NOW, seconds=0.7),
    "slower": replace(NOW, seconds=3.0, wire_bytes={"data": 1}),
    "hardly faster": replace(NOW, seconds=1.99),
    "larger": replace(NOW, seconds=1.0, state_bytes=200),
    "less traffic": replace(NOW, wire_bytes={"data": 10}),
    "less state": replace(NOW, state_bytes=1),
    "invalid": None,
    "equal": NOW,
}
FINDINGS = tuple(
    Finding(level, code, f"the message of {code}", bytes=size)
    for level, code, size in (
        ("note", "remark", None),
        ("warning", "unknown-gain", None),
        ("note", "small", 30),
        ("warning", "large", 90),
        ("error", "broken", None),
    )
)
ORDER = [
    "Broken",
    "fastest",
    "faster",
    "less state",
    "Large",
    "less traffic",
    "Small",
    "Unknown gain",
    "Remark",
]


def effects_of(costs: dict[str, LayoutCost | None], now: LayoutCost = NOW) -> Effects:
    return Effects("train_step", "v5e", now, tuple(Change("rule", *change) for change in _changes(costs)))


def _changes(costs):
    return ((name, None, cost, None if cost else "8 is not divisible by 3") for name, cost in costs.items())


@pytest.fixture
def known():
    return replace(glances.planned(), findings=FINDINGS, effects=effects_of(COSTS))


def test_errors_then_seconds_then_bytes_then_what_has_no_known_gain(known) -> None:
    rows = improvements.ranked(known, known.findings)
    assert [row.title for row in rows] == ORDER
    assert [row.is_remark for row in rows] == [False] * 8 + [True]


def test_without_predicted_times_bytes_order_the_list(known) -> None:
    timeless = {name: cost and replace(cost, seconds=None, answer=None) for name, cost in COSTS.items()}
    effects = effects_of(timeless, replace(NOW, seconds=None))
    improved = [change.effect.label for change in effects_section.improving(effects)]
    assert improved == ["slower", "less traffic", "less state"], "the times are unknown"
    rows = improvements.ranked(replace(known, effects=effects), known.findings)
    assert [row.title for row in rows if row.effect] == ["slower", "less traffic", "less state"]


def test_a_change_that_adds_work_is_an_improvement_only_if_it_is_decided_to_be_faster() -> None:
    more_work = replace(NOW, flops=2.0, wire_bytes={"data": 0}, seconds=1.0)
    assert effects_section.improving(effects_of({"a": replace(more_work, answer="better")}))
    for answer in ("worse", "not distinguishable", None):
        assert not effects_section.improving(effects_of({"a": replace(more_work, answer=answer)}))
    timeless = effects_of({"a": replace(more_work, seconds=None)}, replace(NOW, seconds=None))
    assert not effects_section.improving(timeless)


def test_unknown_effects_leave_the_findings_in_the_same_order(known) -> None:
    rows = improvements.ranked(replace(known, effects=None), known.findings)
    assert [row.title for row in rows] == [title for title in ORDER if title[0].isupper()]


def test_the_list_has_the_same_order_and_words_everywhere(known) -> None:
    gains = [row.gain for row in improvements.ranked(known, known.findings)]
    drawn = {
        "report": report.content([("a", known)], ".html").replace("&#43;", "+"),
        "show": render.text([improvements.section(known)]),
        "audit": render.text(improvements.audited(known, improvements.ranked(known, known.findings), {})),
    }
    for medium, text in drawn.items():
        text = " ".join(text.replace("\\", "").split())
        assert all(gain in text for gain in gains), medium
    marks = [title if title in COSTS else f"message of {title.lower()}" for title in ORDER]
    marks = [mark.replace("unknown gain", "unknown-gain") for mark in marks]
    text = drawn["show"]
    assert all(text.index(before) < text.index(after) for before, after in pairwise(marks))


def test_an_empty_list_says_what_was_checked_and_what_cannot_be_seen(known) -> None:
    """A plan does not know what its programs do, so that it may not say as much as a compile."""
    empty = improvements.summary([], known)
    assert isinstance(empty, Notice)
    assert empty.kind == "info"
    assert f"{len(audit.questions(known))} checks" in render.text([empty])
    planned = improvements.summary([], replace(known, programs=()))
    assert render.text([planned]) != render.text([empty])
    for finding in known.findings:
        rows = [improvements.of_finding(finding)]
        assert not isinstance(improvements.summary(rows, known), Notice), finding.level


def test_a_report_of_several_has_the_findings_that_matter_of_each(known) -> None:
    named = [("a", known), ("b", replace(known, findings=(), effects=None))]
    found = [block for block in short(named, None) if getattr(block, "key", "") == "findings"]
    assert [section.heading for section in found] == ["a", "b"]
    shown = [render.text([section]) for section in found]
    error, *_ = (finding for finding in known.findings if finding.level == "error")
    assert error.message in shown[0] and error.message not in shown[1]


def on_v5e(peak: int, fits: bool) -> Assessment:
    capacity = hardware.chip("v5e").allocatable_bytes
    need = MemoryNeed(peak, peak, peak, capacity, fits, "train_step")
    return Assessment("v5e", 8, "compiled", "train_step", None, need, None, None, None)


MIB = 2**20
BIG = LayoutCost(400 * MIB, {"data": 50 * MIB}, 1.0, 3.0)
PRESETS = {
    "3 times faster": replace(BIG, seconds=1.0, answer="better"),
    "half of the state": replace(BIG, seconds=4.0, state_bytes=200 * MIB),
}


def titles(snapshot, monkeypatch: pytest.MonkeyPatch, assessed: Assessment) -> list[str]:
    monkeypatch.setattr(improvements, "assess", lambda *_: assessed)
    return [row.title for row in improvements.ranked(snapshot, snapshot.findings)]


def test_a_faster_preset_is_before_memory_that_is_free(known, monkeypatch: pytest.MonkeyPatch) -> None:
    waste = Finding("warning", "waste", "90 MiB are wasted.", bytes=90 * MIB)
    snapshot = replace(known, findings=(waste,), effects=effects_of(PRESETS, BIG))
    assert titles(snapshot, monkeypatch, on_v5e(3 * 2**30, True)) == ["3 times faster", "Waste"]


def test_a_layout_that_does_not_fit_needs_memory_first(known, monkeypatch: pytest.MonkeyPatch) -> None:
    waste = Finding("warning", "waste", "90 MiB are wasted.", bytes=90 * MIB)
    snapshot = replace(known, findings=(waste,), effects=effects_of(PRESETS, BIG))
    assert titles(snapshot, monkeypatch, on_v5e(2**40, False)) == ["half of the state", "Waste"]


@pytest.mark.parametrize(("fits", "listed"), [(True, True), (None, False), (False, False)])
def test_memory_may_grow_only_if_the_changed_layout_fits(fits: bool | None, listed: bool) -> None:
    larger = replace(BIG, seconds=1.0, peak_bytes=9 * 2**30, fits=fits, answer="better")
    effects = effects_of({"larger": larger}, replace(BIG, peak_bytes=2**30, fits=True))
    assert bool(effects_section.improving(effects, on_v5e(2**30, True))) is listed
    undecided = effects_of({"larger": replace(larger, answer="not distinguishable")}, effects.current)
    assert not effects_section.improving(undecided, on_v5e(2**30, True))


def test_what_needs_less_of_one_figure_and_no_more_of_any_is_listed_without_a_decided_step() -> None:
    now = replace(BIG, peak_bytes=1000 * MIB, fits=True)
    costs = {
        "donated": replace(now, peak_bytes=600 * MIB, fits=True),
        "a trade": replace(now, peak_bytes=600 * MIB, fits=True, wire_bytes={"data": 100 * MIB}),
        "0.5% less": replace(now, peak_bytes=995 * MIB, fits=True),
        "equal": now,
    }
    listed = effects_section.improving(effects_of(costs, now), on_v5e(2**30, True))
    assert [(change.effect.label, change.memory) for change in listed] == [("donated", 400 * MIB)]


def test_an_estimated_peak_is_less_if_bytes_prove_it_or_beyond_its_error() -> None:
    now = replace(BIG, peak_bytes=1000 * MIB, fits=True)
    less = replace(now, peak_bytes=900 * MIB)
    changes = (
        Change("constraint", "undecided", None, less),
        Change("constraint", "far less", None, replace(now, peak_bytes=700 * MIB)),
        Change("donation", "donated", None, less),
        Change("optimizer", "less state", None, replace(less, state_bytes=300 * MIB)),
    )
    listed = effects_section.improving(Effects("train_step", None, now, changes), None)
    assert [change.effect.label for change in listed] == ["far less", "donated", "less state"]


def test_a_shorter_step_that_is_decided_is_before_one_that_is_not() -> None:
    now = replace(BIG, peak_bytes=1000 * MIB, fits=True)
    costs = {
        "not decided": replace(now, seconds=2.0, wire_bytes={"data": MIB}, answer="not distinguishable"),
        "decided": replace(now, seconds=2.9, answer="better"),
        "more": replace(now, seconds=2.5, answer="better"),
    }
    listed = effects_section.improving(effects_of(costs, now))
    assert [change.effect.label for change in listed] == ["more", "decided", "not decided"]


def test_memory_that_is_free_on_the_chip_is_after_a_shorter_step(
    known, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = {}
    for peak in (1000 * MIB, 2**34):
        now = replace(BIG, peak_bytes=peak, fits=True)
        donated = Change("donation", "Donate", {}, replace(now, peak_bytes=peak // 2))
        kept = Change("rematerialization", "Keep", {}, replace(now, seconds=2.7, answer="better"))
        snapshot = replace(known, findings=(), effects=Effects("train_step", "v5e", now, (donated, kept)))
        orders[peak] = titles(snapshot, monkeypatch, on_v5e(peak, True))
    assert list(orders.values()) == [["Keep", "Donate"], ["Donate", "Keep"]]


def test_a_train_state_that_does_not_fit_alone_saves_nothing_of_an_estimated_peak() -> None:
    now = replace(BIG, peak_bytes=50 * MIB + BIG.state_bytes, fits=False)
    alone = replace(BIG, wire_bytes={"unknown": None}, flops=None, seconds=None, fits=False)
    half = replace(alone, state_bytes=BIG.state_bytes // 2)
    effects = effects_of({"equal": alone, "half": half}, now)
    listed = effects_section.improving(effects, on_v5e(2**40, False))
    assert [(change.effect.label, change.memory) for change in listed] == [("half", BIG.state_bytes // 2)]
    assert effects.closest.label == "half"
    known = replace(alone, peak_bytes=2 * BIG.state_bytes)
    assert effects_of({"half": half, "known": known}, now).closest.label == "known"


def test_a_small_change_is_before_other_layouts_and_makes_a_layout_fit_before_larger_ones(
    known, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = replace(BIG, peak_bytes=1000 * MIB, fits=True)
    donated = Change("donation", "Donate", {}, replace(now, peak_bytes=600 * MIB, fits=True))
    cost = replace(now, peak_bytes=300 * MIB, fits=True, seconds=1.0, answer="better")
    preset = Change("preset", "Preset", {}, cost)
    effects = Effects("train_step", "v5e", now, (preset, donated))
    snapshot = replace(known, findings=(), effects=effects)
    assert titles(snapshot, monkeypatch, on_v5e(2**30, True)) == ["Donate", "Preset"]
    assert effects.fitting == donated and effects.closest == preset
    error = Finding("error", "does-not-fit", "It does not fit.")
    first, *others = improvements.ranked(replace(snapshot, findings=(error,)), (error,))
    monkeypatch.setattr(improvements, "assess", lambda *_: on_v5e(2**40, False))
    first, *others = improvements.ranked(replace(snapshot, findings=(error,)), (error,))
    assert (first.finding, first.effect) == (error, donated) and "Donate" in first.message
    assert [row.title for row in others] == ["Preset"]


def test_findings_of_one_mistake_are_one_card_with_their_sum() -> None:
    sizes = {"mu": 40, "nu": 20, "kernel": 10}
    findings = tuple(
        Finding(
            "warning",
            "replicated-parameter" if name == "kernel" else "replicated-optimizer-state",
            f"{name} is replicated.",
            bytes=size * MIB,
            arrays=(name,),
            count=4,
        )
        for name, size in sizes.items()
    )
    other = Finding("warning", "waste", "wasted", bytes=MIB)
    snapshot = replace(glances.planned(), findings=(*findings, other))
    card, alone = improvements.ranked(snapshot, snapshot.findings)
    assert card.findings == findings and "70.0 MiB" in card.gain and "12 arrays" in card.gain
    assert all(name in card.message for name in sizes) and alone.findings == (other,)
    assert "4 warnings" in render.text([improvements.summary([card, alone], snapshot)])


def test_the_list_says_that_changes_are_being_computed(known) -> None:
    rows = improvements.ranked(known, known.findings)
    for computing in (False, True):
        said = render.text([improvements.summary(rows, known, None, computing)])
        assert (improvements.COMPUTING in said) is computing


def test_the_heading_of_all_changes_counts_each_change_once(known) -> None:
    heading = effects_section.all_heading(known.effects, None)
    total, *parts = map(int, re.findall(r"\d+", heading))
    assert total == len(COSTS) == sum(parts)
    listed = len(effects_section.improving(known.effects))
    assert parts == [listed, sum(cost not in (None, NOW) for cost in COSTS.values()) - listed, 1, 1]


@pytest.mark.parametrize("group", ["opt_state", "params"])
def test_findings_of_one_mistake_are_one_improvement_with_their_sum(group: str) -> None:
    layout = layouts.parse({"target": "plan", "mesh": "8", "axes": "fsdp", "rules": "embed=fsdp"}).unwrap()
    planned = plan(layout, abstract_state(layout))
    # As a program that places these arrays, and those that follow them, without a sharding.
    whole = {
        array.path: replace(
            array,
            spec=(None,) * len(array.shape),
            shard_shape=array.shape,
            bytes_per_device=array.bytes,
            replicas=8,
        )
        for array in planned.arrays
        if array.group in (group, "opt_state")
    }
    arrays = tuple(whole.get(array.path, array) for array in planned.arrays)
    snapshot = replace(planned, layout=None, arrays=arrays)
    findings = [finding for finding in audit.audit(snapshot) if finding.bytes and finding.arrays]
    assert len(findings) > 1
    (row,) = (row for row in improvements.ranked(snapshot, findings) if row.finding)
    assert len(row.findings) == len(findings)
    too_many = sum(array.bytes * 7 // 8 for path, array in whole.items() if planned.array(path).replicas == 1)
    assert sum(finding.bytes for finding in row.findings) == too_many
    assert bytes_text(too_many) in row.gain
    assert row.gain in render.text([improvements.section(audit.audited(snapshot))]).replace("\n", " ")


def test_a_fix_that_keeps_the_parameters_is_before_one_that_does_not() -> None:
    findings = [
        Finding("warning", code, "waste", bytes=size * MIB, arrays=(code,), count=1)
        for code, size in (("replicated-parameter", 20), ("replicated-optimizer-state", 10))
    ]
    changes = [audit.Fix("rule", "Add a rule", {}, saves=1), audit.Fix("optimizer", "Shard it", {}, saves=1)]
    fixes = dict(zip(map(id, findings), changes, strict=True))
    (row,) = improvements.ranked(snapshot := replace(glances.planned(), effects=None), findings)
    text = render.text(improvements.audited(snapshot, [row], fixes))
    assert 0 < text.index("shard it") < text.index("add a rule")


def test_traffic_is_a_cost_that_orders_findings() -> None:
    """A finding about most of the traffic comes before one about few bytes, an error before both."""
    sends = Collective("all-reduce", False, "r.1", "main", 1, False, ("data",), 8, 1, 2**20, 7 * 2**18)
    known = replace(glances.planned(), programs=(Program("train_step", collectives=(sends,)),))
    listed = [
        Finding("warning", "padded-shards", "few bytes", bytes=1),
        Finding("warning", "replicated-array", "more bytes", bytes=2, arrays=("a",), count=1),
        Finding("warning", "involuntary-rematerialization", "traffic", wire_bytes=7 * 2**18),
        Finding("error", "program-failed", "failed"),
    ]
    assert [row.message for row in improvements.ranked(replace(known, effects=None), listed)] == [
        "failed", "traffic", "more bytes", "few bytes",
    ]  # fmt: skip


def test_savings_are_those_of_one_mesh() -> None:
    """A teacher on devices 0 to 3 and a student on 4 to 7: no device has arrays of both."""
    student, teacher = Mesh((MeshAxis("data", 4),), (4, 5, 6, 7)), Mesh((MeshAxis("model", 4),), (0, 1, 2, 3))
    held = {"sp/emb": 2**18, "sp/up": 2**19, "mom/up": 2**19, "p/emb": 2**20, "p/out": 2**19}
    arrays = tuple(
        Array(
            path,
            "other",
            (256, size // 1024),
            "float32",
            spec=(None, None),
            shard_shape=(256, size // 1024),
            bytes=size,
            bytes_per_device=size,
            replicas=4,
            mesh=0 if path.startswith("p/") else None,
        )
        for path, size in held.items()
    )
    snapshot = Snapshot(Source("capture", None, "2026-01-01"), None, student, arrays, other_meshes=(teacher,))
    rows = improvements.ranked(snapshot, audit.audit(snapshot))
    replicated = {
        frozenset(path for finding in row.findings for path in finding.arrays or ()): row
        for row in rows
        if row.findings[0].arrays
    }
    on_teacher = {"p/emb", "p/out"}
    assert set(replicated) == {frozenset(on_teacher), frozenset(held.keys() - on_teacher)}
    for paths, row in replicated.items():
        saved = sum(held[path] for path in paths) * 3 // 4
        assert bytes_text(saved) in row.gain
        assert {finding.mesh for finding in row.findings} == {0 if paths == on_teacher else None}
        # The fix of the first array is none of the others, whose shapes differ.
        first = row.findings[0]
        assert first.remedy is not None and first.array is not None
        assert {path for path in held if path in first.remedy} == {first.array}
