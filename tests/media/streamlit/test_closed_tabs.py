"""Jobs of a closed tab end after the grace, those of a tab that comes back do not."""

from __future__ import annotations

from inspector.jobs.engine import Requester
from inspector.jobs.opened_files import OpenedFiles
from inspector.media.streamlit.server import ClosedTabs


class Waiting:
    """Sessions that wait for jobs, as the pool lists them."""

    def __init__(self, *sessions: str) -> None:
        self.left = set(sessions)

    def sessions(self) -> set[str]:
        return set(self.left)

    def leave(self, session: str) -> None:
        self.left.discard(session)


def test_jobs_end_after_the_grace() -> None:
    jobs, connected = Waiting("open", "closed", "lost"), {"open"}
    tabs = ClosedTabs(jobs, connected.__contains__, grace=60.0)  # type: ignore[arg-type]
    tabs.check(100.0)
    tabs.check(159.0)
    assert jobs.left == {"open", "closed", "lost"}
    connected.add("lost")  # connected again
    tabs.check(159.5)
    connected.discard("lost")
    tabs.check(160.0)
    assert jobs.left == {"open", "lost"}
    tabs.check(219.0)
    assert "lost" in jobs.left
    tabs.check(220.0)
    assert jobs.left == {"open"}


def test_a_closed_session_is_forgotten_with_what_it_has_open() -> None:
    opened, closed, connected = OpenedFiles(1000), list[str](), {"open"}
    for session in ("open", "closed"):
        with opened.room(10, Requester(session, session, session), "file"):
            pass
    tabs = ClosedTabs(
        Waiting(),
        connected.__contains__,
        60.0,
        opened,
        closed.append,  # type: ignore[arg-type]
    )
    tabs.check(100.0)
    tabs.check(159.0)
    assert closed == []
    tabs.check(160.0)
    tabs.check(300.0)
    assert closed == ["closed"] and opened.sessions() == {"open"}
