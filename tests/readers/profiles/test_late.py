"""Late devices and hosts: those that were delayed are named, others are not, whatever their clocks."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inspector.assessment.measured import measured_step
from inspector.machines import targets
from inspector.media.terminal import main
from inspector.readers import profile
from inspector.readers.profiles import late
from inspector.records.snapshot import LateDevice, Snapshot, write
from tests.readers.profiles import late_process
from tests.readers.profiles.tpu_files import PROGRAM, TEXT, Operation, Profile, Run

pytestmark = pytest.mark.first_jax_is_enough

DELAY = 200_000  # microseconds
EIGHT = (
    TEXT.replace("num_partitions=4", "num_partitions=8")
    .replace("[4,1]<=[4]", "[8,1]<=[8]")
    .replace("{{0,1,2,3}}", "{{0,1,2,3,4,5,6,7}}")
)


def run_of(number: int, pause: int = 0, idle: int = 0, product: int = 0, wait: int = 0) -> Run:
    """Return a run whose all-reduce begins later by pause + idle + product, and lasts longer by `wait`.

    All of its times are in microseconds. Runs with the same sum end together.
    """
    at = idle + product
    return Run(
        number * 300_000 + pause,
        240 + at + wait,
        [
            Operation("product.1", 0, 115 + product),
            Operation("all-reduce-start.4", 121 + at, 1),
            Operation("sine.5", 125 + at, 20),
            Operation("all-reduce-done.4", 146 + at, 36 + wait),
            Operation("sum.6", 200 + at + wait, 40),
        ],
        id=number,
    )


def moved(run: Run, by: int) -> Run:
    return Run(run.start + by, run.microseconds, run.operations, run.asynchronous, run.id)


def job(
    folder: Path,
    delayed: Callable[[int, int], bool],
    kind: str = "pause",
    runs: int = 12,
    clocks: int = 0,
    missing: tuple[int, ...] = (),
) -> Snapshot:
    """Return a job of eight hosts with one device each, whose clocks differ by so many microseconds.

    The hosts in `missing` lack the first run.
    """
    for host in range(8):
        own = [
            moved(
                run_of(
                    number,
                    **({kind: DELAY} if delayed(host, number) else {"wait": DELAY} if late_run else {}),
                ),
                clocks * host,
            )
            for number in range(runs)
            for late_run in [any(delayed(other, number) for other in range(8))]
            if not (host in missing and number == 0)
        ]
        hlo = {f"jit_step({PROGRAM})": EIGHT}
        Profile({0: own}, hlo).write(folder / f"plugins/profile/run/host-{host}.xplane.pb")
    return profile.read(folder, "trace")


def late_of(snapshot: Snapshot) -> tuple[LateDevice, ...]:
    return next(
        program.trace.late
        for program in snapshot.programs
        if program.trace is not None and program.trace.late
    )


def traces(snapshot: Snapshot) -> list[tuple[LateDevice, ...]]:
    return [program.trace.late for program in snapshot.programs if program.trace is not None]


def third(host: int, run: int) -> bool:
    return host == 5 and run % 3 == 0


@pytest.mark.parametrize("kind", ["pause", "idle", "product"])
def test_a_host_that_is_late_in_every_third_run_is_named_with_its_cause(kind: str, tmp_path: Path) -> None:
    snapshot = job(tmp_path, third, kind)
    (named,) = late_of(snapshot)
    assert (named.kind, named.name, named.runs, named.of) == ("host", "host-5", 4, 12)
    assert named.seconds == pytest.approx(0.2, rel=1e-3)
    assert named.collective == "all-reduce-done.4"
    assert named.cause == {"product": "computation"}.get(kind, kind)
    assert named.operation == ("product.1" if kind == "product" else None)
    (program,) = snapshot.programs
    measured = measured_step(snapshot, program, targets.chip_of(snapshot))
    assert measured is not None
    (sentence,) = measured.late
    assert "host-5" in sentence and "4 of 12 runs" in sentence and "200 ms" in sentence
    assert ("product.1" in sentence) == (kind == "product")


def test_a_host_that_is_late_in_every_run_is_named(tmp_path: Path) -> None:
    (named,) = late_of(job(tmp_path, lambda host, run: host == 2))
    assert (named.name, named.runs, named.of) == ("host-2", 12, 12)


def test_two_late_hosts_are_both_named(tmp_path: Path) -> None:
    named = late_of(job(tmp_path, lambda host, run: host in (1, 6) and run % 2 == 0))
    assert {(host.name, host.runs) for host in named} == {("host-1", 6), ("host-6", 6)}


def test_delays_of_another_host_each_time_name_none(tmp_path: Path) -> None:
    assert traces(job(tmp_path, lambda host, run: host == run % 8)) == [()]


def test_a_balanced_job_names_none(tmp_path: Path) -> None:
    assert traces(job(tmp_path, lambda host, run: False)) == [()]


@pytest.mark.parametrize("clocks", [3_000_000, 170_000])
def test_clocks_that_differ_by_seconds_change_nothing(clocks: int, tmp_path: Path) -> None:
    same, other = (job(tmp_path / str(own), third, clocks=own) for own in (0, clocks))
    assert late_of(same) == late_of(other)


@pytest.mark.parametrize("missing", [(5,), (0,), (1, 2, 5)])
def test_profiles_that_begin_a_run_later_are_aligned(missing: tuple[int, ...], tmp_path: Path) -> None:
    (named,) = late_of(
        job(tmp_path, lambda host, run: host == 5 and run % 3 == 1, clocks=10**6, missing=missing)
    )
    assert (named.name, named.runs, named.cause) == ("host-5", 4, "pause")


def test_a_run_that_one_host_lacks_does_not_count(tmp_path: Path) -> None:
    runs = {
        device: [run_of(run, **({"product": 30} if device == 2 else {"wait": 30})) for run in range(6)]
        for device in range(4)
    }
    del runs[1][3]
    Profile(runs).write(tmp_path / "host.xplane.pb")
    (named,) = late_of(profile.read(tmp_path, "trace"))
    assert (named.name, named.runs, named.of) == ("2", 5, 5)


def test_a_device_of_one_host_is_named(tmp_path: Path) -> None:
    runs = {
        device: [run_of(run, **({"product": 30} if device == 2 else {"wait": 30})) for run in range(6)]
        for device in range(4)
    }
    Profile(runs).write(tmp_path / "host.xplane.pb")
    (named,) = late_of(profile.read(tmp_path, "trace"))
    assert (named.kind, named.name, named.runs, named.of) == ("device", "2", 6, 6)
    assert (named.cause, named.operation) == ("computation", "product.1")


def random_recording(
    random: np.random.Generator, noise: str, units: int, delay: float = 0.0, runs: int = 18
) -> late.Recording:
    """Return a recording of hosts whose waits vary; the last one is late in every third run by `delay`."""
    draw = {
        "normal": lambda: np.abs(random.normal(0.0, 0.1, (units, runs))),
        "exponential": lambda: random.exponential(0.1, (units, runs)),
        "long": lambda: random.lognormal(-3.0, 1.5, (units, runs)),
    }[noise]
    arrival = draw()
    arrival[-1, ::3] += delay
    end = arrival.max(axis=0)
    first = 3.0 * np.arange(runs)
    device, run = (axis.reshape(-1) for axis in np.indices((units, runs)))
    own = np.concatenate([(1 + arrival).reshape(-1), (end - arrival).reshape(-1)])
    names = [str(unit) for unit in range(units)]
    return late.Recording(
        np.tile(device, 2),
        np.tile(run, 2),
        np.repeat([0, 1], units * runs),
        own,
        ("dot.1", "all-reduce.2"),
        ("dot", "all-reduce"),
        np.tile(first, (units, 1)),
        np.tile(first + 1 + end, (units, 1)),
        np.arange(units),
        names,
        names,
        True,
    )


@pytest.mark.parametrize("noise", ["normal", "exponential", "long"])
@pytest.mark.parametrize("units", [2, 3, 8, 32])
def test_noise_names_a_host_in_at_most_one_of_twenty_profiles(noise: str, units: int) -> None:
    random = np.random.default_rng(7)
    named = sum(bool(late.late_devices(random_recording(random, noise, units))) for _ in range(200))
    assert named <= 10


@pytest.mark.parametrize("noise", ["normal", "exponential"])
@pytest.mark.parametrize("units", [2, 3, 8, 32])
def test_a_delay_is_found_in_noise(noise: str, units: int) -> None:
    random = np.random.default_rng(7)
    for _ in range(50):
        (named,) = late.late_devices(random_recording(random, noise, units, delay=3.0))
        assert named.name == str(units - 1) and named.runs == 6
        assert (named.cause, named.operation) == ("computation", "dot.1")


PROCESSES = 8


@pytest.mark.nightly
@pytest.mark.parametrize("delayed", [2, None])
def test_a_delay_in_one_of_eight_processes_is_named(delayed: int | None, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, late_process.__file__, str(port), str(PROCESSES)]
    number = str(-1 if delayed is None else delayed)
    processes = [
        subprocess.Popen([*command, str(index), number, str(tmp_path)], env={"JAX_PLATFORMS": "cpu"})
        for index in range(PROCESSES)
    ]
    try:
        assert [process.wait(300) for process in processes] == [0] * PROCESSES
    finally:
        for process in processes:
            process.kill()
    late_devices = [host for hosts in traces(profile.read(tmp_path, "trace")) for host in hosts]
    if delayed is None:
        assert late_devices == []
        return
    (named,) = late_devices
    assert (named.name, named.runs, named.of) == ("host-2", 6, late_process.STEPS)
    assert named.seconds == pytest.approx(late_process.DELAY, rel=0.2)
    assert named.cause == "pause"


def test_predict_has_the_sentence_as_text_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = job(tmp_path / "trace", third)
    assert measured.mesh is not None
    # No chip is chosen for CPU devices, so predict asks for one.
    on_cpu = replace(measured, mesh=replace(measured.mesh, device_kind="cpu"))
    for name, own in (("chip", measured), ("cpu", on_cpu)):
        file = tmp_path / f"{name}.json"
        write(own, file)
        assert not main(["predict", str(file), "--json"])
        (sentence,) = json.loads(capsys.readouterr().out)["measured"]["late"]
        assert "host-5" in sentence
        assert not main(["predict", str(file)])
        printed = " ".join(capsys.readouterr().out.split())
        assert sentence in printed
