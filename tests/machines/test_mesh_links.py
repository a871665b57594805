"""Links of mesh axes: assumed ones, and those between coordinates on a torus."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.hlo.replica_groups import axes_of_groups
from inspector.machines.hardware import CHIPS, chip
from inspector.machines.links import NodeLink, NoLink, Ring, TorusLink, effective_bytes_per_second
from inspector.machines.mesh_links import _groups, link_of, links_of
from inspector.records.snapshot import Collective, Mesh, MeshAxis
from inspector.text.errors import InvalidInput
from tests.machines import torus

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
def test_link_has_the_size_of_its_group(sizes, on) -> None:
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
def test_groups_of_mesh_axes(sizes, data) -> None:
    these = mesh(*sizes)
    split = [axis.name for axis in these.axes if axis.size > 1]
    axes = tuple(name for name in split if data.draw(st.booleans()))
    groups = tuple(tuple(int(one) for one in group) for group in _groups(axes, these))
    assert axes_of_groups(groups, these) == axes


def test_assumed_axis_wraps_by_the_rule_of_the_chip() -> None:
    cube = links_of(mesh(4, 4, 4), chip("v4"))
    assert all(ring.wraps for link in cube.values() for ring in link.rings)
    assert len(cube["a", "b", "c"].rings) == 3
    (small,) = links_of(mesh(4), chip("v5p")).values()
    assert not small.rings[0].wraps
    assert "without wrap-around" in small.assumption
    pod = links_of(mesh(16, 8), chip("v5e"))
    assert [pod[name,].rings[0].wraps for name in "ab"] == [True, False]


def test_short_mesh_axes_share_a_torus_axis() -> None:
    links = links_of(mesh(2, 16, 2), chip("v5e"))
    one_way = chip("v5e").network.bytes_per_second
    assert [links[name,].rings[0].bytes_per_second for name in "abc"] == [
        one_way / 2,
        one_way,
        one_way / 2,
    ]
    assert "shares a torus axis with 1 other mesh axis" in links["a",].assumption
    assert not links["a",].rings[0].wraps


def test_long_axis_is_folded() -> None:
    (found,) = links_of(mesh(64), chip("v5e")).values()
    assert found.rings[0].wraps and "folded" in found.assumption


def test_devices_of_a_chip_share_assumed_links() -> None:
    (found,) = links_of(mesh(8), chip("tpu7x")).values()
    assert found.rings[0].bytes_per_second == chip("tpu7x").network.bytes_per_second / 2
    assert "share its links" in found.assumption


def test_more_chips_than_a_pod_have_no_link() -> None:
    no_link = links_of(mesh(512), chip("v6e"))["a",]
    assert isinstance(no_link, NoLink)
    assert "512 chips" in no_link.assumption and "256" in no_link.assumption


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
    node_link = links_of(mesh(*sizes), chip("h100"), [tuple(axes)])[tuple(axes)]
    assert isinstance(node_link, NodeLink)
    assert (node_link.members, node_link.nodes) == (members, nodes)
    assert node_link.shared_bytes_per_second == 400e9 * members / 8


def test_uneven_groups_across_nodes() -> None:
    link = links_of(mesh(4, 3), chip("h100"), [("b",)])["b",]
    assert link.nodes == 2 and "Groups differ" in link.assumption


def test_unknown_mesh_axis() -> None:
    with pytest.raises(InvalidInput, match="'z'"):
        links_of(mesh(2, 4), chip("v5p"), [("z",)])


def test_axes_of_size_one() -> None:
    these = mesh(*[1] * 20, 8)
    for on in (chip("v5p"), chip("h100")):
        ((axes, link),) = links_of(these, on).items()
        assert axes == (these.axis_names[-1],) and link.size == 8
        assert links_of(these, on, [()])[()].size == 1


V5P = chip("v5p")
LINK = V5P.network.bytes_per_second
HOP = V5P.network.hop_seconds

tori = st.tuples(*[st.integers(1, 6)] * 3).filter(lambda lengths: math.prod(lengths) > 1)
three_booleans = st.tuples(*[st.booleans()] * 3)


@given(tori, three_booleans, st.permutations(range(3)))
def test_mesh_axis_on_a_whole_torus_axis(lengths, wraps, turn) -> None:
    sizes = [lengths[axis] for axis in turn]
    chips = [None] * math.prod(lengths)
    for place in range(len(chips)):
        x = place // (sizes[1] * sizes[2]), place // sizes[2] % sizes[1], place % sizes[2]
        chips[place] = tuple(x[turn.index(axis)] for axis in range(3))
    these = torus.on_torus(lengths, wraps, sizes, chips)
    for name, axis in zip(these.axis_names, turn, strict=True):
        if lengths[axis] == 1:
            continue
        link = links_of(these, V5P)[name,]
        assert link.rings == (Ring(lengths[axis], LINK, HOP, wraps[axis]),)
        assert f"puts {name} ({lengths[axis]}) on {'xyz'[axis]}: a " in link.assumption
        assert ("without wrap-around" in link.assumption) is not wraps[axis]
        if lengths[axis] > 2:  # two chips are neighbors with and without wrap-around
            every = torus.groups(these, {name})
            assert all(torus.is_ring(these, group) == wraps[axis] for group in every)
    everything = links_of(these, V5P, [these.axis_names])[these.axis_names]
    assert {(ring.size, ring.wraps) for ring in everything.rings} == {
        (length, wrapped) for length, wrapped in zip(lengths, wraps, strict=True) if length > 1
    }


@given(
    st.sampled_from([(4, 4), (4, 4, 4), (4, 8, 4), (2, 2, 4), (8, 4, 2)]),
    three_booleans,
    st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=3),
)
def test_shared_links_are_counted_hop_by_hop(lengths, wraps, inner) -> None:
    count = math.prod(lengths)
    if count % math.prod(inner):
        return
    wraps = wraps[: len(lengths)]
    sizes = [count // math.prod(inner), *inner]
    these = torus.on_torus(lengths, wraps, sizes, torus.by_hosts(lengths))
    on = V5P if len(lengths) == 3 else chip("v5e")
    for axes, link in links_of(these, on).items():
        assert link.size == these.ways(axes)
        every = torus.groups(these, axes)
        along = [axis for axis in range(len(lengths)) if len({one[axis] for one in every[0]}) > 1]
        box = math.prod(len({one[axis] for one in every[0]}) for axis in along) == len(every[0])
        if not box or len(along) != len(link.rings):
            assert "line of" in link.name and len(link.rings) == 1
            continue
        for axis, ring in zip(along, link.rings, strict=True):
            values = len({one[axis] for one in every[0]})
            apart, sharing = torus.side_by_side(these, every, axis)
            assert ring.size == values
            assert ring.wraps == (wraps[axis] and values == lengths[axis])
            assert ring.bytes_per_second == on.network.bytes_per_second / sharing
            assert ring.hop_seconds == pytest.approx(apart * on.network.hop_seconds)
            assert (f"{sharing} groups share" in link.assumption) or sharing == 1


@given(tori, three_booleans, st.randoms(use_true_random=False), st.data())
def test_any_order_is_no_faster_than_the_links_of_a_chip(lengths, wraps, shuffling, data) -> None:
    count = math.prod(lengths)
    inner = data.draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    chips = [(x, y, z) for x in range(lengths[0]) for y in range(lengths[1]) for z in range(lengths[2])]
    shuffling.shuffle(chips)
    these = torus.on_torus(lengths, wraps, [count // inner, inner], chips)
    for axes, link in links_of(these, V5P).items():
        assert link.size == these.ways(axes)
        assert link.assumption.startswith("The device order (torus) puts ")
        # Two links along each of three axes bring in at most this.
        inward = 6 * LINK
        assert effective_bytes_per_second(link) * (link.size - 1) / link.size <= inward * 1.000001


def test_torus_order_and_row_major_order() -> None:
    lengths, wraps = (4, 4, 4), (True, True, True)
    torus_order = [(x, y, z) for z in range(4) for y in range(4) for x in range(4)]
    ordered = torus.on_torus(lengths, wraps, (16, 4), torus_order)
    by_hosts = torus.on_torus(lengths, wraps, (16, 4), torus.by_hosts(lengths), device_order="row-major")
    model, same = (links_of(mesh, V5P)["model",] for mesh in (ordered, by_hosts))
    assert model.name == "ring of 4" and same.name == "line of 2 and line of 2"
    assert model.assumption == "The device order (torus) puts model (4) on x: a ring of 4."
    assert "(row-major)" in same.assumption and "2 of the 4 chips along x" in same.assumption
    data, strided = (links_of(mesh, V5P)["data",] for mesh in (ordered, by_hosts))
    assert data.name == "ring of 4 and ring of 4"
    assert [ring.bytes_per_second / LINK for ring in strided.rings] == [0.5, 0.5, 1]
    assert "2 links from one to the next, over links that 2 groups share" in strided.assumption
    assert effective_bytes_per_second(strided) < effective_bytes_per_second(data)


def test_whole_axis_out_of_order_is_a_line() -> None:
    chips = [(x, y, 0) for y in range(4) for x in (0, 2, 1, 3)]
    these = torus.on_torus((4, 4, 1), (True, True, False), (4, 4), chips)
    links = links_of(these, V5P)
    (ring,) = links["model",].rings
    assert not ring.wraps and ring.bytes_per_second < LINK
    assert "modelled as a line of 4" in links["model",].assumption
    assert links["data",].name == "ring of 4"
    # For two axes the order does not matter.
    assert links["data", "model"].name == "ring of 4 and ring of 4"


def test_devices_of_a_chip_share_its_links() -> None:
    v3 = chip("v3")
    these = torus.on_torus((4, 4), (False, True), (4, 8), cores=2)
    links = links_of(these, v3)
    assert [ring.size for ring in links["model",].rings] == [4, 2]
    assert [ring.wraps for ring in links["model",].rings] == [True, False]
    assert "the 2 devices of a chip" in links["model",].assumption
    assert {ring.bytes_per_second for link in links.values() for ring in link.rings} == {
        v3.network.bytes_per_second / 2
    }
    assert "on x: a line of 4 without wrap-around" in links["data",].assumption


def test_coordinates_of_another_torus_are_ignored() -> None:
    these = torus.on_torus((4, 4), (False, False), (4, 4))
    for name in ("v5p", "v3"):  # three axes; two devices a chip
        assert links_of(these, chip(name))["data",].assumption.startswith("Assumed:")
    assert links_of(these, chip("v6e"))["data",].assumption.startswith("The device order")


@pytest.mark.parametrize("order", [None, "<b>"])
def test_unknown_device_order(order: str | None) -> None:
    these = torus.on_torus((4, 4), (False, False), (4, 4), device_order=order)
    assumption = links_of(these, chip("v5e"))["data",].assumption
    assert assumption.startswith("The device order puts data (4) on x")


def test_invalid_coordinates_are_ignored() -> None:
    these = torus.on_torus((4, 4), (False, False), (4, 4))
    broken = dataclasses.replace(these, wraps=(True,))
    assert links_of(broken, chip("v5e"))["data",].assumption.startswith("Assumed:")


# --- Several slices -----------------------------------------------------------------------------


def test_chips_of_two_slices_with_equal_coordinates() -> None:
    v5e = CHIPS["v5e"]
    mesh = torus.on_torus((4, 4), (False, False), (4, 4))
    two = torus.on_slices(2, mesh, (2, 4, 4))
    links = links_of(two, v5e, [("data",), ("model",), ("seq",), ("data", "model"), ("model", "seq")])
    alone = links_of(mesh, v5e, [("data",), ("model",), ("data", "model")])
    # Inside of a slice nothing changes: links are not shared with the other slice.
    for axes, same in (
        (("model",), ("data",)),
        (("seq",), ("model",)),
        (("model", "seq"), ("data", "model")),
    ):
        assert links[axes].rings == alone[same].rings
    across = links["data",]
    assert (across.slices, across.inside.size, across.size) == (2, 1, 2)
    assert across.bytes_per_second == v5e.dcn_bytes_per_second
    both = links["data", "model"]
    assert (both.slices, both.size, both.inside.rings) == (2, 8, alone["data",].rings)


def test_an_axis_that_is_partly_between_slices() -> None:
    tpu7x = CHIPS["tpu7x"]  # two devices a chip share its bandwidth
    mesh = torus.on_torus((2, 2, 4), (False, False, False), (8, 4), cores=2)
    link = links_of(torus.on_slices(4, mesh, (32, 4)), tpu7x, [("data",)])["data",]
    assert (link.slices, link.inside.size) == (4, 8)
    assert link.bytes_per_second == tpu7x.dcn_bytes_per_second / 2
    assert link.inside.rings == links_of(mesh, tpu7x, [("data",)])["data",].rings


def test_slices_without_coordinates() -> None:
    v5e = CHIPS["v5e"]
    slices = tuple(number // 16 for number in range(32))
    axes = (MeshAxis("data", 4), MeshAxis("model", 8))
    whole = Mesh(axes, tuple(range(32)), slice_index=slices)
    links = links_of(whole, v5e)
    assert (links["data",].slices, links["data",].inside.size) == (2, 2)
    assert links["model",] == links_of(Mesh(axes, tuple(range(32))), v5e)["model",]
    # The second axis crosses slices within blocks of two.
    mixed = dataclasses.replace(whole, slice_index=tuple(number // 2 % 2 for number in range(32)))
    assert links_of(mixed, v5e)["model",].slices == 2
    assert links_of(mixed, v5e)["data",].size == 4
    # Some groups have three devices in the first slice, others have five.
    rows = tuple(int(number % 8 > 2) ^ (number // 8 % 2) for number in range(32))
    uneven = dataclasses.replace(whole, slice_index=rows)
    assert isinstance(links_of(uneven, v5e)["model",], NoLink)


@pytest.mark.parametrize("sizes", [(32, 4), (2, 64), (8, 16)])
def test_the_parts_of_a_collective_between_and_inside_of_slices(sizes: tuple[int, int]) -> None:
    mesh = torus.on_torus((8, 8), (False, False), (64,))
    link = links_of(torus.on_slices(2, mesh, sizes), CHIPS["v6e"], [("data",)])["data",]
    fields = {"asynchronous": True, "computation": "main", "executions": 1, "conditional": False}
    fields |= {"mesh_axes": ("data",), "payload_bytes": 8, "wire_bytes_per_device": 4, "name": "a"}
    between = Collective("all-reduce", groups=64, group_size=2, network="dcn", **fields)
    part = link_of(between, link)
    assert (part.size, part.slices, part.bytes_per_second) == (2, 2, link.bytes_per_second)
    whole = Collective("all-to-all", groups=4, group_size=link.size, network="dcn", **fields)
    assert link_of(whole, link) == link
    if link.inside.size > 1:
        inside = Collective("all-gather", groups=8, group_size=link.inside.size, **fields)
        assert link_of(inside, link) == link.inside
