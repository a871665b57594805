"""A worker that is several processes: the first one has the server's ear, and leads the others.

Each process is a worker that speaks the protocol: the server with the first, the first with its
followers. All of them do the same job at the same time, as JAX wants it of the processes of one mesh, and
the first one's result is the job's. They are one process group, so that one signal ends them all.

When one of them fails, the others may wait for it in a collective for ever. So a group survives a job
only if all its processes came to the end of it, with a result or with the same refusal; else it is ended.
"""

from __future__ import annotations

import functools
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from inspector.service.engine import protocol
from inspector.service.engine.job import FIRST_PHASE
from inspector.service.engine.process import Process

LOOPBACK = "127.0.0.1"
# Seconds that the cause of a failure has to become known after its first sign: a process that waits for
# a dead one may say that it failed before the other's end is seen, on a busy machine long before.
EVIDENCE = 2.0


@dataclass(frozen=True)
class Place:
    """Which of how many processes this is, and `host:port` where the first one awaits the others."""

    index: int
    processes: int
    address: str


@dataclass(eq=False)
class Follower:
    """Another process of this worker. Guarded by the group's lock."""

    index: int
    process: Process = field(init=False)
    picked_up: bool = False  # it has begun to execute the run
    phase: str = FIRST_PHASE  # the last one it reported
    outcome: dict[str, Any] | None = None  # the message that ended its part of the run
    ended: bool = False


class Group:
    """The first process's hold on its followers.

    `broken(message, details)` is called from a thread of this object when the group must end: with the
    message that tells the server why, None where no run is the worse for it, and text for a log.
    """

    def __init__(
        self, table: str, processes: int, broken: Callable[[bytes | None, str], None]
    ) -> None:
        self._broken = broken
        self._lock = threading.Condition()  # notified whenever anything below changes
        self._run: int | None = None  # the run that all are at
        self._own: dict[str, Any] | None = None  # how it ended here
        self._settled = True  # nothing is under way, or every process has ended it well
        self._warm = False  # they have worked together before
        # Kept open while this process lives, so that no other worker is given the same port.
        self._reserved, address = _reserve_port()
        self.place = Place(0, processes, address)
        self._followers = [Follower(index) for index in range(1, processes)]
        for follower in self._followers:
            follower.process = Process(
                os.environ,
                table,
                functools.partial(self._heard, follower),
                functools.partial(self._ended, follower),
                arguments=(str(processes), str(follower.index), address),
                own_group=False,
            )
        threading.Thread(target=self._watch, name="group", daemon=True).start()

    def warm(self, message: dict[str, Any]) -> None:
        """Have every follower get ready."""
        self._send(message)

    def begin(self, message: dict[str, Any]) -> None:
        """Have every follower do the same job."""
        with self._lock:
            self._run, self._own, self._settled = message["run"], None, False
            for follower in self._followers:
                follower.picked_up, follower.phase, follower.outcome = False, FIRST_PHASE, None
        self._send(message)

    def end(self, outcome: dict[str, Any]) -> None:
        """This process has ended the run with this message; returns when all have ended it well.

        Where one has not, it never returns, and this process ends.
        """
        with self._lock:
            self._own = outcome
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._settled)

    def works_on(self, run: int) -> bool:
        """Whether any of the processes may be at this run."""
        with self._lock:
            return not self._settled and self._run == run

    def ready(self) -> None:
        """This process has met the others."""
        with self._lock:
            self._warm = True

    def _send(self, message: dict[str, Any]) -> None:
        line = protocol.encode(**message)
        for follower in self._followers:
            follower.process.send(line)

    # What comes in from other threads.

    def _heard(self, follower: Follower, message: dict[str, Any]) -> None:
        with self._lock:
            kind = message["kind"]
            if kind == "unusable":
                follower.outcome = message
            elif message.get("run") == self._run:
                if kind == "started":
                    follower.picked_up = True
                elif kind == "progress":
                    follower.phase = message["phase"]
                elif kind in ("done", "failed"):
                    follower.outcome = message
            self._lock.notify_all()

    def _ended(self, follower: Follower) -> None:
        with self._lock:
            follower.ended = True
            self._lock.notify_all()

    def _watch(self) -> None:
        with self._lock:
            while True:
                self._lock.wait_for(lambda: self._dead() or self._failed() or self._all_done())
                if not self._dead() and not self._all_done():
                    self._lock.wait_for(lambda: self._dead() or self._all_ended(), EVIDENCE)
                if not self._dead() and (self._all_done() or self._all_refused()):
                    self._settled = self._warm = True
                    self._own = None
                    for follower in self._followers:
                        follower.outcome = None
                    self._lock.notify_all()
                    continue
                message, details = self._verdict()
                break
        self._broken(message, details)

    # What has happened so far. The lock is held in all of these.

    def _outcomes(self) -> list[dict[str, Any] | None]:
        return [self._own, *(follower.outcome for follower in self._followers)]

    def _dead(self) -> bool:
        return any(follower.ended for follower in self._followers)

    def _failed(self) -> bool:
        return any(one is not None and one["kind"] != "done" for one in self._outcomes())

    def _all_ended(self) -> bool:
        return None not in self._outcomes()

    def _all_done(self) -> bool:
        return all(one is not None and one["kind"] == "done" for one in self._outcomes())

    def _all_refused(self) -> bool:
        return all(one is not None and _is_refusal(one) for one in self._outcomes())

    def _verdict(self) -> tuple[bytes | None, str]:
        """The message that tells the server what went wrong, and text for a log."""
        for follower in self._followers:
            if follower.outcome is not None and follower.outcome["kind"] == "unusable":
                return protocol.encode(**follower.outcome), follower.process.stderr()
        for follower in self._followers:
            if follower.ended:
                if self._settled and self._warm:
                    return None, ""
                if self._warm and not follower.picked_up:
                    # It died while idle, so that others can have the run.
                    return protocol.encode("dropped", run=self._run), ""
                who = name_of(follower.index, self.place.processes)
                error = follower.process.obituary(who, follower.phase, new="new ones")
                return protocol.encode("unusable", error=error), follower.process.stderr()
        outcomes = self._outcomes()
        failures = [one for one in outcomes if one is not None and one["kind"] != "done"]
        # A refusal explains what the others then met.
        cause = min(failures, key=lambda one: not _is_refusal(one))
        error = cause["error"]
        if not _is_refusal(cause) and any(
            one is None or one.get("error") != error for one in outcomes
        ):
            error = f"{name_of(outcomes.index(cause), self.place.processes)} failed: {error}"
        return protocol.encode(**cause | {"error": error}), ""


def name_of(index: int, processes: int) -> str:
    """A process in a sentence. They are counted from 0, as JAX does."""
    return f"Process {index} (of {processes}, counted from 0)"


def _is_refusal(outcome: dict[str, Any]) -> bool:
    return outcome["kind"] == "failed" and outcome["details"] is None


def _reserve_port() -> tuple[socket.socket, str]:
    """A socket that holds a free port for whoever in this worker listens on it, and its address."""
    held = socket.socket()
    # With it others of this user can listen on the port, as gRPC does; the system gives it to nobody.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((LOOPBACK, 0))
    return held, f"{LOOPBACK}:{held.getsockname()[1]}"
