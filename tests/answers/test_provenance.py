"""The source of a picture, in lines."""

from __future__ import annotations

import re
from dataclasses import replace

from inspector import layout as layouts
from inspector.answers import subject
from inspector.records.snapshot import MeshAxis, Snapshot, Source
from tests.figures import samples


def found(fields: dict[str, str], kind: str = "plan", target: str | None = None) -> Snapshot:
    layout = layouts.parse(fields).unwrap()
    source = Source(kind, target, "2026-03-04T05:06:07+00:00", {"jax": "0.10.2"})
    return Snapshot(source, layout.to_json(), layout.mesh(), ())


def test_a_line_has_model_mesh_rules_target_versions_and_date() -> None:
    assert subject.source_line(found({})) == (
        "MLP, logical axes · mesh data 2 × model 4 (8 devices) · rules batch → data, hidden → model · "
        "planned, nothing compiled · versions jax 0.10.2 · 2026-03-04 05:06"
    )


def test_unknown_facts() -> None:
    bare = Snapshot(Source("orbax", None, ""), None, None, ())
    assert subject.source_line(bare) == (
        "model unknown · mesh unknown · rules unknown · imported from an Orbax checkpoint · "
        "versions unknown · date unknown"
    )


def test_shared_facts_are_one_line() -> None:
    snapshot = found({})
    other = found({"mesh": "8", "axes": "data", "rules": "batch=data"})
    assert subject.source_lines([("A", snapshot), ("B", other)]) == (
        "MLP, logical axes · planned, nothing compiled · versions jax 0.10.2 · 2026-03-04 05:06",
        "A: mesh data 2 × model 4 (8 devices) · rules batch → data, hidden → model",
        "B: mesh data 8 (8 devices) · rules batch → data",
    )
    assert len(subject.source_lines([("A", snapshot), ("B", snapshot)])) == 1
    assert subject.source_lines([]) == ()
    compiled = replace(snapshot, source=replace(snapshot.source, kind="tpu", target="tpu:v5p:2x2x2"))
    assert "compiled for tpu:v5p:2x2x2, not run" in subject.source_lines([("A", compiled)])[0]


def test_many_axes_of_size_1_are_counted() -> None:
    snapshot = found({})

    def said(**axes: int) -> str:
        mesh = replace(snapshot.mesh, axes=tuple(MeshAxis(name, size) for name, size in axes.items()))
        return subject.source_facts(replace(snapshot, mesh=mesh))["mesh"]

    assert said(a=1, b=1, c=8, d=1, e=1) == "c 8, and 4 axes of size 1 (8 devices)"
    assert said(a=1, c=8) == "a 1 × c 8 (8 devices)"


def test_a_line_of_arrays() -> None:
    mesh = samples.mesh(x=2, y=4)
    line = subject.source_line_of_arrays(["An array", "P('x')"], mesh, {"jax": "1.2"}, processes=2)
    how, spec, on, ran, versions, drawn = line.split(" · ")
    assert (how, spec, versions) == ("An array", "P('x')", "versions jax 1.2")
    assert on.startswith("mesh ") and "x" in on and "(8 devices)" in on
    assert ran == "run on emulated devices of 2 processes"
    assert re.fullmatch(r"drawn \d{4}-\d\d-\d\d \d\d:\d\d", drawn)
    alone = subject.source_line_of_arrays([], mesh, {})
    assert " · run on emulated devices · versions unknown · " in alone
