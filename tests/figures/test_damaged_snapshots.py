"""Every figure function returns a figure or None for Snapshots that contradict themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.compiled.device_traffic import DeviceTraffic, device_traffic
from inspector.figures.bars import collective_bars
from inspector.figures.block_map import block_map
from inspector.figures.device_grid import traffic_map, transfer_map
from inspector.figures.linked_maps import cut_of, linked_maps, panel
from inspector.figures.mesh_map import copies_map, mesh_map
from inspector.figures.spec_tree import spec_tree
from inspector.figures.timings import operation_times, steps
from inspector.figures.tree_rows import LayoutColumn, rows_of
from inspector.guides.transfer import Transfer
from inspector.records.snapshot import (
    Array,
    Collective,
    Mesh,
    MeshAxis,
    OperationTime,
    Program,
    Seconds,
    Shard,
    Spec,
    Trace,
)
from inspector.sharding.traffic import traffic

from . import samples

SIZES = st.none() | st.integers(-(2**40), 2**40)
SECONDS = st.none() | st.sampled_from([-1.0, 0.0, 1e-9, 0.3, 1e9, float("inf")])
NAMES = st.sampled_from(["data", "model", "absent", "<b>x</b>"])
TEXTS = st.sampled_from(["a", "a/b", "a/b/c", "/".join("s" * 2000), "", "/", "<b>", "0" * 300])

MESHES = st.sampled_from(
    [
        samples.DEFAULT_MESH,
        samples.mesh(data=1),
        Mesh((), ()),
        Mesh((MeshAxis("data", 4),), (0, 1)),  # fewer devices than the axes need
        Mesh((MeshAxis("data", 2),), (0, 1), (0,)),  # the process of one device is missing
        Mesh((MeshAxis("data", 2),), (), None, "NVIDIA H100"),
        Mesh((MeshAxis("data", 2),), (5, 5), (0, 1), "TPU v5p"),
    ]
)


def _uses_each_axis_once(spec: Spec) -> bool:
    used = [axis for axes in spec for axis in axes or ()]
    return len(set(used)) == len(used)


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    rank = draw(st.integers(0, 3))
    shape = draw(st.none() | st.tuples(*[st.integers(0, 6)] * rank))
    entries = st.none() | st.lists(NAMES, max_size=2).map(tuple)
    index = st.tuples(*[st.tuples(st.integers(0, 4), st.integers(0, 6))] * draw(st.integers(0, 3)))
    specs = st.lists(entries, max_size=4).map(tuple).filter(_uses_each_axis_once)  # no file has others
    shards = st.lists(st.builds(Shard, st.integers(0, 9), index, st.integers(0, 2)), max_size=8).map(tuple)
    return Array(
        path=draw(TEXTS),
        group=draw(st.sampled_from(["params", "opt_state", "other", "batch", "unheard-of"])),
        shape=shape,
        dtype=draw(st.sampled_from(["float32", "unknown", "int2"])),
        spec=draw(st.none() | specs),
        shard_shape=draw(st.none() | st.just(shape)),
        bytes=draw(SIZES),
        bytes_per_device=draw(SIZES),
        replicas=draw(SIZES),
        shards=draw(st.none() | shards),
    )


@pytest.mark.nightly
@given(mesh=MESHES, held=st.lists(arrays(), max_size=5), width=st.sampled_from([200, 480, 1000]))
def test_figures_of_arrays(mesh: Mesh, held: list[Array], width: int) -> None:
    for array in held:
        check(block_map(array, mesh, width_px=width))
        check(mesh_map(array, mesh, width_px=width))
        cut = cut_of([(array, mesh)])
        if cut is not None and array.shape is not None:
            panels = [panel("a", array, mesh, cut, array.shape), panel("b", None, mesh, cut, ())]
            check(linked_maps(panels, array.path, cut, width_px=width))
    check(spec_tree([LayoutColumn("", tuple(held))], None, width_px=width))
    columns = [LayoutColumn("a", tuple(held)), LayoutColumn("b", tuple(held[:1]), {"a/b"})]
    check(spec_tree(columns, mesh, width_px=width))
    toggled = [row.key for row in rows_of(columns)]
    check(spec_tree(columns, mesh, toggled=toggled, width_px=width))


COLLECTIVES = st.builds(
    Collective,
    op=st.sampled_from(["all-reduce", "all-to-all", "collective-permute", "collective-dance"]),
    asynchronous=st.just(False),
    name=TEXTS,
    computation=st.just("main"),
    executions=SIZES,
    conditional=st.booleans(),
    mesh_axes=st.none() | st.lists(NAMES, max_size=2).map(tuple),
    group_size=SIZES,
    groups=SIZES,
    payload_bytes=SIZES,
    wire_bytes_per_device=SIZES,
)


@pytest.mark.nightly
@given(mesh=MESHES, collectives=st.lists(COLLECTIVES, max_size=4), seconds=SECONDS, size=SIZES)
def test_figures_of_programs(
    mesh: Mesh, collectives: list[Collective], seconds: float | None, size: int | None
) -> None:
    check(collective_bars(traffic(collectives)))
    check(traffic_map(device_traffic(collectives, mesh), mesh))
    program = Program(
        "<b>p</b>",
        collectives=tuple(collectives),
        seconds=Seconds(seconds, seconds, seconds, () if seconds is None else (seconds,) * 3),
    )
    check(steps([program]))
    trace = Trace(int(seconds is None), seconds or 0.0, (OperationTime("dot", 1, seconds or 0.0),))
    check(operation_times(trace, mesh.size))


@given(mesh=MESHES, size=st.integers(-(2**40), 2**40))
def test_figures_of_devices(mesh: Mesh, size: int) -> None:
    routes = ((0, 1, size), (7, 0, 3), (0, 0, size))
    check(transfer_map(Transfer(mesh.devices, mesh.devices, routes, ())))
    check(copies_map(mesh, np.full(mesh.size, size), mesh.devices[:1], size))
    sent = np.full((mesh.size, mesh.size), size)
    check(traffic_map(DeviceTraffic(sent, 1, 1), mesh))


@pytest.mark.parametrize("draw", [block_map, mesh_map])
def test_an_array_over_an_absent_mesh_axis_has_no_map(draw: Callable[..., object]) -> None:
    array = dataclasses.replace(samples.kernel(), spec=(("absent",), None))
    assert draw(array, samples.DEFAULT_MESH) is None


def check(figure: object) -> None:
    """Check that this is a figure which Plotly can send to a browser, or None."""
    if figure is not None:
        assert isinstance(figure, go.Figure)
        assert figure.layout.height > 0 and figure.to_json()
