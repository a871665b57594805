"""All queued and running jobs of a server: runs, effects, files that are read, and searches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from inspector.core.host_memory import resident_bytes
from inspector.service.engine import Requester, Subject
from inspector.service.inspection import Inspection
from inspector.service.search import task
from inspector.service.search.registry import Searches

SEARCHES = "searches"


@dataclass(frozen=True)
class ServerJob:
    """A queued or running job at one moment.

    Attributes:
      queue: the name of its queue, for `cancel`; jobs of different queues do not wait for each other.
      kind: the name of the job, or `search`.
      owned: the requester who asked for the list can cancel it.
      place: the position in the queue, from 1; None if it runs.
      phase: its phase; None if it is queued.
      progress: the figures of the phase.
      memory: bytes of its worker processes in memory; None if it is queued or unknown.
      age: seconds since it was submitted.
    """

    queue: str
    number: int
    kind: str
    subject: Subject
    requesters: tuple[Requester, ...]
    owned: bool
    place: int | None
    phase: str | None
    progress: dict[str, Any]
    memory: int | None
    age: float


def listed(service: Inspection, searches: Searches) -> tuple[ServerJob, ...]:
    """Return the jobs of all owners: running ones first, then queued ones by their place."""
    owner = service.requester.owner
    found = [
        ServerJob(
            one.lane,
            one.number,
            one.kind,
            one.subject,
            one.requesters,
            one.belongs_to(owner),
            one.status.place,
            one.status.phase,
            one.status.progress,
            None if one.pid is None else resident_bytes(one.pid),
            one.age,
        )
        for one in service.pool.jobs()
    ]
    for search in searches.listed():
        runs = search.place is None
        state = search.progress
        found.append(
            ServerJob(
                SEARCHES,
                search.number,
                "search",
                search.subject,
                search.requesters,
                search.belongs_to(owner),
                search.place,
                state.phase if runs else None,
                {"done": state.done, "of": state.total} if state.total else {},
                _memory_of_searches() if runs else None,
                search.age,
            )
        )
    return tuple(sorted(found, key=lambda one: (one.place or 0, -one.age)))


def cancel(service: Inspection, searches: Searches, queue: str, number: int) -> None:
    """Cancel a job of the service's requester. It stops when no other owner waits for it.

    Raises:
      InvalidInput: the job has ended, or belongs to others.
    """
    if queue == SEARCHES:
        searches.cancel(number, service.requester.owner)
    else:
        service.cancel(number)


def _memory_of_searches() -> int | None:
    known = [resident_bytes(worker.pid) for worker in task.workers()]
    return sum(one for one in known if one is not None) or None
