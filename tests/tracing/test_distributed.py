"""Tests of several processes on one mesh."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.processes import PATIENCE, alive, until
from inspector import layout as layouts
from inspector.compiling.run_layout import run_layout
from inspector.jobs import lanes
from inspector.jobs.agreement import disagreements
from inspector.jobs.engine import Environment, Pool
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.records.snapshot import Snapshot, from_json
from inspector.sharding import placement
from inspector.tracing.model.abstract import abstract_state

pytestmark = pytest.mark.close_to_jax

SMALL = {"batch": "8", "layers": "1", "depth": "32", "steps": "2"}
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
LISTENING = "0A"

LAYOUTS = {
    "device axes, a loss with labels": {"model": "mlp", "loss": "mse"},
    "scan, two axes on one dimension": {
        "scan": "true", "layers": "2", "mesh": "2x2x2", "axes": "a,b,c",
        "rules": "layer=b,batch=a,hidden=c+a",
    },
    "FSDP, nothing constrained": {
        "mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp", "unconstrained": "y,z",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def service() -> Iterator[Inspection]:
    service = Inspection(run_workers=2)
    yield service
    service.close()


@pytest.fixture(scope="module")
def several() -> Iterator[Pool]:
    """Yield a pool of one worker for the jobs that inspect its processes."""
    with Pool(workers=1, jobs="tests.tracing.several") as pool:
        yield pool


def layout_of(fields: dict[str, str]) -> Layout:
    return layouts.parse(SMALL | fields).unwrap()


def planned(layout: Layout) -> Snapshot:
    """Plan in this process, which needs no worker."""
    return plan(layout, abstract_state(layout))


def run(service: Inspection, layout: Layout) -> Snapshot:
    return service.run(layout, planned(layout)).answer()


def gone(pids: list[int]) -> None:
    for pid in pids:
        until(lambda pid=pid: not alive(pid), f"the end of {pid}")


def processes_of(pid: int) -> list[int]:
    """Return the process ids of a worker in process order."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def without_devices(snapshot: Snapshot) -> list[tuple]:
    """Return every array with its shards in mesh order, without device ids."""
    return [
        (
            *(array.path, array.group, array.shape, array.dtype, array.logical_axes, array.spec),
            *(array.shard_shape, array.bytes, array.bytes_per_device, array.replicas, array.box),
            [(shard.index, shard.replica) for shard in placement.shards(array, snapshot.mesh)],
        )
        for array in snapshot.arrays
    ]


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", LAYOUTS)
def test_two_processes_give_the_same_arrays_as_one(service, name) -> None:
    layout = layout_of(LAYOUTS[name])
    alone = run_layout(layout, lambda *_, **__: None)
    snapshot = run(service, layout_of(LAYOUTS[name] | {"processes": "2"}))
    # Both equal the plan.
    assert snapshot.findings == disagreements(planned(layout), alone) == ()
    assert without_devices(snapshot) == without_devices(alone)
    assert (snapshot.source.processes, alone.source.processes) == (2, 1)
    assert snapshot.mesh.devices == (0, 1, 2, 3, 2048, 2049, 2050, 2051)
    assert snapshot.mesh.processes == (0,) * 4 + (1,) * 4
    for array in snapshot.arrays:
        shards = placement.shards(array, snapshot.mesh)
        assert [(s.device, s.process) for s in shards] == list(
            zip(snapshot.mesh.devices, snapshot.mesh.processes, strict=True)
        )
        if array.facts is not None:
            assert (array.facts.placement, array.facts.fully_addressable) == (
                "several processes",
                False,
            )
            assert (array.facts.addressable_shards, array.facts.global_shards) == (4, 8)
    for program, other in zip(snapshot.programs, alone.programs, strict=True):
        assert program.shardings == other.shardings
        assert program.losses == pytest.approx(other.losses, rel=1e-4)
        assert len(program.seconds.steps) == len(other.seconds.steps)
    assert {row.device for row in snapshot.live} == set(snapshot.mesh.devices)
    assert from_json(snapshot.to_json()) == snapshot


@pytest.mark.nightly
def test_two_processes_measure_timeit_and_four_run(service) -> None:
    # Timeit measures for seconds, and each process keeps one core busy.
    snapshot = run(service, layout_of({"processes": "2", "timeit": "true", "mesh": "2x1"}))
    assert snapshot.program("train_step").seconds.timeit.mean > 0
    snapshot = run(service, layout_of({"processes": "4", "mesh": "4x2"}))
    assert snapshot.findings == ()
    assert snapshot.mesh.devices == (0, 1, 2048, 2049, 4096, 4097, 6144, 6145)
    assert snapshot.mesh.processes == (0, 0, 1, 1, 2, 2, 3, 3)


