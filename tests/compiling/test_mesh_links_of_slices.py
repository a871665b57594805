"""Tests of links of meshes on slices against hops between chip coordinates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inspector.jobs.engine import Environment, Pool
from inspector.machines import targets
from inspector.machines.links import TorusLink
from inspector.machines.mesh_links import links_of
from inspector.machines.torus_groups import places_of
from inspector.records import typed_json
from inspector.records.snapshot import Mesh
from tests.machines import torus

PATIENCE = 300.0  # seconds

# A target, a mesh, an order, and the links that follow.
CASES: dict[str, tuple[str, tuple[int, int], str, dict[str, str]]] = {
    "torus order": (
        "tpu:v5p:4x4x4", (16, 4), "torus",
        {"data": "ring of 4 and ring of 4", "model": "ring of 4"},
    ),
    "row-major": (
        "tpu:v5p:4x4x4", (16, 4), "row-major",
        {"data": "line of 2 and line of 2 and ring of 4", "model": "line of 2 and line of 2"},
    ),
    "a large slice": (
        "tpu:v5p:8x8x8", (64, 8), "torus",
        {"data": "ring of 8 and ring of 8", "model": "ring of 8"},
    ),
    "no wrap-around": (
        "tpu:v5e:4x4", (4, 4), "torus", {"data": "line of 4", "model": "line of 4"},
    ),
    "a split axis": (
        "tpu:v5e:4x4", (2, 8), "torus", {"data": "line of 2", "model": "line of 4 and line of 2"},
    ),
    "two devices a chip": (
        "tpu:v3:4x4", (8, 4), "row-major",
        {"data": "line of 2 and line of 4", "model": "line of 2 and line of 2"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def meshes() -> Iterator[dict[str, Mesh]]:
    machine = targets.parse("tpu:v5p:4x4x4")
    if lacking := targets.missing_compiler(machine):
        pytest.skip(lacking)
    with Pool(workers=1, jobs="tests.compiling.placed") as pool:
        wanted = [(target, sizes, order) for target, sizes, order, _ in CASES.values()]
        job = pool.submit("place", {"wanted": wanted}, Environment(1, targets.environment(machine)), PATIENCE)
        job.wait()
        assert job.state == "done", job.error
        yield dict(zip(CASES, (typed_json.decode(Mesh, one) for one in job.result["meshes"]), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_links_are_those_between_the_coordinates(case: str, meshes: dict[str, Mesh]) -> None:
    target, _, _, names = CASES[case]
    mesh, on = meshes[case], targets.parse(target).chip
    assert places_of(mesh) is not None
    one_way = on.network.bytes_per_second / on.devices
    for axes, link in links_of(mesh, on, [(name,) for name in mesh.axis_names]).items():
        assert isinstance(link, TorusLink)
        assert link.name == names[axes[0]] and link.size == mesh.ways(axes)
        # Each device of a chip has a share of the chip's links.
        every = [sorted(set(group)) for group in torus.groups(mesh, axes)]
        moving = [axis for axis, values in enumerate(zip(*every[0], strict=True)) if len(set(values)) > 1]
        in_mesh_order = torus.groups(mesh, axes)
        rings = [ring for ring in link.rings if len(moving) == 1 and ring.wraps]
        assert all(torus.is_ring(mesh, group) == bool(rings) for group in in_mesh_order)
        for axis, ring in zip(moving, link.rings, strict=False):
            apart, sharing = torus.side_by_side(mesh, every, axis)
            if on.devices > 1 and len(set(map(tuple, every))) < len(every):
                sharing //= on.devices
            assert ring.bytes_per_second == one_way / sharing
            assert ring.hop_seconds == pytest.approx(apart * on.network.hop_seconds)
