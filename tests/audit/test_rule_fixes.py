"""A fix of one rule removes its finding when the changed layout is planned with JAX's shapes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.answers import improvements as section
from inspector.answers.section import plain
from inspector.audit import Fix, audit, replanned, smallest_change
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.records import typed_json
from inspector.records.snapshot import Finding, Snapshot
from inspector.sharding.totals import state_totals
from inspector.tracing.model.abstract import abstract_state

STATES: dict[str, object] = {}

# Layouts with a fault, the code of its finding, and the start of the fix.
FAULTS = [
    (
        {"rules": "batch=data,embed=model,hidden=model"},
        "dropped-logical-axis",
        "add the rule `hidden → data`",
    ),
    ({"rules": "batch=data"}, "replicated-parameter", "add the rule"),
    ({"rules": "batch=data"}, "replicated-optimizer-state", "shard the optimizer state over"),
    ({"rules": "batch=data"}, "unused-mesh-axis", "add the rule"),
    ({"rules": "hidden=model"}, "batch-not-sharded", "add the rule `batch → data`"),
    (
        {"rules": "batch=data,hiden=model"},
        "rule-never-used",
        "change rule 2, hiden → model, to `hidden → model`",
    ),
    (
        {"rules": "batch=data,hidden=model,hidden=model+data"},
        "rule-never-used",
        "remove hidden → model + data",
    ),
    (
        {"rules": "batch=data,hidden=,hidden=model"},
        "replicated-parameter",
        "",
    ),
    ({}, "state-repeated-over-axis", "add the rule `embed → data`"),
    (
        {"model": "transformer", "rules": "batch=data,embed=model,heads=model,mlp=model,vocab=model"},
        "dropped-logical-axis",
        "",
    ),
    (
        {"model": "transformer", "rules": "batch=data,vocab=model,mlp=model,heads=model,embed=model"},
        "dropped-logical-axis",
        "",
    ),
    ({"model": "transformer", "mesh": "8", "rules": "batch=data"}, "replicated-parameter", ""),
]  # fmt: skip


def layout_of(fields: dict[str, str]) -> Layout:
    return layouts.parse({"target": "plan", "layers": "2", **fields}).unwrap()


def planned(layout: Layout) -> Snapshot:
    key = f"{layout.model} {dict(layout.sizes)}"
    if key not in STATES:
        STATES[key] = abstract_state(layout)
    return plan(layout, STATES[key])


def layout_after(change: Fix) -> Layout:
    return layouts.from_json(change.layout)


def of(findings: tuple[Finding, ...], code: str) -> list[Finding]:
    return [finding for finding in findings if finding.code == code]


@pytest.mark.parametrize(("fields", "code", "words"), FAULTS)
def test_the_remedy_mends_what_it_is_for_and_saves_what_it_says(
    fields: dict[str, str], code: str, words: str
) -> None:
    layout = layout_of(fields)
    before = planned(layout)
    current = audit(before)
    for finding in of(current, code):
        change = smallest_change(before, finding, layout)
        assert change is not None, finding.message
        after = planned(layout_after(change))
        held = state_totals(before).per_device - state_totals(after).per_device
        assert held == change.saves >= 0
        if finding.bytes and code != "batch-not-sharded":
            assert change.saves > 0
        left = audit(after)
        assert all(still.array != finding.array for still in of(left, code) if finding.array), change.words
        if finding.array is None:
            assert (finding.axes, finding.rule_text) not in [
                (still.axes, still.rule_text) for still in of(left, code)
            ]
        # A fix adds no other problem.
        assert not [still for still in (*after.findings, *left) if still.level == "error"]
        kinds = {still.code for still in left if still.level == "warning"}
        assert kinds <= {one.code for one in current if one.level == "warning"}
        if words.startswith("shard the optimizer state"):  # the parameters stay where they are
            assert layout_after(change) == replace(layout, optimizer_axes=layout_after(change).optimizer_axes)
            continue
        # One rule differs: added, deleted, changed or moved.
        rules, new = list(layout.rules), list(layout_after(change).rules)
        assert abs(len(rules) - len(new)) <= 1 and rules != new
        assert len(set(rules) ^ set(new)) <= 2
        # The rest of the layout stays.
        plain = {**change.layout, "rules": layout.to_json()["rules"]}
        assert plain == layout.to_json()
    assert of(current, code)
    if words:
        assert any(smallest_change(before, one, layout).words.startswith(words) for one in of(current, code))


def test_a_finding_gives_the_bytes_that_its_fix_saves() -> None:
    layout = layout_of({"rules": "batch=data,embed=model,hidden=model"})
    snapshot = planned(layout)
    (finding,) = of(audit(snapshot), "dropped-logical-axis")
    assert smallest_change(snapshot, finding, layout).saves == finding.bytes
    layout = layout_of({})
    snapshot = planned(layout)
    (finding,) = of(audit(snapshot), "state-repeated-over-axis")
    assert smallest_change(snapshot, finding, layout).saves == finding.bytes


@pytest.mark.parametrize(
    "fields",
    [
        {"rules": "batch=data"},
        {"model": "transformer", "axes": "data,tensor", "rules": "batch=data,mlp=tensor"},
    ],
)
def test_a_fix_saves_more_than_the_finding_only_in_more_arrays(fields: dict[str, str]) -> None:
    layout = layout_of(fields)
    snapshot = planned(layout)
    pairs = [
        (finding, smallest_change(snapshot, finding, layout)) for finding in audit(snapshot) if finding.bytes
    ]
    more = [(finding, change) for finding, change in pairs if change and change.saves > finding.bytes]
    assert more
    for one, change in more:
        assert change.arrays > one.count
        bounds = section.saving(one), plain(section.fix_text(change))
        assert f"{one.count} array" in bounds[0] and f"{change.arrays} array" in bounds[1]


# Layouts that JAX rejects, and the sizes of the first fix.
INDIVISIBLE = [
    ({"mesh": "8", "axes": "data", "rules": "batch=data", "batch": "12"}, {"batch": 16}),
    ({"depth": "66"}, {"depth": 68}),
    ({"model": "mlp", "mesh": "8", "axes": "data", "specs": "x=data.None", "batch": "12"}, {"batch": 16}),
    ({"model": "transformer", "mesh": "16", "axes": "fsdp", "rules": "batch=fsdp"}, {"batch": 16}),
    ({"model": "transformer", "mesh": "2x3", "axes": "data,fsdp", "rules": "batch=data+fsdp"}, {"batch": 12}),
    (
        {"model": "transformer", "rules": "heads=model,kv_heads=model", "heads": "6", "kv_heads": "6"},
        {"heads": 8, "kv_heads": 8},
    ),
    ({"model": "transformer", "mesh": "8", "axes": "data", "accumulate": "3", "batch": "3"}, {"batch": 24}),
    ({"model": "moe", "mesh": "3", "axes": "expert", "rules": "expert=expert"}, {"experts": 9}),
]


@pytest.mark.parametrize(("fields", "sizes"), INDIVISIBLE)
def test_sizes_that_mesh_axes_do_not_divide_are_raised_to_the_next_multiple(
    fields: dict[str, str], sizes: dict[str, int]
) -> None:
    layout = layout_of(fields)
    snapshot = planned(layout)
    indivisible = [finding for finding in snapshot.findings if finding.code == "indivisible"]
    assert indivisible
    change = smallest_change(snapshot, indivisible[0], layout)
    assert change is not None and not change.repeated_work
    assert change.layout == {**layout.to_json(), "sizes": {**layout.sizes, **sizes}}
    assert ("changes the model" in change.words) == (set(sizes) != {"batch"})
    # JAX traces the model with these sizes, and its arrays are those that the fix was checked with.
    again, expected = replanned(snapshot, layout_after(change)), planned(layout_after(change))
    assert not expected.findings
    assert again is not None
    named = [
        a.path for a in expected.arrays if None not in (a.logical_axes or ())
    ]  # others keep their length
    for array, other in zip(again.arrays, expected.arrays, strict=True):
        assert (array.path, array.spec, array.replicas) == (other.path, other.spec, other.replicas)
        assert array == other or array.path not in named


def test_a_fix_that_makes_devices_repeat_work_says_so() -> None:
    # The most rows that the model takes cannot be raised.
    layout = layout_of({"mesh": "3", "axes": "data", "rules": "batch=data", "batch": "1048576"})
    snapshot = planned(layout)
    change = smallest_change(snapshot, snapshot.findings[0], layout)
    assert change is not None and layout_after(change).sizes == layout.sizes
    assert {"unused-mesh-axis"} <= {finding.code for finding in change.repeated_work}
    assert "compute the same" in plain(section.fix_text(change))


def test_planning_from_a_snapshot_equals_planning_with_jax() -> None:
    for fields in ({}, {"model": "transformer"}):
        snapshot = planned(layout_of(fields))
        other = layout_of({**fields, "mesh": "4x2", "rules": "batch=model,embed=data"})
        again, expected = replanned(snapshot, other), planned(other)
        assert typed_json.encode(again.arrays) == typed_json.encode(expected.arrays)
        assert again.mesh == expected.mesh


def test_a_finding_that_no_rule_causes_has_no_fix() -> None:
    layout = layout_of({})
    snapshot = planned(layout)
    for finding in of(audit(snapshot), "linen-and-nnx-disagree"):
        assert smallest_change(snapshot, finding, layout) is None
    gone = Finding("warning", "dropped-logical-axis", "not so", "params/DotReluDot_0/W2")
    assert smallest_change(snapshot, gone, layout) is None


def test_a_layout_without_a_size_leaves_the_lengths_of_its_dimensions() -> None:
    """A file can have the layout of another version, or a damaged one."""
    snapshot, other = planned(layout_of({})), layout_of({"batch": "16"})
    sizes = {name: size for name, size in snapshot.layout["sizes"].items() if name != "batch"}
    damaged = replace(snapshot, layout={**snapshot.layout, "sizes": sizes})
    again, before = replanned(damaged, other), replanned(snapshot, layout_of({}))
    assert [array.shape for array in again.arrays] == [array.shape for array in before.arrays]
