"""Workers that are several processes: one job for all, and none of them outlives another."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.processes import PATIENCE, alive, until
from inspector.jobs.engine import Environment, Pool
from inspector.jobs.engine.job import Job
from tests.jobs.engine.starting import start_worker
from tests.jobs.engine.test_server_end import LINUX, start

TWO, FOUR = Environment(8, processes=2), Environment(8, processes=4)


def together(pool: Pool, *acts: str, timeout: float | None = 600.0) -> Job:
    """Submit a job with one action per process."""
    environment = Environment(8, processes=len(acts))
    return pool.submit("together", {"acts": list(acts)}, environment, timeout=timeout)


@pytest.fixture
def watched(single: Pool, tmp_path: Path) -> Callable[..., tuple[Job, list[int]]]:
    """Has a job done by processes that are known before any of them acts."""

    def begin(*acts: str) -> tuple[Job, list[int]]:
        door = tmp_path / "door"
        door.unlink(missing_ok=True)
        payload = {"acts": list(acts), "door": str(door)}
        job = single.submit("together", payload, Environment(8, processes=len(acts)))
        pids = list(numbered(single, len(acts)).values())
        door.touch()
        return job, pids

    return begin


def members(pool: Pool) -> list[int]:
    """The processes of the only worker, the first one first."""
    (seat,) = until(pool.workers, "a worker")
    return [seat.pid, *sorted(followers(seat.pid))]


def followers(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def numbered(pool: Pool, count: int) -> dict[int, int]:
    """Process number to process id, as soon as all of them have started."""

    def found() -> dict[int, int] | None:
        by_number = {}
        for pid in members(pool):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "inspector.jobs.engine.worker" not in words:
                return None  # forked, but not yet a worker
            arguments = words[words.index("inspector.jobs.engine.worker") + 1 : -1]
            by_number[int(arguments[3]) if len(arguments) > 3 else 0] = pid
        return by_number if len(by_number) == count else None

    return until(found, "all processes")


def gone(pids: list[int]) -> None:
    for pid in pids:
        until(lambda pid=pid: not alive(pid), f"the end of {pid}")


def works(pool: Pool, count: int = 2) -> dict:
    job = together(pool, *["fine"] * count).wait(PATIENCE)
    assert job.state == "done", job.error
    return job.result


@pytest.mark.parametrize("count", [2, 4])
def test_all_processes_run_and_the_first_one_returns_the_result(single, count):
    first = works(single, count)
    assert (first["processes"], first["index"]) == (count, 0)
    pids = members(single)
    assert len(pids) == count and pids[0] == first["pid"]
    assert len({os.getpgid(pid) for pid in pids}) == 1
    assert works(single, count) == first, "they are kept warm"
    assert members(single) == pids


def test_each_process_has_its_devices_and_no_proxy(single, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    works(single, 4)
    for pid in members(single):
        variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
        assert "JAX_NUM_CPU_DEVICES=2" in variables
        assert not [variable for variable in variables if variable.lower().startswith(("http_p", "https_p"))]


def test_a_port_is_on_loopback_and_belongs_to_one_worker(pool):
    addresses = set()
    for environment in (TWO, FOUR):
        acts = ["fine"] * environment.processes
        job = pool.submit("together", {"acts": acts}, environment).wait(PATIENCE)
        addresses.add(job.result["address"])
    assert len(addresses) == 2
    for address in addresses:
        host, port = address.split(":")
        assert host == "127.0.0.1"
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("act", "how"),
    [
        ("killed", "was killed (SIGKILL) during compile"),
        ("abort", "crashed (SIGABRT) during compile, saying “Check failed: 3 == rank (3 vs. 2)”"),
        ("leave", "ended by itself (exit status 7) during working"),
    ],
)
@pytest.mark.parametrize("number", [0, 1, 3])
def test_one_that_dies_ends_the_run_and_the_others(single, watched, act, how, number):
    acts = ["wait"] * 4
    acts[number] = act
    job, pids = watched(*acts)
    job.wait(PATIENCE)
    assert job.state == "failed"
    assert job.error.startswith(
        f"Process {number} (of 4, counted from 0) {how}; nothing was saved, run again to start new ones"
    )
    gone(pids)
    assert works(single, 4)["pid"] not in pids


@pytest.mark.parametrize("number", [0, 1])
def test_one_that_is_killed_from_outside_ends_the_run(single, number):
    job = together(single, "wait", "wait")
    until(lambda: job.status().phase == "working")
    pids = numbered(single, 2)
    os.kill(pids[number], signal.SIGKILL)
    job.wait(PATIENCE)
    assert job.error.startswith(f"Process {number} (of 2, counted from 0) was killed (SIGKILL)")
    gone(list(pids.values()))
    assert works(single)


@pytest.fixture
def causal(single: Pool, tmp_path: Path) -> Callable[..., Job]:
    """Has a job done in which some fail because of another one, however slowly it gets there."""

    def begin(*acts: str) -> Job:
        payload = {"acts": list(acts), "end": str(tmp_path / "-".join(acts))}
        job = single.submit("together", payload, Environment(8, processes=len(acts)))
        return job.wait(PATIENCE)

    return begin


def test_the_cause_is_told_and_not_what_others_met_because_of_it(single, causal):
    job = causal("meet the end", "wait", "meet the end", "die first")
    assert job.error.startswith("Process 3 (of 4, counted from 0) was killed (SIGKILL)")
    job = causal("meet the end", "refuse first")
    assert job.error == "`hidden` is 1023; 4 ways of `model` do not divide it."
    assert works(single)


def test_an_error_of_all_processes_is_reported_once(single):
    before = works(single)
    job = together(single, "refuse", "refuse").wait(PATIENCE)
    assert job.error == "`hidden` is 1023; 4 ways of `model` do not divide it."
    job = single.submit("nothing", {}, TWO).wait(PATIENCE)
    assert job.error.startswith("There is no job 'nothing'")
    assert works(single) == before


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("acts", [("wait", "refuse"), ("refuse", "wait"), ("fine", "refuse")])
def test_a_refusal_by_one_ends_the_others(single, watched, acts):
    job, pids = watched(*acts)
    assert job.wait(PATIENCE).error == "`hidden` is 1023; 4 ways of `model` do not divide it."
    gone(pids)
    assert works(single)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("acts", "error"),
    [
        (("wait", "fail"), "Process 1 (of 2, counted from 0) failed: ValueError: three is not two"),
        (("fail", "wait"), "Process 0 (of 2, counted from 0) failed: ValueError: three is not two"),
        (("fail", "fail"), "ValueError: three is not two"),
    ],
)
def test_an_exception_is_told_with_its_process_unless_all_met_it(single, watched, acts, error):
    job, pids = watched(*acts)
    assert job.wait(PATIENCE).error == error
    assert "Traceback" in job.status().details
    gone(pids)
    assert works(single)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("acts", [("wait", "wait"), ("wait", "stuck"), ("stuck", "wait")])
def test_cancel_stops_all_of_them(single, acts):
    job = together(single, *acts)
    until(lambda: job.status().phase in ("working", "stuck"))
    pids = list(numbered(single, 2).values())
    job.cancel()
    assert job.state == "cancelled"
    gone(pids)
    assert works(single)


def test_cancel_at_any_moment(single):
    chance = random.Random(7)
    for number in range(12):
        job = single.submit("together", {"acts": ["wait", "wait"], "number": number}, TWO)
        job.wait(chance.random() / 4)
        job.cancel()
        assert job.state == "cancelled"
    assert works(single)


def test_a_time_out_stops_all_of_them(single):
    works(single)
    pids = members(single)
    job = together(single, "wait", "wait", timeout=0.5)
    assert "longer than the 0.5 s" in job.wait(PATIENCE).error
    gone(pids)
    assert works(single)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("number", [0, 1])
def test_a_run_works_after_an_idle_process_was_killed(single, number):
    works(single)
    for _ in range(3):
        pids = numbered(single, 2)
        os.kill(pids[number], signal.SIGKILL)
        assert works(single)["pid"] != pids[0]
        gone(list(pids.values()))


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_does_not_join(single, number):
    lonely = Environment(8, (("NO_MEETING", str(number)),), processes=2)
    job = single.submit("together", {"acts": ["fine", "fine"]}, lonely).wait(PATIENCE)
    assert job.error == (f"Process {number} (of 2, counted from 0) failed: RuntimeError: no other process")
    single.warm(lonely)
    until(lambda: not single.workers(), "the end of those that could not be warmed")
    assert works(single)


SERVER = """
import json, sys, time
from inspector.jobs.engine import Environment, Pool
pool = Pool(workers=1, jobs="tests.jobs.engine.jobs")
job = pool.submit("together", {"acts": json.loads(sys.argv[1])}, Environment(4, processes=2))
while job.status().phase not in ("working", "stuck"):
    time.sleep(0.01)
