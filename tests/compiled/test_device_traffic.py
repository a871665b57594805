"""Bytes between devices match the definition of wire bytes, and small rings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.compiled.device_traffic import device_traffic
from inspector.records.collectives import OPERATIONS
from inspector.records.snapshot import Collective, Mesh
from tests.figures.samples import mesh

FULL = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all")


def collective(op: str, axes: tuple[str, ...] | None, payload: int | None, on: Mesh, **other) -> Collective:
    group = None if axes is None else math.prod(on.ways((axis,)) for axis in axes)
    given_ = {
        "asynchronous": False, "name": op, "computation": "main", "executions": 1,
        "conditional": False, "group_size": group, "groups": on.size // group if group else None,
        "payload_bytes": payload, "wire_bytes_per_device": OPERATIONS[op].wire_bytes(payload, group),
    }  # fmt: skip
    return Collective(op=op, mesh_axes=axes, **(given_ | other))


@st.composite
def programs(draw: st.DrawFn) -> tuple[Mesh, list[Collective]]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    on = mesh(**dict(zip("abcd", sizes, strict=False)))
    several = draw(
        st.lists(
            st.tuples(
                st.sampled_from(FULL),
                st.sets(st.sampled_from(on.axis_names)),
                st.integers(0, 10**9),
                st.integers(0, 126),
            ),
            max_size=6,
        )
    )
    return on, [
        collective(op, tuple(a for a in on.axis_names if a in axes), payload, on, executions=executions)
        for op, axes, payload, executions in several
    ]


@given(programs())
def test_device_sends_its_wire_bytes(
    program: tuple[Mesh, list[Collective]],
) -> None:
    on, several = program
    result = device_traffic(several, on)
    expected = sum(collective.executions * collective.wire_bytes_per_device for collective in several)
    assert result.sent.sum(axis=1).tolist() == [expected] * on.size
    assert result.sent.sum(axis=0).tolist() == [expected] * on.size, "each device also receives them"
    assert not np.diagonal(result.sent).any()
    assert (result.counted, result.left_out) == (len(several), 0)


@given(programs(), st.data())
def test_bytes_stay_inside_groups(program: tuple[Mesh, list[Collective]], data: st.DataObject) -> None:
    on, several = program
    for one in several[:1]:
        sent = device_traffic([one], on).sent
        coordinates = np.array(np.unravel_index(np.arange(on.size), on.shape))
        for source, target in zip(*np.nonzero(sent), strict=True):
            differing = {
                name
                for name, a, b in zip(
                    on.axis_names, coordinates[:, source], coordinates[:, target], strict=True
                )
                if a != b
            }
            assert differing <= set(one.mesh_axes)


def test_ring() -> None:
    on = mesh(data=2, model=3)
    result = device_traffic([collective("all-reduce", ("model",), 900, on)], on)
    ring = [[0, 1200, 0], [0, 0, 1200], [1200, 0, 0]]
    assert result.sent.tolist() == np.kron(np.eye(2, dtype=int), ring).tolist()
    over_data = device_traffic([collective("all-gather", ("data",), 900, on)], on).sent
    assert over_data.tolist() == (450 * np.kron([[0, 1], [1, 0]], np.eye(3, dtype=int))).tolist()


def test_all_to_all() -> None:
    on = mesh(data=2, model=4)
    sent = device_traffic([collective("all-to-all", ("model",), 400, on)], on).sent
    everybody = 100 * (1 - np.eye(4, dtype=int))
    assert sent.tolist() == np.kron(np.eye(2, dtype=int), everybody).tolist()


def test_permute_and_broadcast() -> None:
    on = mesh(data=4)
    pairs = ((0, 1), (1, 2), (3, 3))
    permute = collective("collective-permute", ("data",), 10, on, executions=3, source_target_pairs=pairs)
    assert device_traffic([permute], on).sent.tolist() == [
        [0, 30, 0, 0], [0, 0, 30, 0], [0, 0, 0, 0], [0, 0, 0, 0],
    ]  # fmt: skip
    broadcast = collective("collective-broadcast", ("data",), 10, on)
    assert device_traffic([broadcast], on).sent.sum(axis=1).tolist() == [10, 10, 10, 0]


def test_groups_without_axes_are_rings_in_their_order() -> None:
    on = mesh(data=5)
    odd = collective(
        "all-gather", None, 30, on, group_size=None, wire_bytes_per_device=20,
        device_groups=((0, 3, 1), (4, 2)),
    )  # fmt: skip
    sent = device_traffic([odd], on).sent
    assert {(int(a), int(b)) for a, b in np.argwhere(sent)} == {
        (0, 3),
        (3, 1),
        (1, 0),
        (4, 2),
        (2, 4),
    }


@pytest.mark.parametrize(
    "unknown",
    [
        {"executions": None},
        {"wire_bytes_per_device": None},
        {"mesh_axes": None},
        {"mesh_axes": ("other",)},
        {"mesh_axes": None, "device_groups": ((0, 99),)},
        {"op": "collective-permute", "source_target_pairs": None},
        {"op": "collective-permute", "source_target_pairs": ((0, 99),)},
        {"executions": 2**40, "wire_bytes_per_device": 2**40},
    ],
)
def test_unknown_collective_is_left_out(unknown: dict) -> None:
    on = mesh(data=2, model=2)
    known = collective("all-reduce", ("data",), 8, on)
    fields = {name: getattr(known, name) for name in Collective.__dataclass_fields__} | unknown
    result = device_traffic([known, Collective(**fields)], on)
    assert (result.counted, result.left_out) == (1, 1)
    assert result.sent.tolist() == device_traffic([known], on).sent.tolist()
    never = Collective(**(fields | {"executions": 0}))
    assert device_traffic([never], on).left_out == 0, "it never runs"


def test_512_devices_and_thousands_of_collectives() -> None:
    on = mesh(data=16, fsdp=8, model=4)
    several = [
        collective(op, axes, 1000 + number, on)
        for number in range(500)
        for op in FULL
        for axes in (("data",), ("fsdp", "model"), ("data", "fsdp", "model"))
    ]
    result = device_traffic(several, on)
    assert result.sent.shape == (512, 512)
    total = sum(one.wire_bytes_per_device for one in several)
    assert set(result.sent.sum(axis=1).tolist()) == {total}
