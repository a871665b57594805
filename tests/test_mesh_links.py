"""Which links a mesh axis is taken to use, and that every assumption is said."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.errors import Refused
from inspector.hardware import CHIPS, chip
from inspector.hlo.mesh_axes import axes_of_groups
from inspector.links import NodeLink, NoLink, TorusLink
from inspector.mesh_links import _groups, links_of
from inspector.snapshot import Mesh, MeshAxis

meshes = st.lists(st.sampled_from([1, 2, 3, 4, 8, 16]), min_size=1, max_size=4).filter(
    lambda sizes: math.prod(sizes) <= 4096
)


def mesh(*sizes: int) -> Mesh:
    names = "abcdefghijklmnopqrstuvwxyz"
    return Mesh(
        tuple(MeshAxis(names[number], size) for number, size in enumerate(sizes)),
        tuple(range(math.prod(sizes))),
    )


@given(meshes, st.sampled_from(tuple(CHIPS.values())))
def test_every_axis_has_a_link_as_large_as_its_group(sizes, on) -> None:
    these = mesh(*sizes)
    for axes, link in links_of(these, on).items():
        if isinstance(link, NoLink):
            assert math.ceil(these.size / on.devices) > on.pod_chips
            continue
        if isinstance(link, TorusLink):
            assert link.size == these.ways(axes)
        else:
            assert link.size >= these.ways(axes)
        assert link.assumption.startswith("Assumed:")
        assert all(axis in link.assumption for axis in axes)


@given(meshes, st.data())
def test_groups_are_those_that_the_axes_make(sizes, data) -> None:
    these = mesh(*sizes)
    split = [axis.name for axis in these.axes if axis.size > 1]
    axes = tuple(name for name in split if data.draw(st.booleans()))
    groups = tuple(tuple(int(one) for one in group) for group in _groups(axes, these))
    assert axes_of_groups(groups, these) == axes


def test_an_axis_of_its_own_wraps_around_by_the_chips_rule() -> None:
    cube = links_of(mesh(4, 4, 4), chip("v4"))
    assert all(ring.wraps for link in cube.values() for ring in link.rings)
    assert len(cube["a", "b", "c"].rings) == 3
    (small,) = links_of(mesh(4), chip("v5p")).values()
    assert not small.rings[0].wraps
    assert "without wrap-around" in small.assumption
    pod = links_of(mesh(16, 8), chip("v5e"))
    assert [pod[name,].rings[0].wraps for name in "ab"] == [True, False]


def test_more_mesh_axes_than_torus_axes_share_the_last() -> None:
    found = links_of(mesh(2, 16, 2), chip("v5e"))
    one_way = chip("v5e").network.bytes_per_second
    assert [found[name,].rings[0].bytes_per_second for name in "abc"] == [
        one_way / 2,
        one_way,
        one_way / 2,
    ]
    assert "shares a torus axis with 1 other mesh axis" in found["a",].assumption
    assert not found["a",].rings[0].wraps


def test_an_axis_longer_than_the_torus_is_folded() -> None:
    (found,) = links_of(mesh(64), chip("v5e")).values()
    assert found.rings[0].wraps and "folded" in found.assumption


def test_two_devices_of_a_chip_share_its_links() -> None:
    (found,) = links_of(mesh(8), chip("tpu7x")).values()
    assert found.rings[0].bytes_per_second == chip("tpu7x").network.bytes_per_second / 2
    assert "share its links" in found.assumption


def test_more_chips_than_a_pod_are_not_guessed() -> None:
    found = links_of(mesh(512), chip("v6e"))["a",]
    assert isinstance(found, NoLink)
    assert "512 chips" in found.assumption and "256" in found.assumption


@pytest.mark.parametrize(
    ("sizes", "axes", "members", "nodes"),
    [
        ((2, 4), "a", 2, 1),
        ((2, 4), "ab", 8, 1),
        ((2, 8), "a", 1, 2),
        ((2, 8), "b", 8, 1),
        ((2, 8), "ab", 8, 2),
        ((4, 2, 4), "ab", 2, 4),
        ((16,), "a", 8, 2),
        ((8, 8, 8), "ac", 8, 8),
    ],
)
def test_gpus_fill_nodes_in_mesh_order(sizes, axes, members, nodes) -> None:
    found = links_of(mesh(*sizes), chip("h100"), [tuple(axes)])[tuple(axes)]
    assert isinstance(found, NodeLink)
    assert (found.members, found.nodes) == (members, nodes)
    assert found.shared_bytes_per_second == 400e9 * members / 8


def test_a_group_across_the_edge_of_nodes_is_said_to_be_uneven() -> None:
    found = links_of(mesh(4, 3), chip("h100"), [("b",)])["b",]
    assert found.nodes == 2 and "Groups differ" in found.assumption


def test_an_axis_that_the_mesh_lacks_is_refused() -> None:
    with pytest.raises(Refused, match="'z'"):
        links_of(mesh(2, 4), chip("v5p"), [("z",)])


def test_sizes_of_one_need_no_link_and_no_dimension() -> None:
    these = mesh(*[1] * 20, 8)
    for on in (chip("v5p"), chip("h100")):
        ((axes, link),) = links_of(these, on).items()
        assert axes == (these.axis_names[-1],) and link.size == 8
        assert links_of(these, on, [()])[()].size == 1
