"""The worker process, with the arguments TABLE LIFELINE [PROCESSES [INDEX ADDRESS]].

TABLE is the module whose `JOBS` maps names of jobs to "module:function". LIFELINE is the file descriptor of
a pipe from the server, on which nothing is sent.

With PROCESSES it is the first of several processes and starts the others. With INDEX it is one of those,
which meet at ADDRESS. `MEET` in TABLE is then the "module:function" that is called before any job, as
`meet(address, processes, index)`.

Jobs run on the main thread, one at a time. A second thread reads messages of the server, so that a job can
be cancelled, and so that the process ends with the server.
"""

import faulthandler
import fcntl
import functools
import gc
import importlib
import io
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from inspector.jobs import start
from inspector.jobs.engine import environment, process
from inspector.jobs.engine.job import FIRST_PHASE
from inspector.jobs.engine.process import Process, process_name
from inspector.text.errors import LONGEST_SENTENCE, Cancelled, InvalidInput

# A worker of several processes: the first one leads the others.
#
# Every process speaks the protocol: the server with the first, the first with its followers. All run the
# same job at the same time, as JAX requires of the processes of one mesh. The first one's result is the
# job's. They are one process group, so that one signal ends them all.
#
# If one of them fails, the others may wait for it in a collective for ever. So a group survives a job only if
# every process finished it, with a result or with the same refusal. Otherwise it ends.


LOOPBACK = "127.0.0.1"
# Seconds to wait for the cause of a failure after its first sign. A process that waits for a dead one may
# report its own failure before the end of the other is seen.
CAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class ProcessPlace:
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


class Followers:
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
        self.place = ProcessPlace(0, processes, address)
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
        line = process.encode(**message)
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
                return process.encode(**follower.outcome), follower.process.stderr()
        for follower in self._followers:
            if follower.ended:
                if self._settled and self._warm:
                    return None, ""
                if self._warm and not follower.picked_up:
                    # It ended while idle, so another worker can run the job.
                    return process.encode("dropped", run=self._run), ""
                name = process_name(follower.index, self.place.processes)
                error = follower.process.explain_end(name, follower.phase, new="new ones")
                return process.encode("unusable", error=error), follower.process.stderr()
        outcomes = self._outcomes()
        failures = [outcome for outcome in outcomes if outcome is not None and outcome["kind"] != "done"]
        # A refusal explains the failures of the others.
        cause = min(failures, key=lambda failure: not _is_refusal(failure))
        error = cause["error"]
        if not _is_refusal(cause) and any(
            outcome is None or outcome.get("error") != error for outcome in outcomes
        ):
            error = f"{process_name(outcomes.index(cause), self.place.processes)} failed: {error}"
        return process.encode(**cause | {"error": error}), ""


def _is_refusal(outcome: dict[str, Any]) -> bool:
    return outcome["kind"] == "failed" and outcome["details"] is None


def _reserve_port() -> tuple[socket.socket, str]:
    """Return a socket that reserves a free port, and the address `host:port`."""
    held = socket.socket()
    # gRPC of the same user can listen on the port; the system gives it to no other process.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((LOOPBACK, 0))
    return held, f"{LOOPBACK}:{held.getsockname()[1]}"


DETAILS_LENGTH = 50_000  # characters of a traceback, counted from its end


