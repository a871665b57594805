"""Tests of host-local arrays in several processes against integer arithmetic."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.processes import PATIENCE
from inspector.guides import processes
from inspector.guides.processes import Exchanged, HostLocal, script
from inspector.jobs import lanes
from inspector.jobs.engine import Environment
from inspector.jobs.inspection import Inspection
from inspector.records import snapshot as snapshots
from inspector.records import typed_json
from inspector.sharding import placement as sharding

UNEXPLAINED = "for a reason that the shapes do not show"


@pytest.fixture(scope="module")
def service() -> Iterator[Inspection]:
    with contextlib.closing(Inspection(run_workers=1)) as service:
        yield service


def asked(**fields: str) -> HostLocal:
    return processes.parse(fields).unwrap()


def exchange(service: Inspection, wanted: HostLocal) -> Exchanged:
    return service.exchange(wanted).answer()


@pytest.mark.nightly
def test_the_guides_case(service) -> None:
    wanted = asked()
    exchanged = exchange(service, wanted)
    assert exchanged.refusal is None
    assert exchanged.array.shape == (8, 2)
    assert exchanged.mesh == wanted.mesh()
    for number, view in enumerate(exchanged.views):
        assert (view.process, view.processes, view.all_devices) == (number, 2, 8)
        assert view.devices == tuple(range(2048 * number, 2048 * number + 4))
        assert view.local_mesh == (4,)
        assert (view.fully_addressable, view.fully_replicated) == (False, False)
        assert (len(view.addressable), view.global_shards, view.without_data) == (4, 8, 4)
        assert [held.index for held in view.addressable] == [
            ((row, row + 1), (0, 2)) for row in range(4 * number, 4 * number + 4)
        ]
        assert [held.values for held in view.addressable] == [
            (2 * row, 2 * row + 1) for row in range(4 * number, 4 * number + 4)
        ]
        assert "spans non-addressable" in view.reading
        assert (view.returned_shape, view.returned) == ((4, 2), view.given)
    assert "one global array of (8, 2)" in processes.verdict(wanted, exchanged)


@pytest.mark.nightly
def test_the_guides_mistake(service) -> None:
    wanted = asked(convert="false")
    exchanged = exchange(service, wanted)
    assert (exchanged.array, exchanged.sharding) == (None, None)
    refusal = exchanged.refusal
    assert (refusal.step, refusal.kind, refusal.processes) == ("jit", "IndivisibleError", (0, 1))
    assert "8 times, but the dimension size is 4" in refusal.text  # JAX's message
    said = processes.verdict(wanted, exchanged)
    assert "dimension 0 should be divisible by 8" in said and "it is equal to 4" in said
    assert said.endswith("host_local_array_to_global_array, which makes (8, 2).")
    assert "\n" not in refusal.text


@pytest.mark.nightly
def test_a_mistake_without_a_jax_error_is_explained(service) -> None:
    wanted = asked(convert="false", local="8x2")
    exchanged = exchange(service, wanted)
    assert "numpy" in exchanged.refusal.text
    assert "It divides" in processes.verdict(wanted, exchanged)


@pytest.mark.nightly
def test_different_replicas_are_found(service) -> None:
    wanted = asked(spec="None")
    exchanged = exchange(service, wanted)
    assert exchanged.refusal is None and exchanged.views[0].fully_replicated
    assert (0, 2048) in processes.differing_copies(exchanged)
    assert "JAX does not check" in processes.verdict(wanted, exchanged)
    same = exchange(service, asked(spec="None", data="same"))
    assert processes.differing_copies(same) == ()
    assert same.views[0].reading is None, "what is whole here can be read here"


@pytest.mark.nightly
def test_the_snapshot_of_an_exchange(service) -> None:
    for fields, codes in (
        ({}, []),
        ({"convert": "false"}, ["refused-by-jax"]),
        ({"spec": ""}, ["different-copies"]),
    ):
        wanted = asked(**fields)
        exchanged = exchange(service, wanted)
        snapshot = processes.snapshot(wanted, exchanged)
        again = snapshots.from_json(snapshot.to_json())
        assert again == snapshot
        assert [finding.code for finding in snapshot.findings] == codes
        kept = again.host_local
        assert typed_json.decode(HostLocal, kept["asked"]) == wanted
        assert typed_json.decode(Exchanged, kept["made"]) == exchanged
        assert snapshot.source.processes == 2


AXES = st.sampled_from(["None", "a", "b", "a+b", "b+a"])


@pytest.mark.nightly
@given(
    mesh=st.sampled_from(["2x4", "4x2", "1x8", "8x1"]),
    spec=st.lists(AXES, max_size=2),
    local=st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=2),
    data=st.sampled_from(["own", "same"]),
    convert=st.sampled_from(["true", "true", "true", "false"]),
)
def test_any_exchange_equals_the_arithmetic(service, mesh, spec, local, data, convert) -> None:
    parsed = processes.parse(
        {
            "mesh": mesh,
            "axes": "a,b",
            "spec": ",".join(spec),
            "local": "x".join(map(str, local)),
            "data": data,
            "convert": convert,
        }
    )
    if parsed.value is None:
        return
    wanted = parsed.value
    exchanged = exchange(service, wanted)
    split = any(ways > 1 for ways in sharding.ways_per_dimension(wanted.spec, wanted.mesh()))
    assert [view.local_mesh for view in exchanged.views] == [
        processes.local_mesh(wanted, number) for number in range(2)
    ]
    said = processes.verdict(wanted, exchanged)
    assert UNEXPLAINED not in said
    if convert == "false":
        assert (exchanged.refusal is None) == (not split)
        return
    shape = processes.global_shape(wanted)
    assert (exchanged.refusal is None) == (shape is not None), said
    if shape is None:
        return
    assert exchanged.array.shape == shape
    placement = sharding.place(shape, wanted.spec, wanted.mesh())
    held = {part.device: part for view in exchanged.views for part in view.addressable}
    for place, device in enumerate(wanted.mesh().devices):
        index = tuple(zip(placement.starts[place].tolist(), placement.stops[place].tolist(), strict=True))
        assert held[device].index == index
    for number, view in enumerate(exchanged.views):
        assert view.returned == view.given == tuple(wanted.given(number).ravel().tolist())
        # The shards of a process form its local array.
        whole = np.full(shape, -1)
        for part in view.addressable:
            window = tuple(slice(*bounds) for bounds in part.index)
            whole[window] = np.array(part.values).reshape(whole[window].shape)
        assert whole[whole >= 0].tolist() == wanted.given(number).ravel().tolist()


@pytest.mark.nightly
def test_devices_that_are_not_a_block_of_the_mesh(service) -> None:
    wanted = asked(mesh="3x4", axes="a,b", spec="b")
    exchanged = exchange(service, wanted)
    assert [view.local_mesh for view in exchanged.views] == [None, None]
    assert "contiguous subcube" in exchanged.refusal.text
    assert "must be a block of the mesh" in processes.verdict(wanted, exchanged)


@pytest.mark.nightly
def test_four_processes(service) -> None:
    wanted = asked(processes="4", mesh="4x2", axes="a,b", spec="a,b", local="2x4")
    exchanged = exchange(service, wanted)
    assert exchanged.array.shape == (8, 4)
    rows = [[held.index[0] for held in view.addressable] for view in exchanged.views]
    assert rows == [[(2 * p, 2 * p + 2)] * 2 for p in range(4)]


@pytest.mark.nightly
def test_a_request_for_other_devices_is_refused(service) -> None:
    payload = {"host_local": asked().to_json()}
    job = service.pool.submit("exchange", payload, Environment(4, processes=2), lane=lanes.RUNS).wait(
        PATIENCE
    )
    assert "for 8 devices in 2 processes" in job.error


@pytest.mark.nightly
@pytest.mark.parametrize("convert", ["true", "false"])
def test_the_script_gives_the_same_arrays(tmp_path: Path, convert: str) -> None:
    path = tmp_path / "several.py"
    path.write_text(script(asked(convert=convert)))
    environment = {name: text for name, text in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if convert == "true":
        assert done.returncode == 0, done.stderr
        for number in range(2):
            assert f"process {number}: (4, 2) -> (8, 2) -> (4, 2), addresses" in done.stdout
    else:
        assert done.returncode != 0 and "IndivisibleError" in done.stderr
