"""Torus coordinates from a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.machines.slices import slices
from inspector.machines.torus_groups import places_of
from inspector.records import typed_json
from inspector.records.snapshot import Mesh
from inspector.text.errors import InvalidInput
from tests.machines import torus

MESH = torus.on_torus((4, 2, 2), (True, False, False), (4, 8), cores=2)


def test_places_from_a_file() -> None:
    torus_places = places_of(MESH)
    assert torus_places.topology == (4, 2, 2) and torus_places.wraps == (True, False, False)
    assert torus_places.coordinates.tolist() == [list(chip) for chip in MESH.coordinates]
    assert torus_places.cores.tolist() == list(MESH.cores) and torus_places.devices_per_chip == 2
    assert torus_places.axis_names == "xyz"


def test_topology_defaults_to_the_bounding_box() -> None:
    assert places_of(replace(MESH, topology=None)).topology == (4, 2, 2)


@pytest.mark.parametrize("name", ["coordinates", "wraps", "cores"])
def test_missing_field(name: str) -> None:
    assert places_of(replace(MESH, **{name: None})) is None  # without cores, two devices have one place


COORDINATES, CORES = MESH.coordinates, MESH.cores


@pytest.mark.parametrize(
    "fields",
    [
        {"wraps": (True, False)},
        {"topology": (4, 2)},
        {"topology": (4, 2, 4)},
        {"topology": (0, 2, 2)},
        {"topology": (2, 4, 2)},
        {"topology": (2**63 - 1, 2, 2)},
        {"coordinates": ()},
        {"coordinates": COORDINATES[:-1]},
        {"coordinates": (*COORDINATES[:-1], COORDINATES[0])},
        {"coordinates": (*COORDINATES[:-1], (3, 1))},
        {"coordinates": (*COORDINATES[:-1], (3, 1, 2**63 - 1))},
        {"coordinates": ((),) * MESH.size},
        {"coordinates": ((),) * MESH.size, "wraps": ()},
        {"cores": CORES[:-1]},
        {"cores": (*CORES[:-1], 9)},
    ],
)
def test_contradicting_fields(fields: dict[str, Any]) -> None:
    assert places_of(replace(MESH, **fields)) is None


@pytest.mark.parametrize(
    ("name", "value", "where"),
    [
        ("wraps", [1, 0, 0], r"wraps\[0\]"),
        ("wraps", "xyz", "wraps"),
        ("topology", [10**30, 2, 2], r"topology\[0\]"),
        ("topology", "4x2x2", "topology"),
        ("coordinates", {"x": 1}, "coordinates"),
        ("coordinates", [[3, 1, -1]], r"coordinates\[0\]\[2\]"),
        ("coordinates", [[3, 1, 1.5]], r"coordinates\[0\]\[2\]"),
        ("coordinates", [[3, 1, None]], r"coordinates\[0\]\[2\]"),
        ("cores", [True], r"cores\[0\]"),
        ("slice_index", ["0"], r"slice_index\[0\]"),
        ("device_order", 7, "device_order"),
    ],
)
def test_a_wrong_type_in_a_file(name: str, value: Any, where: str) -> None:
    plain = typed_json.encode(MESH) | {name: value}
    with pytest.raises(InvalidInput, match=f"^{where} is .*, but must be"):
        typed_json.decode(Mesh, plain)


sizes = st.integers(0, 2**63 - 1)
torus_fields = st.fixed_dictionaries(
    {},
    optional={
        "coordinates": st.lists(st.lists(sizes, max_size=4), max_size=MESH.size).map(
            lambda chips: tuple(map(tuple, chips))
        ),
        "wraps": st.lists(st.booleans(), max_size=4).map(tuple),
        "topology": st.lists(sizes, max_size=4).map(tuple),
        "cores": st.lists(sizes, max_size=MESH.size).map(tuple),
    },
)


@given(torus_fields)
def test_arbitrary_fields(fields: dict[str, Any]) -> None:
    places_of(replace(MESH, **fields))


@pytest.mark.parametrize("generation", ["v4", "v5e", "tpu7x"])
def test_slices(generation: str) -> None:
    for slice_ in slices(generation)[:12]:
        these = torus.on_torus(slice_.shape, slice_.wraps, (slice_.devices,), cores=slice_.chip.devices)
        torus_places = places_of(these)
        assert torus_places.topology == slice_.shape and torus_places.devices_per_chip == slice_.chip.devices
        assert len(np.unique(torus_places.coordinates, axis=0)) == slice_.chips