class Worker:
    """Reads commands from one stream, runs jobs, and answers on another."""

    def __init__(
        self,
        table: str,
        commands: BinaryIO,
        answers: BinaryIO,
        *,
        processes: int = 1,
        place: ProcessPlace | None = None,
    ) -> None:
        self._table = table
        self._commands = commands
        self._answers = answers
        self._answering = threading.Lock()  # a job may report from several threads
        self._inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._cancelled: int | None = None  # the last run that the server asked to stop
        self._group: Followers | None = None
        self._has_run = False
        self._place = place  # until it has met the other processes
        if processes > 1 and place is None:
            self._group = Followers(table, processes, self._end_group)
            self._place = self._group.place

    def serve(self) -> None:
        """Run jobs until the process ends."""
        threading.Thread(target=self._listen, name="commands", daemon=True).start()
        while True:
            message = self._inbox.get()
            if message["kind"] == "run":
                run = message["run"]
                if self._group is not None and self._cancelled != run:
                    self._group.begin(message)
                    if self._cancelled == run:  # since then; the others cannot be stopped
                        end_now()
                outcome = self._run(run, message["job"], message["payload"], message["memory"])
                if self._group is not None and self._cancelled != run:
                    self._group.end(process.decode(outcome))
                self._answer(outcome)
            elif message["kind"] == "warm":
                if self._group is not None:
                    self._group.warm(message)
                self._warm(message["devices"])

    def _listen(self) -> None:
        try:
            for line in self._commands:
                message = process.decode(line)
                if message["kind"] == "cancel":
                    self._cancelled = message["run"]
                    if self._group is not None and self._group.works_on(message["run"]):
                        end_now()  # the processes cannot all stop at the same step
                else:
                    self._inbox.put(message)
        finally:
            end_now()

    def _answer(self, line: bytes) -> None:
        with self._answering:
            self._write(line)

    def _write(self, line: bytes) -> None:
        try:
            self._answers.write(line)
            self._answers.flush()
        except OSError:
            end_now()  # the server has ended

    def _run(self, run: int, name: str, payload: dict[str, Any], memory: int | None) -> bytes:
        """Run one job within its memory. Return the message with its outcome, encoded."""
        reached = FIRST_PHASE

        def report(phase: str, /, **figures: Any) -> None:
            """Report progress to the server. Raises Cancelled if the job was cancelled."""
            nonlocal reached
            reached = phase
            if self._cancelled == run:
                raise Cancelled
            self._answer(process.encode("progress", run=run, phase=phase, figures=figures))

        os.write(2, f"\n{process.NEW_RUN}\n".encode())
        self._answer(process.encode("started", run=run))
        try:
            if self._cancelled == run:
                raise Cancelled
            self._meet()
            handler = self._handler(name)
            self._freeze_imports()
            with environment.limited(memory):
                result = handler(payload, report)
                if not isinstance(result, dict):
                    raise TypeError(f"the job {name!r} gave {type(result).__name__}, not a dict")
                return process.encode("done", run=run, result=result)
        except Cancelled:
            return process.encode("cancelled", run=run)
        except InvalidInput as refusal:
            return process.encode("failed", run=run, error=one_line(str(refusal)), details=None)
        except BaseException as error:
            if isinstance(error, MemoryError) and memory is not None:
                reason = environment.exceeded_by_job(memory, reached)
                return process.encode("failed", run=run, error=reason, details=None)
            details = traceback.format_exc()[-DETAILS_LENGTH:]
            print(details, file=sys.stderr, flush=True)
            return process.encode("failed", run=run, error=sentence(error), details=details)

    def _handler(self, name: str) -> Callable[..., dict[str, Any]]:
        jobs = importlib.import_module(self._table).JOBS
        if name not in jobs:
            raise InvalidInput(f"There is no job {name!r}; there are {', '.join(sorted(jobs))}.")
        return _named(jobs[name])

    def _freeze_imports(self) -> None:
        """Exclude the objects of JAX and Flax from garbage collection: 3 ms instead of 80 ms each."""
        if not self._has_run:
            self._has_run = True
            gc.freeze()

    def _meet(self) -> None:
        """Meet the other processes of this worker, if there are any and it has not met them."""
        if self._place is not None:
            meet = _named(importlib.import_module(self._table).MEET)
            meet(self._place.address, self._place.processes, self._place.index)
            self._place = None

    def _end_group(self, message: bytes | None, details: str) -> None:
        print(details, file=sys.stderr, flush=True)
        with self._answering:  # for good: a run must not report anything after this message
            if message is not None:
                self._write(message)
            end_now()

    def _warm(self, devices: int) -> None:
        """Import JAX and Flax. End the process if JAX starts with another number of devices."""
        try:
            self._meet()
            # Imported by name, because only jobs depend on JAX.
            jax = importlib.import_module("jax")
            importlib.import_module("flax")
            found = len(jax.devices())
            error = f"JAX started with {found} devices in a worker for {devices}."
        except Exception as failure:
            traceback.print_exc()
            found, error = None, f"JAX did not start in a worker: {sentence(failure)}"
        if found == devices:
            if self._group is not None:
                self._group.ready()
            self._answer(process.encode("warmed"))
        else:
            self._answer(process.encode("unusable", error=error))
            end_now()


def _named(path: str) -> Callable[..., Any]:
    module, function = path.split(":")
    job: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return job


def sentence(error: BaseException) -> str:
    """Return an exception as one line: its type and the beginning of its message."""
    text = one_line(str(error))
    name = type(error).__name__
    return f"{name}: {text}" if text else f"{name} was raised without a message."


def one_line(text: str) -> str:
    """Return the text without line breaks, at most `LONGEST_SENTENCE` characters."""
    text = " ".join(text.split())
    if len(text) > LONGEST_SENTENCE:
        text = text[: LONGEST_SENTENCE - 1].rstrip() + "…"
    return text


def end_now() -> None:
    """End this process and all that it started, whatever its threads do."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def end_with_server(lifeline: int) -> None:
    """Make the kernel end this process group when the server's end of the pipe closes.

    The reading thread sees the same on standard input, but cannot act while native code holds the GIL.
    SIGIO ends a process without a handler for it. macOS ignores it, and relies on the reading thread.
    """
    os.set_inheritable(lifeline, False)
    # A negative owner is a process group, which includes whatever a job has started.
    owner = -os.getpid() if os.getpgrp() == os.getpid() else os.getpid()
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, owner)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def main() -> None:
    """Use the two standard streams for the protocol, and serve."""
    table, lifeline, *others = sys.argv[1:]
    end_with_server(int(lifeline))
    environment.end_before_others()
    start.find_own_models()
    commands = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # A job that prints or reads its input must not touch the protocol. Changing the descriptors covers
    # native code too.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    faulthandler.enable()
    processes, place = 1, None
    if others:
        processes = int(others[0])
    if len(others) > 1:
        place = ProcessPlace(int(others[1]), processes, others[2])
    Worker(table, commands, answers, processes=processes, place=place).serve()
