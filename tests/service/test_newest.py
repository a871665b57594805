"""One answer for a request of a page: known, running or failed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from inspector.core.errors import InvalidInput
from inspector.service.newest import NewestRequest, Outcome


@dataclass
class FakeJob:
    """A job that the test ends."""

    results: dict[str, str]
    key: str
    state: str = "running"
    progress: dict[str, str] = field(default_factory=dict)

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


class Asked:
    """A request, what the service knows, and the jobs that were started."""

    def __init__(self, cancels: bool = False) -> None:
        self.request: NewestRequest[str] = NewestRequest(cancels)
        self.results: dict[str, str] = {}
        self.jobs: list[FakeJob] = []

    def __call__(self, key: str, start: bool = True, seconds: float = 0.0) -> Outcome[str]:
        def begin() -> FakeJob:
            self.jobs.append(FakeJob(self.results, key))
            return self.jobs[-1]

        def known() -> str | None:
            return self.results.get(key)

        return self.request.outcome(
            key, known, begin if start else None, seconds, lambda progress: progress.get("part")
        )  # type: ignore[arg-type]


def test_a_request_is_unknown_then_runs_and_is_known() -> None:
    ask = Asked()
    assert ask("a", start=False) == Outcome()
    running = ask("a")
    assert running.job is ask.jobs[0] and not running.ended
    assert ask("a").job is running.job, "it is started once"
    ask.jobs[0].state = "done"
    assert ask("a") == Outcome("result of a") and ask("a").ended
    assert ask("b", seconds=1.0) == Outcome("result of b"), "waited for"


def test_a_part_of_the_result_is_known_before_it() -> None:
    ask = Asked()
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
    ask = Asked()
    ask.results["b"] = "known"
    ask("a")
    assert ask("b") == Outcome("known")
    assert [job.state for job in ask.jobs] == ["running"]


def test_a_failure_is_kept_and_other_requests_follow() -> None:
    ask = Asked()
    ask("a")
    ask.jobs[0].state = "failed"
    assert ask("a") == Outcome(failure="a is failed")
    ask("b", seconds=1.0)
    assert ask("a", seconds=1.0).failure is not None and len(ask.jobs) == 2
    ask("c")
    ask.request.cancel()
    assert ask("c").failure is None and ask.jobs[-1].state == "running", "cancelled, not failed"


@pytest.mark.parametrize("state", ["running", "queued"])
@pytest.mark.parametrize("cancels", [True, False])
def test_the_job_of_an_earlier_request(cancels: bool, state: str) -> None:
    ask = Asked(cancels)
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
    ask = Asked()
    ask("a")
    (job,) = ask.jobs
    del ask
    assert job.state == "cancelled"
