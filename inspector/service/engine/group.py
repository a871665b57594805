"""A worker of several processes: the first one leads the others.

Every process speaks the protocol: the server with the first, the first with its followers. All run the
same job at the same time, as JAX requires of the processes of one mesh. The first one's result is the
job's. They are one process group, so that one signal ends them all.

If one of them fails, the others may wait for it in a collective for ever. So a group survives a job only if
every process finished it, with a result or with the same refusal. Otherwise it ends.
"""

import functools
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from inspector.service.engine import protocol
from inspector.service.engine.job import FIRST_PHASE
from inspector.service.engine.process import Process, process_name

LOOPBACK = "127.0.0.1"
# Seconds to wait for the cause of a failure after its first sign. A process that waits for a dead one may
# report its own failure before the end of the other is seen.
CAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class Place:
    """The index of this process, and `host:port` of the first one."""

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
    """The followers of the first process.

    A thread of this object calls `broken(message, details)` when the group must end. `message` is the error
    for the server, or None if no run is affected. `details` is text for a log.
    """

    def __init__(self, table: str, processes: int, broken: Callable[[bytes | None, str], None]) -> None:
        self._broken = broken
        self._lock = threading.Condition()  # notified whenever anything below changes
        self._run: int | None = None  # the run that all execute
        self._own: dict[str, Any] | None = None  # the outcome of this process
        self._settled = True  # no run is active, or every process has finished it
        self._warm = False  # all processes have met
        # Kept open while this process lives, so that no other worker gets the same port.
        self._reserved, address = _reserve_port()
        self.place = Place(0, processes, address)
        self._followers = [Follower(index) for index in range(1, processes)]
        for follower in self._followers:
            follower.process = Process(
                os.environ,
                table,
                functools.partial(self._on_message, follower),
                functools.partial(self._on_end, follower),
                arguments=(str(processes), str(follower.index), address),
                own_group=False,
            )
        threading.Thread(target=self._watch, name="group", daemon=True).start()

    def warm(self, message: dict[str, Any]) -> None:
        self._send(message)

    def begin(self, message: dict[str, Any]) -> None:
        """Send the job to every follower.

        If one of them has ended, this method never returns and this process ends: the job has not begun, so
        other processes can run it.
        """
        with self._lock:
            self._lock.wait_for(lambda: not self._any_ended())
            self._run, self._own, self._settled = message["run"], None, False
            for follower in self._followers:
                follower.picked_up, follower.phase, follower.outcome = False, FIRST_PHASE, None
        self._send(message)

    def end(self, outcome: dict[str, Any]) -> None:
        """Record the outcome of this process, and wait until all have finished the run.

        If one of them fails, this method never returns and this process ends.
        """
        with self._lock:
            self._own = outcome
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._settled)

    def works_on(self, run: int) -> bool:
        """Return whether any process may still execute this run."""
        with self._lock:
            return not self._settled and self._run == run

    def ready(self) -> None:
        """Record that this process has met the others."""
        with self._lock:
            self._warm = True

    def _send(self, message: dict[str, Any]) -> None:
        line = protocol.encode(**message)
        for follower in self._followers:
            follower.process.send(line)

    # Called from other threads.

    def _on_message(self, follower: Follower, message: dict[str, Any]) -> None:
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

    def _on_end(self, follower: Follower) -> None:
        with self._lock:
            follower.ended = True
            self._lock.notify_all()

    def _watch(self) -> None:
        with self._lock:
            while True:
                self._lock.wait_for(lambda: self._any_ended() or self._any_failed() or self._all_done())
                if not self._any_ended() and not self._all_done():
                    self._lock.wait_for(lambda: self._any_ended() or self._all_finished(), CAUSE_SECONDS)
                if not self._any_ended() and (self._all_done() or self._all_refused()):
                    self._settled = self._warm = True
                    self._own = None
                    for follower in self._followers:
                        follower.outcome = None
                    self._lock.notify_all()
                    continue
                message, details = self._verdict()
                break
        self._broken(message, details)

    # The lock is held in all of these.

    def _outcomes(self) -> list[dict[str, Any] | None]:
        return [self._own, *(follower.outcome for follower in self._followers)]

    def _any_ended(self) -> bool:
        return any(follower.ended for follower in self._followers)

    def _any_failed(self) -> bool:
        return any(outcome is not None and outcome["kind"] != "done" for outcome in self._outcomes())

    def _all_finished(self) -> bool:
        return None not in self._outcomes()

    def _all_done(self) -> bool:
        return all(outcome is not None and outcome["kind"] == "done" for outcome in self._outcomes())

    def _all_refused(self) -> bool:
        return all(outcome is not None and _is_refusal(outcome) for outcome in self._outcomes())

    def _verdict(self) -> tuple[bytes | None, str]:
        """Return the error message for the server, and text for a log."""
        for follower in self._followers:
            if follower.outcome is not None and follower.outcome["kind"] == "unusable":
                return protocol.encode(**follower.outcome), follower.process.stderr()
        for follower in self._followers:
            if follower.ended:
                if self._settled and self._warm:
                    return None, ""
                if self._warm and not follower.picked_up:
                    # It ended while idle, so another worker can run the job.
                    return protocol.encode("dropped", run=self._run), ""
                name = process_name(follower.index, self.place.processes)
                error = follower.process.explain_end(name, follower.phase, new="new ones")
                return protocol.encode("unusable", error=error), follower.process.stderr()
        outcomes = self._outcomes()
        failures = [outcome for outcome in outcomes if outcome is not None and outcome["kind"] != "done"]
        # A refusal explains the failures of the others.
        cause = min(failures, key=lambda failure: not _is_refusal(failure))
        error = cause["error"]
        if not _is_refusal(cause) and any(
            outcome is None or outcome.get("error") != error for outcome in outcomes
        ):
            error = f"{process_name(outcomes.index(cause), self.place.processes)} failed: {error}"
        return protocol.encode(**cause | {"error": error}), ""


def _is_refusal(outcome: dict[str, Any]) -> bool:
    return outcome["kind"] == "failed" and outcome["details"] is None


def _reserve_port() -> tuple[socket.socket, str]:
    """Return a socket that reserves a free port, and the address `host:port`."""
    held = socket.socket()
    # gRPC of the same user can listen on the port; the system gives it to no other process.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((LOOPBACK, 0))
    return held, f"{LOOPBACK}:{held.getsockname()[1]}"
