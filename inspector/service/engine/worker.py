"""The worker process: `python -m inspector.service.engine.worker TABLE LIFELINE [PROCESSES [INDEX ADDRESS]]`.

TABLE is the module whose `JOBS` maps a job's name to "module:function"; LIFELINE is the number of
a file descriptor that is a pipe from the server, on which nothing is ever sent.

With PROCESSES it is the first of so many, and starts the others; with INDEX it is one of those, which
meets them at ADDRESS. TABLE then says in `MEET` which "module:function" is called, before any job, as
`meet(address, processes, index)`.

Jobs run on the main thread, one at a time. A second thread reads what the server sends, so that a
cancel is noticed during a job, and so that the process ends when the server does.
"""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import importlib
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from inspector.core.errors import Cancelled, InvalidInput
from inspector.service.engine import protocol
from inspector.service.engine.group import Group, Place

SENTENCE_LENGTH = 300  # characters of an exception's text that a page shows
DETAILS_LENGTH = 50_000  # characters of a traceback that are kept, its end first


class Worker:
    """Reads commands from one stream, runs them, and answers on another."""

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
        self._answering = threading.Lock()  # a job may report from threads of its own
        self._inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._cancelled: int | None = None  # the last run that the server asked to stop
        self._group: Group | None = None
        self._has_run = False
        self._place = place  # among several processes, where it has not met the others yet
        if processes > 1 and place is None:
            self._group = Group(table, processes, self._part)
            self._place = self._group.place

    def serve(self) -> None:
        """Run jobs until the process is ended."""
        threading.Thread(target=self._listen, name="commands", daemon=True).start()
        while True:
            message = self._inbox.get()
            if message["kind"] == "run":
                run = message["run"]
                if self._group is not None and self._cancelled != run:
                    self._group.begin(message)
                    if self._cancelled == run:  # by now, and they cannot be called back
                        end_now()
                outcome = self._run(run, message["job"], message["payload"])
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
                        end_now()  # they cannot all be stopped at the same step
                else:
                    self._inbox.put(message)
        finally:
            end_now()

    def _answer(self, line: bytes) -> None:
        with self._answering:
            try:
                self._answers.write(line)
                self._answers.flush()
            except OSError:
                end_now()  # nobody is left to answer to

    def _run(self, run: int, name: str, payload: dict[str, Any]) -> bytes:
        """Run one job; the line that says how it ended."""

        def report(phase: str, /, **figures: Any) -> None:
            """Tell the server where the job is; raises Cancelled if it is to stop."""
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
            self._leave_imports_alone()
            result = handler(payload, report)
            if not isinstance(result, dict):
                raise TypeError(f"the job {name!r} gave {type(result).__name__}, not a dict")
            return protocol.encode("done", run=run, result=result)
        except Cancelled:
            return protocol.encode("cancelled", run=run)
        except InvalidInput as refusal:
            return protocol.encode("failed", run=run, error=one_line(str(refusal)), details=None)
        except BaseException as error:
            details = traceback.format_exc()[-DETAILS_LENGTH:]
            print(details, file=sys.stderr, flush=True)
            return protocol.encode("failed", run=run, error=sentence(error), details=details)

    def _handler(self, name: str) -> Callable[..., dict[str, Any]]:
        jobs = importlib.import_module(self._table).JOBS
        if name not in jobs:
            raise InvalidInput(f"There is no job {name!r}; there are {', '.join(sorted(jobs))}.")
        return _named(jobs[name])

    def _leave_imports_alone(self) -> None:
        """Have the garbage collector pass over what was there before the first job.

        That are half a million objects of JAX and Flax, which stay; a collection takes 3 ms in place of 80.
        """
        if not self._has_run:
            self._has_run = True
            gc.freeze()

    def _meet(self) -> None:
        """Meet the other processes of this worker, if it is several and has not yet."""
        if self._place is not None:
            meet = _named(importlib.import_module(self._table).MEET)
            meet(self._place.address, self._place.processes, self._place.index)
            self._place = None

    def _part(self, message: bytes | None, details: str) -> None:
        """The processes of this worker cannot go on together."""
        print(details, file=sys.stderr, flush=True)
        if message is not None:
            self._answer(message)
        end_now()

    def _warm(self, devices: int) -> None:
        """Import what every job needs; ends the process if JAX does not start as asked."""
        try:
            self._meet()
            # By name, because nothing of the engine depends on JAX: only its jobs do.
            jax = importlib.import_module("jax")
            importlib.import_module("flax")
            found = len(jax.devices())
            error = f"JAX started with {found} devices in a worker that was to have {devices}."
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


def _named(place: str) -> Callable[..., Any]:
    module, function = place.split(":")
    return getattr(importlib.import_module(module), function)


def sentence(error: BaseException) -> str:
    """An exception as one line: its type and the beginning of what it says."""
    text = one_line(str(error))
    name = type(error).__name__
    return f"{name}: {text}" if text else f"{name} was raised, without a word."


def one_line(text: str) -> str:
    """The text without line breaks, cut to what a page can show."""
    text = " ".join(text.split())
    if len(text) > SENTENCE_LENGTH:
        text = text[: SENTENCE_LENGTH - 1].rstrip() + "…"
    return text


def end_now() -> None:
    """End this process and all that it started, whatever any thread is doing."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def end_with_server(lifeline: int) -> None:
    """Have the kernel end this process's group when the server's end of the pipe closes.

    The reading thread sees the same on standard input, but cannot act while native code keeps the
    interpreter's lock. SIGIO ends a process that has no handler for it; where the system ignores
    it instead (macOS), the reading thread is what remains.
    """
    os.set_inheritable(lifeline, False)
    # A negative owner is a process group, which takes along what a job has started.
    owner = -os.getpid() if os.getpgrp() == os.getpid() else os.getpid()
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, owner)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def main() -> None:
    """Take the two standard streams for the protocol, and serve."""
    table, lifeline, *several = sys.argv[1:]
    end_with_server(int(lifeline))
    commands = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # A job that prints, or reads its input, must not touch the protocol: this holds for native
    # code too, since it is done to the descriptors.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    faulthandler.enable()
    processes, place = 1, None
    if several:
        processes = int(several[0])
    if len(several) > 1:
        place = Place(int(several[1]), processes, several[2])
    Worker(table, commands, answers, processes=processes, place=place).serve()


if __name__ == "__main__":
    main()
