"""Layouts compiled for several TPU slices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from inspector import layout as layouts
from inspector.jobs.engine import Environment, Pool
from inspector.machines import targets
from inspector.machines.links import SliceLink, TorusLink
from inspector.machines.mesh_links import link_of, links_of
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot
from inspector.sharding.meshes import crossing_axes
from inspector.sharding.traffic import traffic

TARGET = "tpu:v5e:2x2*2"
PATIENCE = 300.0  # seconds
LAYERS, DEPTH = 2, 256
SMALL = {"layers": str(LAYERS), "depth": str(DEPTH), "batch": "64", "steps": "1", "target": TARGET}
LAYOUTS: dict[str, dict[str, str]] = {
    "data between slices": {"mesh": "2x4", "axes": "data,fsdp", "rules": "batch=data+fsdp"},
    "one axis of both": {"mesh": "8", "axes": "data", "rules": "batch=data"},
    "torus": {"mesh": "2x2x2", "axes": "data,fsdp,tensor", "rules": "batch=data,hidden=tensor",
              "device_order": "torus"},
}  # fmt: skip


Look = Callable[[str], tuple[Snapshot, dict[str, Any]]]


@pytest.fixture(scope="module")
def look() -> Iterator[Look]:
    """Return a function that compiles a layout, once, and also returns JAX's facts about the devices."""
    machine = targets.parse(TARGET)
    if lacking := targets.missing_compiler(machine):
        pytest.skip(lacking)
    environment = Environment(1, targets.environment(machine))
    with Pool(workers=1, jobs="tests.compiling.slices_job") as pool:

        @functools.cache
        def looked(name: str) -> tuple[Snapshot, dict[str, Any]]:
            layout = layouts.parse(SMALL | LAYOUTS[name]).unwrap()
            job = pool.submit("look", {"layout": layout.to_json()}, environment, PATIENCE)
            facts = job.wait().answer()
            return snapshot.from_json(facts["snapshot"]), facts

        yield looked


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", LAYOUTS)
def test_devices_have_the_slices_and_places_that_jax_reports(name: str, look: Look) -> None:
    snapshot, looked = look(name)
    assert (snapshot.source.target, snapshot.source.processes) == (TARGET, targets.parse(TARGET).hosts)
    mesh = snapshot.mesh
    ids = list(map(str, mesh.devices))
    assert sorted(ids) == sorted(looked["slice_index"])
    assert list(mesh.slice_index) == [looked["slice_index"][id_] for id_ in ids]
    assert list(mesh.coordinates) == [tuple(looked["coords"][id_][:2]) for id_ in ids]
    assert list(mesh.processes) == [looked["processes"][id_] for id_ in ids]
    # The first axis crosses slices in all layouts, others in none.
    by_axes = np.array(mesh.slice_index).reshape(mesh.shape)
    assert (by_axes == by_axes[(slice(None), *[slice(0, 1)] * (len(mesh.shape) - 1))]).all()
    assert crossing_axes(mesh) == (mesh.axis_names[0],)


def test_gradients_of_data_parallelism(look: Look) -> None:
    snapshot, _ = look("data between slices")
    (step,) = (program for program in snapshot.programs if program.name == "train_step")
    gradients = LAYERS * 2 * DEPTH**2 * 4  # bytes of two float32 kernels a layer
    sent = {
        (row.network, row.mesh_axes, row.op): row.wire_bytes_per_device
        for row in traffic(step.collectives, networks_apart=True)
    }
    # The compiler reduces inside of the slices first, then sends a quarter to the other slice: 2·p·(2−1)/2.
    # The loss adds less than 1 KiB.
    assert sent["dcn", ("data",), "all-reduce"] == pytest.approx(gradients / 4, abs=1024)
    assert sent[None, ("fsdp",), "reduce-scatter"] == pytest.approx(gradients * 3 / 4, abs=1024)
    assert sent[None, ("fsdp",), "all-gather"] == pytest.approx(gradients * 3 / 4, abs=1024)
    assert {axes for network, axes, _ in sent if network == "dcn"} == {("data",)}


@pytest.mark.nightly
def test_one_axis_inside_of_slices_and_between_them(look: Look) -> None:
    (two_axes, _), (one_axis, _) = look("data between slices"), look("one axis of both")

    def sent(snapshot: Snapshot) -> dict[tuple[str | None, str], int | None]:
        rows = traffic(snapshot.program("train_step").collectives, networks_apart=True)
        return {(row.network, row.op): row.wire_bytes_per_device for row in rows}

    # Both compile to the same program.
    assert sent(one_axis) == sent(two_axes)
    link = links_of(one_axis.mesh, targets.parse(TARGET).chip)["data",]
    assert isinstance(link, SliceLink) and (link.slices, link.inside.size) == (2, 4)
    for collective in one_axis.program("train_step").collectives:
        assert collective.mesh_axes == ("data",)
        part = link_of(collective, link)
        assert part.size == collective.group_size
        assert isinstance(part, SliceLink if collective.network == "dcn" else TorusLink)
