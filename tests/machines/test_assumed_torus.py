"""Links of a slice of known shape, against the places that JAX gives to a mesh on such a slice."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from jax.experimental import mesh_utils

from inspector.machines.hardware import CHIPS
from inspector.machines.links import TorusLink
from inspector.machines.mesh_links import links_of
from inspector.records.snapshot import Mesh, MeshAxis


@dataclass(frozen=True)
class Device:
    """What JAX reads of a device to place a mesh."""

    id: int
    coords: tuple[int, ...]
    device_kind: str
    core_on_chip: int = 0
    platform: str = "tpu"
    process_index: int = 0
    slice_index: int = 0


def planned(name: str, topology: tuple[int, ...], sizes: tuple[int, ...]) -> dict[str, TorusLink]:
    axes = tuple(MeshAxis(f"axis{at}", size, "auto") for at, size in enumerate(sizes))
    mesh = Mesh(axes, tuple(range(math.prod(sizes))), topology=topology)
    links = links_of(mesh, CHIPS[name], [(axis.name,) for axis in axes])
    return {axes[0]: link for axes, link in links.items()}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "topology", "sizes"),
    [
        ("v5p", (4, 4, 8), (128,)),
        ("v5p", (4, 4, 8), (8, 16)),
        ("v5p", (4, 4, 8), (32, 4)),
        ("v5p", (4, 8, 8), (4, 8, 8)),
        ("v5p", (4, 4, 4), (4, 1, 16)),
        ("v5e", (16, 16), (256,)),
        ("v5e", (8, 16), (8, 16)),
        ("v5e", (8, 16), (16, 8)),
    ],
)
def test_rings_are_those_of_a_mesh_that_jax_makes(name, topology, sizes) -> None:
    kinds = {"v5p": "TPU v5", "v5e": "TPU v5 lite"}
    places = [(*reversed(place),) for place in np.ndindex(*reversed(topology))]
    devices = [Device(at, (*place, 0, 0)[:3], kinds[name]) for at, place in enumerate(places)]
    mesh = mesh_utils.create_device_mesh(sizes, devices)
    for at, size in enumerate(sizes):
        along = np.moveaxis(mesh, at, 0).reshape(size, -1)[:, 0]
        spans = np.ptp([device.coords[: len(topology)] for device in along], axis=0) + 1
        rings = planned(name, topology, sizes)[f"axis{at}"].rings
        if size > 1:
            assert sorted(ring.size for ring in rings) == sorted(span for span in spans if span > 1)


def test_all_links_of_a_slice_serve_an_axis_over_it() -> None:
    """On a slice of two devices a chip, each of which has half of the links."""
    link = planned("tpu7x", (4, 4, 8), (256,))["axis0"]
    assert sorted(ring.size for ring in link.rings) == [2, 4, 4, 8]
    assert {ring.bytes_per_second for ring in link.rings} == {4.5e10}
    assert [ring.wraps for ring in sorted(link.rings, key=lambda ring: ring.size)] == [
        False,
        True,
        True,
        True,
    ]
    assert "as jax.make_mesh places it" in link.assumption


def test_axes_that_do_not_fit_have_one_torus_axis_each() -> None:
    link = planned("v5e", (4, 8), (32,))["axis0"]
    assert len(link.rings) == 2
    link = planned("v5e", (8, 8), (4, 16))["axis1"]
    assert [ring.size for ring in link.rings] == [16]
