"""Torus coordinates from a file."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.machines.slices import slices
from inspector.machines.torus_places import places_of
from tests.machines import torus

MESH = torus.on_torus((4, 2, 2), (True, False, False), (4, 8), cores=2)


def changed(**extra):
    return dataclasses.replace(MESH, extra=MESH.extra | extra)


def without(*names: str):
    kept = {key: value for key, value in MESH.extra.items() if key not in names}
    return dataclasses.replace(MESH, extra=kept)


def test_places_from_a_file() -> None:
    found = places_of(MESH)
    assert found.topology == (4, 2, 2) and found.wraps == (True, False, False)
    assert found.coordinates.tolist() == MESH.extra["coordinates"]
    assert found.cores.tolist() == MESH.extra["cores"] and found.devices_per_chip == 2
    assert found.axis_names == "xyz"


def test_topology_defaults_to_the_bounding_box() -> None:
    assert places_of(without("topology")).topology == (4, 2, 2)


@pytest.mark.parametrize("name", ["coordinates", "wraps", "cores"])
def test_missing_field(name: str) -> None:
    assert places_of(without(name)) is None  # without cores, two devices have one place


COORDINATES, CORES = MESH.extra["coordinates"], MESH.extra["cores"]


@pytest.mark.parametrize(
    "extra",
    [
        {"wraps": [True, False]},
        {"wraps": [1, 0, 0]},
        {"wraps": "xyz"},
        {"wraps": None},
        {"topology": [4, 2]},
        {"topology": [4, 2, 4]},
        {"topology": [0, 2, 2]},
        {"topology": [2, 4, 2]},
        {"topology": [10**30, 2, 2]},
        {"topology": "4x2x2"},
        {"coordinates": []},
        {"coordinates": COORDINATES[:-1]},
        {"coordinates": [*COORDINATES[:-1], COORDINATES[0]]},
        {"coordinates": [*COORDINATES[:-1], [3, 1]]},
        {"coordinates": [*COORDINATES[:-1], [3, 1, -1]]},
        {"coordinates": [*COORDINATES[:-1], [3, 1, 10**30]]},
        {"coordinates": [*COORDINATES[:-1], [3, 1, "1"]]},
        {"coordinates": [*COORDINATES[:-1], [3, 1, 1.5]]},
        {"coordinates": [*COORDINATES[:-1], [3, 1, None]]},
        {"coordinates": [[]] * MESH.size},
        {"coordinates": {"x": 1}},
        {"cores": CORES[:-1]},
        {"cores": [*CORES[:-1], 9]},
        {"cores": [*CORES[:-1], -1]},
        {"cores": 2},
    ],
)
def test_invalid_field(extra) -> None:
    assert places_of(changed(**extra)) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)


@given(st.sampled_from(["coordinates", "wraps", "topology", "cores"]), anything)
def test_arbitrary_json(name: str, value) -> None:
    places_of(changed(**{name: value}))


@pytest.mark.parametrize("generation", ["v4", "v5e", "tpu7x"])
def test_slices(generation: str) -> None:
    for one in slices(generation)[:12]:
        these = torus.on_torus(one.shape, one.wraps, (one.devices,), cores=one.chip.devices)
        found = places_of(these)
        assert found.topology == one.shape and found.devices_per_chip == one.chip.devices
        assert len(np.unique(found.coordinates, axis=0)) == one.chips
