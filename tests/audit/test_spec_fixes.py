"""In a model with device axes, the fewest changed PartitionSpecs fix a finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.audit import Fix, audit, replanned, smallest_change
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.media import terminal as command_line
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records import snapshot, typed_json
from inspector.records.snapshot import Finding, Snapshot
from inspector.sharding.sharding_text import spec_text
from inspector.sharding.totals import state_totals
from inspector.tracing.model.abstract import abstract_state

PLANS: dict[str, Snapshot] = {}

# Specs with a fault, the code of its finding, and the partitions whose specs fix it.
SPEC_FAULTS = [
    ({"specs": "W1=None.None"}, "replicated-parameter", ["W1"]),
    ({"specs": "W1=None.None,W2=None.None"}, "replicated-optimizer-state", []),
    ({"specs": "W1=None.None,W2=None.None,y=data.None"}, "unused-mesh-axis", ["W1"]),
    ({}, "state-repeated-over-axis", ["W1", "W2"]),
    ({"scan": "true"}, "state-repeated-over-axis", ["layer"]),
    ({"scan": "true", "layers": "3"}, "state-repeated-over-axis", ["W1", "W2"]),
    # Activations are sharded like the batch, or their rows would be gathered again.
    ({"specs": "x=None.None,y=None.model,z=None.None"}, "batch-not-sharded", ["x", "y", "z"]),
    ({"specs": "x=None.None"}, "batch-not-sharded", ["x"]),
    # Though parameters that nothing splits would save far more.
    ({"specs": "W1=None.None,W2=None.None,x=None.None,y=None.None,z=model.data"},
     "batch-not-sharded", ["x", "y"]),
]  # fmt: skip
# Sizes that the mesh axes of specs do not divide, and the size that keeps all devices at work.
INDIVISIBLE = [
    ({"depth": "66"}, {"depth": 68}),
    ({"depth": "66", "unconstrained": "y"}, {"depth": 68}),
    ({"batch": "6", "mesh": "4x2", "loss": "mse"}, {"batch": 8}),
    ({"scan": "true", "layers": "3", "specs": "layer=data"}, {"layers": 4}),
]


def layout_of(fields: dict[str, str]) -> Layout:
    plain = {"model": "mlp", "target": "plan", "layers": "2", **fields}
    return layouts.parse(plain).unwrap()


def layout_after(change: Fix) -> Layout:
    return layouts.from_json(change.layout)


def of(findings: tuple[Finding, ...], code: str) -> list[Finding]:
    return [finding for finding in findings if finding.code == code]


def assert_fixed(layout: Layout, finding: Finding, change: Fix) -> None:
    """Assert that JAX's plan of the changed layout lacks the finding and is not worse."""
    before = planned(layout)
    after = planned(layout_after(change))
    current, left = ((*snapshot.findings, *audit(snapshot)) for snapshot in (before, after))
    about = finding.code, finding.array, finding.axes
    assert about in [(a.code, a.array, a.axes) for a in current]
    assert about not in [(a.code, a.array, a.axes) for a in left], change.words
    assert not [a for a in left if a.level == "error"]
    if finding.level != "error":
        kinds = [{a.code for a in findings if a.level == "warning"} for findings in (left, current)]
        assert kinds[0] <= kinds[1]
    held = state_totals(before).per_device
    raised = layout_after(change).sizes != layout.sizes
    if change.saves is not None:
        assert change.saves == held - state_totals(after).per_device
        assert raised or change.saves >= 0
    if raised:
        assert finding.code == "indivisible" and layout_after(change).specs == layout.specs
        assert all(layout_after(change).sizes[name] >= size for name, size in layout.sizes.items() if size)
        return
    either = {"specs": 0, "optimizer_axes": 0}  # the state alone can be sharded over one more axis
    assert {**change.layout, **either} == {**layout.to_json(), **either}
    assert (change.kind == "spec") != (layout_after(change).optimizer_axes != layout.optimizer_axes)
    for place, spec in layout.specs.items():
        text = f" of {place} from {spec_text(spec)} to {spec_text(layout_after(change).specs[place])}"
        assert (text in change.words) == (spec != layout_after(change).specs[place])