@pytest.mark.nightly
@pytest.mark.parametrize("count", [2, 4])
def test_devices_and_shards_of_each_process(several, count) -> None:
    job = several.submit("facts", {}, Environment(8, processes=count)).wait(PATIENCE)
    assert job.state == "done", job.error
    share = 8 // count
    facts = job.result["processes"]
    devices = [[2048 * p + d, p] for p in range(count) for d in range(share)]
    for number, fact in enumerate(facts):
        assert (fact["index"], fact["count"]) == (number, count)
        assert fact["devices"] == devices
        assert fact["local"] == [2048 * number + d for d in range(share)]
        assert fact["sum"] == sum(range(32))
        assert fact["shards"] == [
            [2048 * number + d, list(range(4 * (share * number + d), 4 * (share * number + d + 1)))]
            for d in range(share)
        ]
    assert len({one["pid"] for one in facts}) == count


@pytest.mark.nightly
def test_every_socket_is_on_loopback(several, monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:9")  # an address without a server
    environment = Environment(4, (("WITH_PROXY", "1"),), processes=2)
    job = several.submit("facts", {}, environment).wait(PATIENCE)
    assert job.state == "done", job.error
    listening = 0
    for one in job.result["processes"]:
        # The host name can resolve to loopback, so sockets alone prove nothing.
        assert one["collectives"] == ["127.0.0.1"]
        for socket in one["sockets"]:
            _, state, address = socket.split()
            assert address in LOOPBACK, socket
            listening += state == LISTENING
    assert listening >= 3, "the coordinator and both ends of the collectives"


@pytest.mark.nightly
def test_values_are_gathered_in_process_order(several) -> None:
    job = several.submit("gather", {}, Environment(4, processes=4)).wait(PATIENCE)
    assert job.state == "done", job.error
    expected = [{"text": "é" * 1000 * number, "number": number} for number in range(4)]
    assert job.result == {"gathered": [expected] * 4, "agreed": [7] * 4}


@pytest.mark.first_jax_is_enough
@pytest.mark.nightly_but_first
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("kill", "was killed (SIGKILL) during collective; nothing was saved"),
        ("abort", "crashed (SIGABRT) during collective, saying “Check failed: 3 == 2”"),
        ("raise", "failed: ValueError: this process failed"),
    ],
)
def test_a_process_that_ends_during_a_collective(several, number, how, message) -> None:
    environment = Environment(4, processes=2)
    several.warm(environment)
    job = several.submit("wait_for_one", {"number": number, "how": how}, environment)
    until(lambda: job.status().progress or job.finished)
    pids = processes_of(job.status().progress["pid"])
    assert len(pids) == 2
    job.wait(PATIENCE)
    assert job.state == "failed"
    assert job.error.startswith(f"Process {number} (of 2, counted from 0) {message}"), job.error
    gone(pids)
    assert several.submit("gather", {}, environment).wait(PATIENCE).state == "done"


@pytest.mark.nightly
def test_the_next_run_works_after_a_killed_process_and_after_a_cancel(service) -> None:
    layout = layout_of({"processes": "2", "steps": "10000", "depth": "64"})
    for number in (1, "cancel"):
        job = service.run(layout, planned(layout)).start()
        until(lambda job=job: job.status().phase == "steps" or job.finished)
        assert job.state == "running", job.error
        (seat,) = [seat for seat in service.pool.workers(lanes.RUNS) if seat.busy]
        pids = processes_of(seat.pid)
        assert len(pids) == 2
        if number == "cancel":
            job.cancel()
            assert job.error.startswith("Cancelled during steps")
        else:
            os.kill(pids[number], signal.SIGKILL)
            # The killed process reports its own phase, which can be one behind the first.
            assert re.match(
                rf"Process {number} \(of 2, counted from 0\) was killed \(SIGKILL\) during "
                "(first run|steps);",
                job.wait(PATIENCE).error,
            )
        gone(pids)
    assert run(service, layout_of({"processes": "2", "depth": "64"})).findings == ()


@pytest.mark.nightly
def test_too_little_memory_is_refused_and_workers_stay(service) -> None:
    layout = layout_of({"processes": "2"})
    run(service, layout)
    before = {seat.pid for seat in service.pool.workers(lanes.RUNS)}
    payload = {"layout": layout.to_json(), "memory": 10_000}
    job = service.pool.submit("run", payload, Environment(8, processes=2), lane=lanes.RUNS).wait(PATIENCE)
    assert job.error.startswith("this layout as compiled needs about")
    run(service, layout)
    assert {seat.pid for seat in service.pool.workers(lanes.RUNS)} == before
