"""Meshes too large to draw: only axes along which all devices are equal are folded."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.figures import mesh_layout
from inspector.figures.block_map import block_map, why_no_map
from inspector.figures.mesh_layout import mesh_grid
from inspector.figures.mesh_map import copies_map, mesh_map
from inspector.sharding import placement as sharding

from . import samples

SPECS = st.lists(
    st.sampled_from([None, ("a",), ("b",), ("c",), ("a", "b"), ("b", "a")]), min_size=1, max_size=3
)


@pytest.mark.nightly
@given(SPECS, st.permutations([64, 32, 16]), st.integers(0, 64 * 32 * 16 - 1), st.booleans())
def test_devices_of_a_cell_are_equal_and_every_block_has_a_cell(spec, sizes, first, other):
    used = set()
    for place, axes in enumerate(spec):  # each mesh axis once
        spec[place] = tuple(axis for axis in axes or () if axis not in used) or None
        used |= set(spec[place] or ())
    mesh = samples.mesh(**dict(zip("abc", sizes, strict=True)))
    assert mesh.size > mesh_layout.MOST_CELLS
    placement = sharding.place((1 << 12,) * len(spec), tuple(spec), mesh)
    also = [np.arange(mesh.size) // (mesh.size // sizes[0])] if other else []  # changes along `a`
    grid = mesh_grid(mesh, [placement.block, *also], first)
    shown = grid.position.reshape(-1)
    assert len(shown) == mesh_layout.cell_count(mesh, grid.folded)
    assert len(shown) * mesh_layout.devices_per_cell(mesh, grid.folded) == mesh.size
    assert set(placement.block[shown]) == set(range(placement.blocks))
    assert first in shown
    # Counted another way: devices that agree in all axes which are drawn.
    place = np.unravel_index(np.arange(mesh.size), sizes)
    drawn = [place[axis] for axis in range(3) if axis not in grid.folded]
    for values in (placement.block, *also):
        seen = {}
        for device, value in enumerate(values.tolist()):
            assert seen.setdefault(tuple(int(at[device]) for at in drawn), value) == value
    assert {"abc"[axis] for axis in grid.folded} == set("abc") - used - ({"a"} if other else set())


def test_a_mesh_that_can_be_drawn_is_not_folded():
    mesh = samples.mesh(data=576, model=16)
    assert mesh.size == mesh_layout.MOST_CELLS
    assert mesh_grid(mesh, [np.zeros(mesh.size)]).folded == ()


@pytest.mark.nightly
def test_131072_devices_are_folded_into_a_small_figure():
    mesh = samples.mesh(data=8192, fsdp=16)
    array = samples.array("params/kernel", (64, 64), (("fsdp",), None), mesh)
    figure = mesh_map(array, mesh)
    said = json.dumps(figure.to_dict()["layout"], default=str)
    assert "131,072 devices" in said and "equal along data 8192: each cell is 8,192 devices" in said
    cells = figure.data[-1]
    assert list(cells.customdata) == list(range(16))
    assert "as device 3" in cells.text[3] and "all of data, fsdp 3" in cells.text[3]
    assert "of 8,192, on 3, 19, … 131059 (8192×)" in cells.text[3]
    assert len(figure.to_json()) < 20_000
    assert len(block_map(array, mesh).to_json()) < 20_000


def test_a_folded_cell_shows_the_chosen_device():
    mesh = samples.mesh(data=8192, fsdp=16)
    copies = np.where(np.arange(mesh.size) % 16 == 5, 100, 0)
    figure = copies_map(mesh, copies, [16 * 77 + 5], 100)
    assert 16 * 77 + 5 in list(figure.data[-1].customdata)
    assert len(figure.data[-1].customdata) == 16


def test_too_many_blocks_have_no_map():
    mesh = samples.mesh(data=8192, fsdp=16)
    array = samples.array("params/kernel", (1 << 17, 4), (("data", "fsdp"), None), mesh)
    assert "131,072 blocks" in why_no_map(array, mesh)
    assert mesh_map(array, mesh) is None and block_map(array, mesh) is None
