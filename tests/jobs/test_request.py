"""One answer for a request of a page: known, running or failed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from inspector.jobs.request import Asked, Outcome, Request
from inspector.text.errors import InvalidInput


@dataclass
class FakeJob:
    """A job that the test ends."""

    results: dict[str, str]
    key: str
    state: str = "running"
    progress: dict[str, str] = field(default_factory=dict)
    refused: bool = False

    @property
    def finished(self) -> bool:
        return self.state not in ("running", "queued")

    def wait(self, seconds: float) -> None:
        if "later" in self.progress:
            self.progress["part"] = self.progress.pop("later")
        else:
            self.state = "done"

    def cancel(self) -> None:
        self.state = "cancelled"

    def answer(self) -> str:
        if self.state != "done":
            raise InvalidInput(f"{self.key} is {self.state}")
        return self.results.setdefault(self.key, f"result of {self.key}")


class Session:
    """The requests of a session, what the service knows, and the jobs that were started."""

    def __init__(self, cancels: bool = True) -> None:
        self.asked: Asked[str] = Asked(cancels, most=2)
        self.results: dict[str, str] = {}
        self.jobs: list[FakeJob] = []

    def request(
        self, key: str, known: bool = True, keep: Callable[[str], None] | None = None
    ) -> Request[str]:
        """known: whether the service knows the result of an ended job."""

        def start() -> FakeJob:
            self.jobs.append(FakeJob(self.results, key))
            return self.jobs[-1]

        return Request(
            key,
            start,  # type: ignore[arg-type]
            (lambda: self.results.get(key)) if known else (lambda: None),
            lambda progress: progress.get("part"),
            keep=keep,
        )

    def __call__(self, key: str, start: bool = True, seconds: float = 0.0) -> Outcome[str]:
        return self.asked.ask(self.request(key), start, seconds)


def test_a_request_is_unknown_then_runs_and_is_known() -> None:
    ask = Session()
    assert ask("a", start=False) == Outcome()
    running = ask("a")
    assert running.job is ask.jobs[0] and not running.ended
    assert ask("a").job is running.job, "it is started once"
    ask.jobs[0].state = "done"
    assert ask("a") == Outcome("result of a") and ask("a").ended
    assert ask("b", seconds=1.0) == Outcome("result of b"), "waited for"


def test_a_part_of_the_result_is_known_before_it() -> None:
    ask = Session(cancels=False)
    ask("a")
    ask.jobs[0].progress = {"later": "part of a"}
    waited = ask("a", seconds=60.0)
    assert waited.so_far == waited.known == "part of a" and not waited.ended
    ask.jobs[0].progress = {}
    assert ask("a").known == "part of a", "of an earlier phase of the job"
    assert ask("b").known is None, "that of another request"
    assert ask("a", seconds=60.0).known == "part of a"
    ask.jobs[0].state = "done"
    assert ask("a") == Outcome("result of a") and ask("a").known == "result of a"
    assert ask("b").known is None, "the part of an earlier job"


def test_a_known_request_starts_nothing_beside_the_job_of_an_earlier_one() -> None:
    ask = Session(cancels=False)
    ask.results["b"] = "known"
    ask("a")
    assert ask("b") == Outcome("known")
    assert [job.state for job in ask.jobs] == ["running"]


def test_a_failure_is_kept_and_other_requests_follow() -> None:
    ask = Session()
    ask("a")
    ask.jobs[0].state, ask.jobs[0].refused = "failed", True
    assert ask("a") == Outcome(failure="a is failed")
    assert not ask.asked.may_retry("a") and ask.asked.may_retry("b")
    ask("b", seconds=1.0)
    assert ask("a", seconds=1.0).failure is not None and len(ask.jobs) == 2
    ask("c")
    ask.asked.cancel()
    assert ask("c").failure is None and ask.jobs[-1].state == "running", "cancelled, not failed"


@pytest.mark.parametrize("state", ["running", "queued"])
@pytest.mark.parametrize("cancels", [True, False])
def test_the_job_of_an_earlier_request(cancels: bool, state: str) -> None:
    ask = Session(cancels)
    ask("a")
    ask.jobs[0].state = state
    ask("b", start=False)
    assert ask.jobs[0].state == state, "a look changes nothing"
    ask("b")
    follows = cancels or state == "queued"
    assert [job.key for job in ask.jobs] == (["a", "b"] if follows else ["a"])
    ask.jobs[0].state = "cancelled" if follows else "done"
    assert ask("b").job is ask.jobs[1]
    assert "a" not in ask.results or not follows


def test_the_job_of_a_session_that_ends_is_cancelled() -> None:
    ask = Session()
    ask("a")
    (job,) = ask.jobs
    del ask
    gc.collect()
    assert job.state == "cancelled"


def test_a_job_that_the_user_cancels_is_not_started_again_by_itself() -> None:
    ask = Session()
    job = ask("a").job
    assert job is not None
    job.cancel()
    assert ask("a").failure == "a is cancelled" and len(ask.jobs) == 1 and ask.asked.may_retry("a")
    ask.asked.again(ask.request("a"))
    assert ask("a").job is ask.jobs[1] and ask("a").failure is None


def test_a_job_that_cannot_be_started_has_failed() -> None:
    session = Asked[str]()
    refused = [InvalidInput("too many")]

    def start() -> FakeJob:
        raise refused.pop()

    request: Request[str] = Request("a", start)  # type: ignore[arg-type]
    assert session.ask(request) == Outcome(failure="too many")
    assert session.ask(request).failure is not None and session.job is None and not refused


def test_results_that_the_service_does_not_keep_are_kept_while_the_job_runs_again() -> None:
    ask = Session()
    for key in "abc":
        ask.asked.ask(ask.request(key, known=False), seconds=1.0)
    known = [ask.asked.ask(ask.request(key, known=False), start=False).result for key in "abc"]
    assert known == [None, "result of b", "result of c"], "the last two"
    ask.asked.again(ask.request("c", known=False))
    outcome = ask.asked.ask(ask.request("c", known=False))
    assert outcome.result == "result of c" and outcome.job is ask.jobs[-1]


def test_a_page_gets_each_result_once_and_can_start_the_next_request() -> None:
    ask, kept = Session(), []

    def keep(result: str) -> None:
        kept.append(result)
        if len(kept) == 1:
            ask.asked.again(ask.request("b", known=False, keep=keep))

    ask.asked.again(ask.request("a", known=False, keep=keep))
    ask.jobs[0].state = "done"
    running = ask.asked.running()
    assert kept == ["result of a"] and running is not None and running.key == "b"
    ask.jobs[1].state = "done"
    assert ask.asked.running() is None and kept == ["result of a", "result of b"]
    assert ask.asked.ask(ask.request("a", known=False), start=False) == Outcome()


def test_a_known_result_is_answered_without_a_job() -> None:
    ask = Session()
    ask.results["a"] = "known"
    assert ask.request("a").answer() == "known" and not ask.jobs
