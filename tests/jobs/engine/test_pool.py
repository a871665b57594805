"""Real workers that are shared, queued for, cancelled, killed and replaced."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from benchmarks.processes import PATIENCE, alive, until
from inspector.jobs.engine import Environment, Pool, Requester
from inspector.text.errors import InvalidInput

ONE, TWO, THREE = Environment(1), Environment(2), Environment(3)


class Gate:
    """A job that runs until it is let through, and counts how often it was run."""

    def __init__(self, folder: Path, name: str) -> None:
        self.door, self.count = folder / f"{name}.open", folder / f"{name}.count"
        self.payload = {"open": str(self.door), "count": str(self.count)}

    def open(self) -> None:
        self.door.touch()

    @property
    def runs(self) -> int:
        return len(self.count.read_text().splitlines()) if self.count.exists() else 0


@pytest.fixture
def gate(tmp_path):
    """Makes a gate by name."""
    return lambda name: Gate(tmp_path, name)


def reported(job):
    """Wait until the job has reported, and give the figures."""
    until(lambda: job.finished or job.status().progress, "a report")
    assert job.state == "running", job.error
    return job.status().progress


def answer(pool, environment=ONE, topic=None):
    """Return the id of the process that executes the next job."""
    job = pool.submit("echo", {"who": "you"}, environment, topic=topic).wait(PATIENCE)
    assert job.state == "done", job.error
    return job.result["pid"]


# One job.


def test_a_job_gives_its_result_and_its_course(pool):
    job = pool.submit("chatty", {"reports": 1000}, ONE).wait(PATIENCE)
    assert (job.state, job.result, job.error, job.status().place) == ("done", {}, None, None)
    assert [name for name, _ in job.status().phases] == ["start", "talking", "last"]
    assert all(seconds >= 0 for _, seconds in job.status().phases)
    assert sum(seconds for _, seconds in job.status().phases) == pytest.approx(job.status().elapsed)
    assert (job.status().phase, job.status().progress) == ("last", {"number": 1000})
    assert job.status().elapsed == job.status().elapsed, "elapsed time must not change"


def test_the_end_of_a_job_is_reported_once_whatever_it_is(pool, gate):
    ends: list[str] = []

    def watch(job, name: str) -> None:
        job.ended.add_done_callback(lambda _: ends.append(f"{name} {job.state}"))

    waiting = gate("a")
    jobs = [pool.submit("gate", waiting.payload, ONE), pool.submit("gate", waiting.payload, ONE)]
    failing = pool.submit("absent", {}, TWO)
    for name, job in zip(("shared", "cancelled", "failing"), (*jobs, failing), strict=True):
        watch(job, name)
    jobs[1].cancel()
    until(lambda: ends == ["cancelled cancelled", "failing failed"] or len(ends) > 2, "two ends")
    waiting.open()
    until(lambda: len(ends) == 3, "the end of the shared job")
    watch(jobs[0], "again")
    until(lambda: len(ends) == 4, "the end of a job that has ended")
    assert ends == ["cancelled cancelled", "failing failed", "shared done", "again done"]


def test_the_clock_of_a_running_job_goes(pool, gate):
    job = pool.submit("gate", gate("a").payload, ONE)
    reported(job)
    before = job.status()
    after = until(lambda: (now := job.status()).elapsed > before.elapsed and now)
    assert after.phases[0] == before.phases[0], "a phase that is over keeps its seconds"
    assert after.phases[1][1] > before.phases[1][1]


def test_payload_is_taken_as_it_was_when_submitted(single, gate):
    door = gate("a")
    first = single.submit("gate", door.payload, ONE)
    payload = {"value": 1, "text": "naïve \u2028 \ud800 <b>"}
    job = single.submit("echo", payload, ONE)
    expected = dict(payload)
    payload["value"] = 2
    door.open()
    assert job.wait(PATIENCE).result["payload"] == expected
    assert first.wait(PATIENCE).state == "done"


@pytest.mark.nightly
def test_megabytes_pass_in_both_directions_at_once(pool):
    size = 8_000_000
    jobs = [
        pool.submit("big", {"size": size + extra, "ballast": "y" * size}, environment)
        for extra, environment in enumerate((ONE, TWO, ONE, TWO))
    ]
    for extra, job in enumerate(jobs):
        assert job.wait(PATIENCE).state == "done", job.error
        assert (len(job.result["text"]), job.result["got"]) == (size + extra, size)


def test_a_large_message_to_a_worker_that_hears_nothing_does_not_block(single):
    pid = reported(single.submit("stuck", {}, ONE))["pid"]
    # The one worker is stuck for good; this waits behind it and must return all the same.
    behind = single.submit("echo", {"ballast": "y" * 8_000_000}, ONE)
    assert behind.status().place == 1
    os.kill(pid, signal.SIGKILL)
    assert behind.wait(PATIENCE).state == "done"


def test_what_a_job_prints_or_reads_does_not_touch_the_protocol(pool):
    assert pool.submit("noisy", {}, ONE).wait(PATIENCE).result == {"honest": True}
    assert pool.submit("reads", {}, ONE).wait(PATIENCE).result == {"read": "", "descriptor": ""}
    assert answer(pool) == pool.workers()[0].pid


@pytest.mark.parametrize("payload", [{"x": float("nan")}, {"x": {1}}])
def test_what_cannot_be_asked_is_refused_at_once(pool, payload):
    with pytest.raises((ValueError, TypeError)):
        pool.submit("echo", payload, ONE)
    assert pool.workers() == ()


# The same job asked twice.


def test_the_same_job_asked_twice_at_once_is_one_run(pool, gate):
    door = gate("a")
    first = pool.submit("gate", door.payload, ONE)
    second = pool.submit("gate", dict(reversed(door.payload.items())), ONE)
    reported(first)
    third = pool.submit("gate", door.payload, ONE)
    assert len(pool.workers()) == 1
    door.open()
    results = [job.wait(PATIENCE).result for job in (first, second, third)]
    assert results[0] is not None
    assert results == [results[0]] * 3
    assert door.runs == 1
    assert pool.submit("gate", door.payload, ONE).wait(PATIENCE).state == "done"
    assert door.runs == 2, "a finished job runs again"


def test_another_environment_is_another_run(pool, gate):
    door = gate("a")
    jobs = [pool.submit("gate", door.payload, environment) for environment in (ONE, TWO)]
    until(lambda: door.runs == 2)
    door.open()
    assert len({job.wait(PATIENCE).result["pid"] for job in jobs}) == 2


def test_two_wait_and_one_cancels(pool, gate):
    door = gate("a")
    staying, leaving = (pool.submit("gate", door.payload, ONE) for _ in range(2))
    reported(staying)
    leaving.cancel()
    leaving.cancel()
    assert leaving.wait(0).state == "cancelled"
    assert "Cancelled during waiting" in leaving.error
    assert staying.state == "running"
    door.open()
    assert staying.wait(PATIENCE).state == "done"
    assert (leaving.state, leaving.result) == ("cancelled", None)
    assert door.runs == 1


def test_two_wait_and_both_cancel(patient, gate):
    door = gate("a")
    jobs = [patient.submit("gate", door.payload, ONE) for _ in range(2)]
    pid = reported(jobs[0])["pid"]
    for job in jobs:
        job.cancel()
    assert [job.state for job in jobs] == ["cancelled"] * 2
    until(lambda: not patient.workers()[0].busy, "the worker being idle")
    assert answer(patient) == pid


def test_a_request_during_cancellation_starts_a_new_run(pool):
    first = pool.submit("stubborn", {}, ONE)
    reported(first)
    first.cancel()
    second = pool.submit("stubborn", {}, ONE)
    assert first.state == "cancelled"
    reported(second)
    second.cancel()


# The queue.


def test_places_in_the_queue(single, gate):
    doors = [gate(name) for name in "abcd"]
    jobs = [single.submit("gate", door.payload, ONE) for door in doors]
    assert [job.status().place for job in jobs] == [None, 1, 2, 3]
    assert [job.state for job in jobs] == ["running", "queued", "queued", "queued"]
    assert (jobs[1].status().phase, jobs[1].status().phases, jobs[1].status().elapsed) == (
        None,
        (),
        0.0,
    )
    jobs[2].cancel()
    assert [job.status().place for job in jobs] == [None, 1, None, 2]
    assert "queue" in jobs[2].error
    doors[0].open()
    until(lambda: jobs[1].state == "running")
    assert jobs[3].status().place == 1
    doors[1].open()
    doors[3].open()
    assert [job.wait(PATIENCE).state for job in jobs] == ["done", "done", "cancelled", "done"]
    assert [door.runs for door in doors] == [1, 1, 0, 1]


def test_a_queued_run_that_one_of_two_cancels_keeps_its_place(single, gate):
    doors = [gate(name) for name in "ab"]
    single.submit("gate", doors[0].payload, ONE)
    staying, leaving = (single.submit("gate", doors[1].payload, ONE) for _ in range(2))
    assert (staying.status().place, leaving.status().place) == (1, 1)
    leaving.cancel()
    assert (staying.status().place, leaving.status().place) == (1, None)
    for door in doors:
        door.open()
    assert staying.wait(PATIENCE).state == "done"


def test_no_more_workers_than_allowed(pool, gate):
    doors = [gate(name) for name in "abc"]
    environments = (ONE, ONE, TWO)
    jobs = [pool.submit("gate", d.payload, e) for d, e in zip(doors, environments, strict=True)]
    until(lambda: doors[0].runs == doors[1].runs == 1)
    assert [job.state for job in jobs] == ["running", "running", "queued"]
    assert len(pool.workers()) == 2
    for door in doors:
        door.open()
    assert len({job.wait(PATIENCE).result["pid"] for job in jobs}) == 3


def test_workers_stay_warm_for_their_environment(pool):
    pids = [answer(pool, environment) for environment in (ONE, TWO, ONE, TWO)]
    assert pids[:2] == pids[2:]
    assert pids[0] != pids[1]


def test_a_worker_that_has_run_the_topic_is_preferred(pool, gate):
    doors = {topic: gate(topic) for topic in ("a", "b")}
    jobs = {topic: pool.submit("gate", door.payload, ONE, topic=topic) for topic, door in doors.items()}
    for door in doors.values():
        door.open()
    pids = {topic: job.wait(PATIENCE).result["pid"] for topic, job in jobs.items()}
    assert pids["a"] != pids["b"]
    for topic in "abba":
        assert answer(pool, ONE, topic) == pids[topic]
    assert answer(pool, ONE, "a") == answer(pool, ONE, "new") == answer(pool, ONE) == pids["a"]


def test_the_idle_worker_used_least_recently_makes_room(pool):
    one, two = answer(pool, ONE), answer(pool, TWO)
    assert answer(pool, ONE) == one
    three = answer(pool, THREE)
    assert not alive(two), "its place was needed, and it had been idle longest"
    assert alive(one)
    assert {seat.pid for seat in pool.workers()} == {one, three}


def test_a_worker_with_a_job_never_makes_room(pool, gate):
    door = gate("a")
    job = pool.submit("gate", door.payload, ONE)
    pid = reported(job)["pid"]
    two, three = answer(pool, TWO), answer(pool, THREE)
    assert not alive(two)
    assert alive(three)
    door.open()
    assert job.wait(PATIENCE).result["pid"] == pid
    assert door.runs == 1


def test_idle_workers_end_except_the_last_one(gate):
    doors = gate("a"), gate("b")
    with Pool(workers=2, jobs="tests.jobs.engine.jobs", idle=0.1) as pool:
        jobs = [pool.submit("gate", door.payload, ONE) for door in doors]
        pids = [reported(job)["pid"] for job in jobs]
        doors[0].open()
        assert jobs[0].wait(PATIENCE).state == "done"
        until(lambda: not alive(pids[0]), "the end of the idle worker")
        doors[1].open()
        assert jobs[1].wait(PATIENCE).result["pid"] == pids[1]
        assert [worker.pid for worker in pool.workers()] == [pids[1]]
        time.sleep(0.3)
        assert answer(pool) == pids[1]


# Cancel.


@pytest.mark.parametrize("kind", ["loop", "swallow"])
def test_a_job_that_reports_is_cancelled_and_its_worker_kept(patient, kind):
    job = patient.submit(kind, {}, ONE)
    pid = reported(job)["pid"]
    job.cancel()
    assert job.state == "cancelled"
    assert re.fullmatch(r"Cancelled during looping, after \d+\.\d s\.", job.error)
    until(lambda: not patient.workers()[0].busy)
    assert answer(patient) == pid


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("kind", ["stubborn", "stuck", "spawn"])
def test_a_job_that_hears_no_cancel_is_killed_with_all_it_started(single, kind):
    job = single.submit(kind, {}, ONE)
    figures = reported(job)
    job.cancel()
    assert job.wait(0).state == "cancelled"
    for pid in (figures["pid"], figures.get("child", figures["pid"])):
        until(lambda pid=pid: not alive(pid), "the process's end")
    assert answer(single) != figures["pid"]


def test_cancel_of_what_is_finished_changes_nothing(pool):
    job = pool.submit("echo", {}, ONE).wait(PATIENCE)
    job.cancel()
    assert (job.state, job.error) == ("done", None)


def test_cancel_right_after_submit(single):
    for number in range(20):
        job = single.submit("loop", {"number": number}, ONE)
        job.cancel()
        assert job.state == "cancelled"
    assert answer(single)


# Time-outs.


def test_a_time_out_stops_a_job_that_reports_and_keeps_its_worker(patient):
    pid = answer(patient)
    job = patient.submit("loop", {}, ONE, timeout=0.2).wait(PATIENCE)
    assert job.state == "failed"
    assert re.fullmatch(
        r"The run was stopped during (start|looping), because it took longer than the 0\.2 s"
        r" allowed; nothing was saved\.",
        job.error,
    )
    until(lambda: not patient.workers()[0].busy, "the worker being idle")
    assert answer(patient) == pid


def test_time_outs_one_after_another_on_jobs_that_hear_nothing(single):
    jobs = [single.submit("stubborn", {"number": n}, ONE, timeout=0.2) for n in range(3)]
    for job in jobs:
        assert job.wait(PATIENCE).state == "failed"
        assert "longer than the 0.2 s" in job.error
    assert answer(single)


@pytest.mark.parametrize("timeouts", [(0.2, None), (0.2, 600), (None, 0.2), (600, 0.2)])
def test_of_two_who_wait_the_longer_time_out_holds(pool, gate, timeouts):
    door = gate("a")
    jobs = [pool.submit("gate", door.payload, ONE, timeout=timeout) for timeout in timeouts]
    until(lambda: jobs[0].status().elapsed > 0.4)
    door.open()
    assert [job.wait(PATIENCE).state for job in jobs] == ["done", "done"]


# Failures.


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("kind", "payload", "error"),
    [
        ("refuse", {}, r"`hidden` is 1023; 4 ways of `model` do not divide it\."),
        ("fail", {"how": "raise"}, r"ValueError: the first line the second x+…"),
        ("fail", {"how": "exit"}, r"SystemExit: enough"),
        ("fail", {"how": "silent"}, r"KeyError was raised without a message\."),
        ("not_json", {}, r"ValueError: .*JSON.*"),
        ("not_dict", {}, r"TypeError: the job 'not_dict' gave list, not a dict"),
        ("missing", {}, r"ModuleNotFoundError: .*no_such_module.*"),
        ("nothing", {}, r"There is no job 'nothing'; there are abort, .*"),
    ],
)
def test_a_job_that_fails_says_so_in_one_sentence(pool, kind, payload, error):
    pid = answer(pool)
    job = pool.submit(kind, payload, ONE).wait(PATIENCE)
    assert (job.state, job.result) == ("failed", None)
    assert re.fullmatch(error, job.error)
    assert len(job.error) < 400
    assert ("Traceback" in (job.status().details or "")) == (kind not in ("refuse", "nothing"))
    assert job.refused == (kind in ("refuse", "nothing"))
    assert answer(pool) == pid, "the worker is none the worse for it"


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("abort", "crashed (SIGABRT) during compile, saying “Check failed: 3 == rank (3 vs. 2)”"),
        ("killed", "was killed (SIGKILL) during compile"),
        ("leave", "ended by itself (exit status 7) during start"),
    ],
)
def test_a_worker_that_dies_is_explained_and_replaced(pool, kind, how):
    job = pool.submit(kind, {}, TWO).wait(PATIENCE)
    assert job.state == "failed"
    assert job.error.startswith(
        f"The worker with 2 devices {how}; nothing was saved, run again to start a new one"
    )
    assert ("Check failed" in job.status().details) == (kind == "abort")
    assert answer(pool, TWO)


@pytest.mark.parametrize("payload", [{"name": "a.mlir"}, {}])
def test_a_file_that_ends_its_parser_cannot_be_read(pool, payload):
    """Only jobs that parse a file have a limit of memory. To run them again would not help."""
    job = pool.submit("abort", payload, TWO, memory=2**30).wait(PATIENCE)
    assert job.state == "failed"
    what = payload.get("name", "The input")
    assert job.error.startswith(f"{what} cannot be read: its parser crashed (SIGABRT) during compile")
    assert "again" not in job.error


def test_what_a_dead_worker_had_started_ends_with_it(pool):
    job = pool.submit("orphan", {}, ONE).wait(PATIENCE)
    assert job.state == "failed"
    until(lambda: not alive(job.status().progress["child"]), "the process's end")


def test_temporary_files_of_a_dead_worker_are_removed(pool):
    job = pool.submit("killed", {}, ONE).wait(PATIENCE)
    name = job.status().progress["file"]
    assert name and not (Path(tempfile.gettempdir()) / name).exists()


def test_an_abort_of_xla_itself_is_explained(pool):
    environment = Environment(2, (("XLA_FLAGS", "--no_such_flag"),))
    job = pool.submit("devices", {}, environment).wait(PATIENCE)
    assert job.state == "failed"
    assert "Unknown flag in XLA_FLAGS: --no_such_flag" in job.error
    assert job.error.startswith("The worker with 2 devices ")


def test_last_words_are_not_those_of_an_earlier_job(single):
    single.submit("fail", {"how": "raise"}, ONE).wait(PATIENCE)
    job = single.submit("leave", {}, ONE).wait(PATIENCE)
    assert "saying" not in job.error


@pytest.mark.nightly
def test_an_idle_worker_that_was_killed_costs_nobody_a_run(single):
    pid = answer(single)
    for _ in range(10):
        os.kill(pid, signal.SIGKILL)
        pid, before = answer(single), pid
        assert pid != before


def test_a_worker_that_cannot_be_started(pool, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        job = pool.submit("echo", {}, ONE).wait(PATIENCE)
        assert job.state == "failed"
        assert job.error.startswith("A worker could not be started: ")
        pool.warm(ONE)
        assert pool.workers() == ()
    assert answer(pool)


def test_a_worker_that_ends_before_it_hears_of_any_job(pool, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        job = pool.submit("echo", {}, ONE).wait(PATIENCE)
        assert "ended by itself (exit status 1) during start" in job.error
    assert answer(pool)


# JAX.


@pytest.mark.nightly
def test_the_device_count_is_what_the_environment_says(pool, monkeypatch):
    flags = "--xla_force_host_platform_device_count=5"
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    for devices in (3, 8):
        job = pool.submit("devices", {}, Environment(devices)).wait(PATIENCE)
        assert job.result == {"devices": devices, "platform": "cpu", "flags": flags}


def test_a_warm_worker_has_jax_and_others_have_not(pool):
    pool.warm(TWO)
    pool.warm(TWO)
    (seat,) = pool.workers()
    warm = pool.submit("modules", {}, TWO).wait(PATIENCE).result["modules"]
    assert {"jax", "flax"} <= set(warm)
    assert answer(pool, TWO) == seat.pid
    cold = pool.submit("modules", {}, ONE).wait(PATIENCE).result["modules"]
    assert not {"jax", "flax", "numpy", "streamlit"} & set(cold)


def test_warming_replaces_only_idle_workers(pool, gate):
    door = gate("a")
    job = pool.submit("gate", door.payload, ONE)
    reported(job)
    answer(pool, TWO)
    pool.warm(THREE)
    until(lambda: [seat.environment for seat in pool.workers()] == [ONE, THREE])
    door.open()
    assert job.wait(PATIENCE).state == "done"


def test_a_wish_for_warmth_does_not_wait_behind_a_busy_worker(single, gate):
    door = gate("a")
    job = single.submit("gate", door.payload, ONE)
    reported(job)
    single.warm(TWO)
    door.open()
    job.wait(PATIENCE)
    assert answer(single, ONE) == job.result["pid"]


@pytest.mark.nightly
def test_warming_finds_a_wrong_device_count(pool):
    environment = Environment(2, (("JAX_NUM_CPU_DEVICES", "3"),))
    pool.warm(environment)
    job = pool.submit("echo", {}, environment).wait(PATIENCE)
    assert job.error == "JAX started with 3 devices in a worker for 2."


# The server.


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to look at open files")
def test_a_worker_holds_none_of_the_servers_sockets(pool):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.set_inheritable(True)
        mine = os.readlink(f"/proc/self/fd/{listening.fileno()}")
        files = pool.submit("environment", {}, ONE).wait(PATIENCE).result["files"]
    assert files
    assert mine not in files
    assert not [name for name in files if name.startswith("socket:")]


def test_a_worker_imports_what_the_server_can(pool, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir("/")
    result = pool.submit("environment", {}, Environment(1, (("MINE", "yes"),))).wait(PATIENCE)
    assert str(tmp_path) in result.result["path"]
    assert "/" not in result.result["path"]
    assert result.result["variables"]["MINE"] == "yes"


def test_close_leaves_no_worker_and_no_job_behind(gate):
    pool = Pool(workers=2, jobs="tests.jobs.engine.jobs")
    spawned = pool.submit("spawn", {}, ONE)
    stuck = pool.submit("stuck", {}, TWO)
    queued = pool.submit("echo", {}, THREE)
    waiting = threading.Thread(target=queued.wait)
    waiting.start()
    pids = {*reported(spawned).values(), reported(stuck)["pid"]}
    assert len(pids) == 3
    assert all(alive(pid) for pid in pids)
    pool.close()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    for job in (spawned, stuck, queued):
        assert (job.state, job.error) == (
            "cancelled",
            "The server stopped before this run was finished.",
        )
    for pid in pids:
        until(lambda pid=pid: not alive(pid), "the process's end")
    assert pool.workers() == ()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit("echo", {}, ONE)
    with pytest.raises(RuntimeError, match="closed"):
        pool.warm(ONE)


@pytest.mark.nightly
def test_threads_and_files_do_not_pile_up(single):
    def held():
        return len(os.listdir("/dev/fd")), threading.active_count()

    answer(single)
    before = held()
    for _ in range(10):
        single.submit("killed", {}, ONE).wait(PATIENCE)
        answer(single)
    until(lambda: held() <= before, "what dead workers held being given back")


@pytest.mark.nightly
def test_nothing_hangs_when_many_ask_cancel_and_kill_at_once():
    limit, callers, asks = 2, 6, 25
    kinds = ("echo", "echo", "echo", "loop", "chatty", "fail", "leave", "killed", "stubborn")
    seen: list[int] = []
    with Pool(workers=limit, jobs="tests.jobs.engine.jobs", most=4) as pool:
        jobs = []

        def caller(seed: int) -> None:
            # Two callers for each owner.
            requester = Requester(str(seed % 3), f"owner {seed % 3}", f"session {seed}")
            chance = random.Random(seed)
            for _ in range(asks):
                kind = chance.choice(kinds)
                payload = {"reports": 50, "how": "raise", "n": chance.randrange(3)}
                environment = Environment(chance.randrange(1, 4))
                # Those that never end by themselves time out or are cancelled.
                try:
                    job = pool.submit(kind, payload, environment, 0.3, requester)
                except InvalidInput:
                    pool.leave(str(requester.session))
                    continue
                jobs.append((kind, job))
                if chance.random() < 0.1 and (listed := pool.jobs()):
                    choice = chance.choice(listed)
                    with contextlib.suppress(InvalidInput):  # ended, or of another owner
                        pool.cancel(choice.number, requester.owner)
                if chance.random() < 0.2:
                    pool.warm(Environment(1, (("UNUSED", str(chance.randrange(2))),)))
                if kind in ("loop", "stubborn") or chance.random() < 0.3:
                    job.wait(chance.random() * 0.02)
                    job.cancel()
                elif chance.random() < 0.5:
                    job.wait(PATIENCE)
                seen.append(len(pool.workers()))
                if chance.random() < 0.1 and (seats := pool.workers()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(chance.choice(seats).pid, signal.SIGKILL)

        threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE)
        assert not any(thread.is_alive() for thread in threads)
        for kind, job in jobs:
            assert job.wait(PATIENCE).finished, (kind, job)
            assert (job.state == "done") == (job.result is not None)
            assert (job.state == "done") == (job.error is None)
        assert callers * asks / 2 < len(jobs) <= callers * asks
        assert 0 < max(seen) <= limit
        assert {job.state for _, job in jobs} == {"done", "failed", "cancelled"}
        until(lambda: not any(seat.busy for seat in pool.workers()), "all workers idle")
        assert answer(pool)