print(pool.workers()[0].pid, flush=True)
sys.stdin.readline()
"""


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM", "SIGINT", "return"])
@pytest.mark.parametrize(
    "acts",
    [
        ("wait", "wait"),
        pytest.param(("stuck", "wait"), marks=LINUX),
        pytest.param(("wait", "stuck"), marks=LINUX),
    ],
)
def test_none_outlives_the_server(acts, ending):
    server = start("-c", SERVER, json.dumps(acts))
    try:
        first = int(server.stdout.readline())
        pids = [first, *followers(first)]
        assert len(pids) == 2 and all(map(alive, pids))
        if ending == "return":
            server.stdin.write("\n")
            server.stdin.flush()
        else:
            server.send_signal(getattr(signal, ending))
        gone(pids)
    finally:
        server.kill()
        server.communicate()


@LINUX
def test_a_follower_ends_with_the_first_process():
    """Test the lifeline alone, without the process group."""
    theirs, lifeline = os.pipe()
    follower = start_worker(theirs, "2", "1", "127.0.0.1:1")
    try:
        os.close(theirs)
        follower.stdin.write(
            b'{"kind":"run","run":1,"job":"together","payload":{"acts":["stuck","stuck"]},"memory":null}\n'
        )
        follower.stdin.flush()
        assert any(b"stuck" in line for line in follower.stdout)
        os.close(lifeline)
        assert follower.wait(PATIENCE) == -signal.SIGIO
    finally:
        follower.kill()
        follower.wait()
        follower.stdin.close()
        follower.stdout.close()
