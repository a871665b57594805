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
import gc
import importlib
import io
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from inspector.core import start
from inspector.core.errors import LONGEST_SENTENCE, Cancelled, InvalidInput
from inspector.service.engine import memory_limit, protocol
from inspector.service.engine.group import Group, Place
from inspector.service.engine.job import FIRST_PHASE

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
        place: Place | None = None,
    ) -> None:
        self._table = table
        self._commands = commands
        self._answers = answers
        self._answering = threading.Lock()  # a job may report from several threads
        self._inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._cancelled: int | None = None  # the last run that the server asked to stop
        self._group: Group | None = None
        self._has_run = False
        self._place = place  # until it has met the other processes
        if processes > 1 and place is None:
            self._group = Group(table, processes, self._end_group)
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
                    self._group.end(protocol.decode(outcome))
                self._answer(outcome)
            elif message["kind"] == "warm":
                if self._group is not None:
                    self._group.warm(message)
                self._warm(message["devices"])

    def _listen(self) -> None:
        try:
            for line in self._commands:
                message = protocol.decode(line)
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
            self._answer(protocol.encode("progress", run=run, phase=phase, figures=figures))

        os.write(2, f"\n{protocol.NEW_RUN}\n".encode())
        self._answer(protocol.encode("started", run=run))
        try:
            if self._cancelled == run:
                raise Cancelled
            self._meet()
            handler = self._handler(name)
            self._freeze_imports()
            with memory_limit.limited(memory):
                result = handler(payload, report)
                if not isinstance(result, dict):
                    raise TypeError(f"the job {name!r} gave {type(result).__name__}, not a dict")
                return protocol.encode("done", run=run, result=result)
        except Cancelled:
            return protocol.encode("cancelled", run=run)
        except InvalidInput as refusal:
            return protocol.encode("failed", run=run, error=one_line(str(refusal)), details=None)
        except BaseException as error:
            if isinstance(error, MemoryError) and memory is not None:
                reason = memory_limit.exceeded_by_job(memory, reached)
                return protocol.encode("failed", run=run, error=reason, details=None)
            details = traceback.format_exc()[-DETAILS_LENGTH:]
            print(details, file=sys.stderr, flush=True)
            return protocol.encode("failed", run=run, error=sentence(error), details=details)

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
            self._answer(protocol.encode("warmed"))
        else:
            self._answer(protocol.encode("unusable", error=error))
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
    memory_limit.end_before_others()
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
        place = Place(int(others[1]), processes, others[2])
    Worker(table, commands, answers, processes=processes, place=place).serve()
