"""The section of effects in its four media: order, unknown and invalid changes, hostile names."""

from __future__ import annotations

from dataclasses import replace

from inspector.answers import effects as section
from inspector.answers.section import Table, Text, plain
from inspector.media import report
from inspector.media.terminal import render
from inspector.records import snapshot as snapshots
from inspector.records.snapshot import Change, Effects, LayoutCost, Snapshot, Source
from inspector.records.snapshot.effects import by_effect

NOW = LayoutCost(2**20, {"data": 2**21, "data,model": 2**20}, 1e9, 2e-3)
LESS = Change(
    "rule",
    "Remove a → data",
    {},
    LayoutCost(2**22, {"data,model": 2**20}, 2e9, 1e-3, answer="better", low=0.4, high=0.6),
)
SAME = Change("constraint", "Remove constraint b", None, NOW)
MORE = Change("swap", "Swap c", {}, LayoutCost(2**20, {"model": 2**30}, 1e9, 1.5))
INVALID = Change("axis", "Move axis d", {}, None, "8 is not divisible by 3")
UNKNOWN = Change("rule", "Remove e", {}, LayoutCost(None, {"data": None}, None))


def effects_of(*changes: Change, current: LayoutCost = NOW, chip: str | None = "v5e") -> Effects:
    return Effects("train_step", chip, current, by_effect(current, changes))


EFFECTS = effects_of(INVALID, SAME, LESS, UNKNOWN, MORE)


def block(effects: Effects, kind: type):
    return next(block for block in section.section(effects).blocks if isinstance(block, kind))


def column(effects: Effects, heading: str) -> dict[str, object]:
    table = block(effects, Table)
    at = [column.heading for column in table.columns].index(heading)
    return {row[0]: row[at] for row in table.rows}


def test_improvements_come_first_then_the_layout_and_the_table() -> None:
    first, none, *rest = section.section(EFFECTS).blocks
    assert plain(first.parts).startswith("5 changes") and plain(none.parts).startswith("None")
    assert tuple(rest) == section.details(EFFECTS)
    assert [type(one) for one in rest] == [Text, Table, Text]
    assert "step 2.00 ms; traffic 3.0 MiB" in plain(rest[0].parts)
    better = replace(LESS, cost=replace(LESS.cost, state_bytes=2**20, flops=1e9, answer="better"))
    first, listed, *_ = section.section(effects_of(better, MORE)).blocks
    assert plain(first.parts).startswith("2 changes")
    assert [plain(item).split(":")[0] for item in listed.items] == [better.label]


def test_changes_are_ordered_by_effect_and_invalid_ones_are_last() -> None:
    assert [change.label for change in EFFECTS.changes[:2]] == [MORE.label, LESS.label]
    assert EFFECTS.changes[-1] == INVALID
    assert column(EFFECTS, "Not valid")[INVALID.label] == INVALID.reason


def test_cells_have_signed_changes_by_mesh_axes() -> None:
    assert column(EFFECTS, "over data")[LESS.label] == "−2.0 MiB (−100%)"
    assert column(EFFECTS, "over model")[MORE.label] == "+1.0 GiB (from 0)"
    assert column(EFFECTS, "over data × model")[LESS.label] == "0"
    assert column(EFFECTS, "Train state per device")[LESS.label] == "+3.0 MiB (+300%)"
    assert column(EFFECTS, "Matrix FLOPs")[LESS.label] == "+100%"
    assert column(EFFECTS, "Step")[LESS.label] == "−1.00 ms (−60% to −40%)"
    undecided = replace(LESS, cost=replace(LESS.cost, answer="not distinguishable", low=0.4, high=1.2))
    assert column(effects_of(undecided), "Step")[LESS.label] == "−1.00 ms"


def test_unknown_figures_stay_unknown() -> None:
    for heading in ("Step", "Traffic", "over data", "Train state per device", "Matrix FLOPs"):
        assert column(EFFECTS, heading)[UNKNOWN.label] == "unknown"
        assert column(EFFECTS, heading)[INVALID.label] == "–"


def test_without_a_chip_bytes_are_shown_and_order_the_changes() -> None:
    without = [
        replace(effect, cost=effect.cost and replace(effect.cost, seconds=None))
        for effect in (LESS, MORE, SAME)
    ]
    effects = effects_of(*without, current=replace(NOW, seconds=None), chip=None)
    assert [change.label for change in effects.changes] == [MORE.label, LESS.label, SAME.label]
    headings = [column.heading for column in block(effects, Table).columns]
    assert "Step" not in headings and "Not valid" not in headings
    assert "No chip" in render.text([section.section(effects)])


def test_a_layout_without_changes_has_no_table() -> None:
    assert section.details(effects_of()) == ()


def test_reports_of_a_snapshot_contain_its_effects() -> None:
    hostile = replace(LESS, label="<script>alert(1)</script> | `x`")
    effects = effects_of(hostile, INVALID)
    snapshot = Snapshot(Source("plan", "plan", "2026-01-01"), None, None, (), effects=effects)
    again = snapshots.from_json(snapshot.to_json())
    assert again == snapshot
    page = report.content([("a", again)], ".html")
    assert "&lt;script&gt;alert" in page and "<script>alert(1)" not in page