def planned(layout: Layout) -> Snapshot:
    # The boxes contain the specs, so each layout is traced separately.
    key = layout.key()
    if key not in PLANS:
        PLANS[key] = plan(layout, abstract_state(layout))
    return PLANS[key]


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("fields", "code", "places"), SPEC_FAULTS)
def test_the_fewest_specs_are_changed(fields: dict[str, str], code: str, places: list[str]) -> None:
    layout = layout_of(fields)
    snapshot = planned(layout)
    (*_, finding) = of((*snapshot.findings, *audit(snapshot)), code)
    change = smallest_change(snapshot, finding, layout)
    differ = [place for place in layout.specs if layout.specs[place] != layout_after(change).specs[place]]
    assert differ == places
    assert_fixed(layout, finding, change)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("fields", "raised"), INDIVISIBLE)
def test_a_size_that_axes_do_not_divide_is_raised_and_no_spec_changes(
    fields: dict[str, str], raised: dict[str, int]
) -> None:
    layout = layout_of(fields)
    snapshot = planned(layout)
    (*_, finding) = of((*snapshot.findings, *audit(snapshot)), "indivisible")
    change = smallest_change(snapshot, finding, layout)
    assert layout_after(change) == replace(layout, sizes={**layout.sizes, **raised})
    assert not of(audit(planned(layout_after(change))), "indivisible")
    assert not of(planned(layout_after(change)).findings, "indivisible")


ENTRIES = st.sampled_from(["None", "data", "model", "data+model", "model+data"])


@pytest.mark.nightly
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.booleans(), st.sampled_from(["2x4", "4x2", "8x1"]), st.sampled_from([8, 12]))
def test_a_fix_removes_the_finding_for_any_specs(data, scan: bool, mesh: str, depth: int) -> None:
    specs = {}
    for place, dimensions in CATALOGUE["mlp"].partitions.items():
        entries = [data.draw(ENTRIES) for _ in dimensions]
        axes = [axis for entry in entries for axis in entry.split("+") if axis != "None"]
        specs[place] = ".".join(entries if len(set(axes)) == len(axes) else ["None"] * len(entries))
    layout = layout_of(
        {"mesh": mesh, "depth": str(depth), "scan": str(scan).lower(), "layers": "4"}
        | {"specs": ",".join(f"{place}={spec}" for place, spec in specs.items())}
    )
    try:
        snapshot = planned(layout)
    except ValueError:  # JAX, of a mesh axis of `layer` that a parameter has, too
        return
    assert typed_json.encode(replanned(snapshot, layout).arrays) == typed_json.encode(snapshot.arrays)
    for finding in (*snapshot.findings, *audit(snapshot)):
        change = smallest_change(snapshot, finding, layout)
        if change is not None:
            assert_fixed(layout, finding, change)


def test_a_finding_that_no_spec_causes_has_no_fix() -> None:
    layout = layout_of({})
    snapshot = planned(layout)
    (finding,) = of(audit(snapshot), "state-repeated-over-axis")
    assert smallest_change(snapshot, finding, layout) is not None
    gone = Finding("warning", "replicated-parameter", "not so", "params/DotReluDot_0/W2")
    assert smallest_change(snapshot, gone, layout) is None
    # What decides the spec of an unknown array is unknown.
    other = replace(snapshot.arrays[4], path="params/somewhere/else")
    assert replanned(replace(snapshot, arrays=(*snapshot.arrays, other)), layout) is None


def test_the_command_line_prints_the_change_of_specs(tmp_path: Path, capsys) -> None:
    layout = layout_of({"specs": "W1=None.None"})
    result = planned(layout)
    snapshot.write(result, tmp_path / "plan.json")
    assert command_line.main(["audit", str(tmp_path / "plan.json")]) == 0
    said = capsys.readouterr().out
    change = smallest_change(result, audit(result)[0], layout)
    assert f"Fix: {change.words}." in said and " rule" not in said
