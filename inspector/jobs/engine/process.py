"""A worker process: its pipes, the lines on them, and its end."""

import collections
import contextlib
import glob
import json
import logging
import os
import queue
import re
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inspector.jobs import start

# Messages between server and worker: each a JSON object on one line.
#
# Server to worker, on the worker's standard input:
#
#     run        run, job, payload, memory run this job; `run` is its number from now on, and `memory` the
#                                          bytes that it may use beyond those of the worker, or null
#     cancel     run                       stop that run at its next report
#     warm       devices                   import JAX and check that it has this many devices
#
# Worker to server, on the worker's original standard output:
#
#     started    run                       the job has begun
#     dropped    run                       it has not begun after all; the worker ends after this
#     progress   run, phase, figures       progress of the job
#     done       run, result               ┐
#     failed     run, error, details       ├ exactly one of these ends a run
#     cancelled  run                       ┘
#     warmed
#     unusable   error                     warming failed; the worker ends after this


# A worker writes this line on its standard error when a run begins. A message cannot replace it, because
# the two streams are not synchronized.
NEW_RUN = "-- a run begins --"


def encode(kind: str, **fields: Any) -> bytes:
    """Return one message as one line, newline included.

    Raises TypeError or ValueError for values that strict JSON does not have, such as NaN.
    """
    # ASCII only, so that neither a line separator nor a lone surrogate in a name can break a line.
    text = json.dumps({"kind": kind, **fields}, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the message of one line. Raises ValueError if there is none."""
    message = json.loads(line)
    if isinstance(message, dict) and isinstance(message.get("kind"), str):
        return message
    raise ValueError("A message is a JSON object with a text under `kind`.")


def canonical(payload: dict[str, Any]) -> str:
    """Return the same text for equal payloads, whatever the order of their keys.

    Raises TypeError or ValueError for values that strict JSON does not have.
    """
    return json.dumps(payload, allow_nan=False, sort_keys=True, separators=(",", ":"))


LINES_KEPT = 500  # of standard error; a crash with all its threads' stacks is about 200
LINE_LENGTH = 4096  # bytes; a longer line is kept in pieces, so that memory stays bounded
DRAIN_SECONDS = 2.0  # time for output to arrive after the process has ended

CRASHES = frozenset(
    {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP}
)

# Last messages of native code: absl's fatal line as XLA writes it, C++'s uncaught exception, LLVM's
# fatal error, the allocator's, Python's own. The most informative pattern comes first.
FATAL = (
    re.compile(r"^F\d{4} .*?\] (?P<message>.+)"),
    re.compile(r"^\s*what\(\):\s*(?P<message>.+)"),
    re.compile(r"^LLVM ERROR: (?P<message>.+)"),
    re.compile(r"^(?P<message>terminate called .+|.*: Assertion .+ failed.*|free\(\): .+|malloc.+)"),
    re.compile(r"^Fatal Python error: (?P<message>.+)"),
    re.compile(r"^(?P<message>[\w.]*(Error|Exception): .+)"),
)

# What C++, LLVM, absl and the C library write when they are refused memory.
OUT_OF_MEMORY = (
    re.compile(r"std::bad_alloc"),
    re.compile(r"LLVM ERROR: out of memory"),
    re.compile(r"(?i)cannot allocate memory|failed to allocate|out of memory"),
)

_log = logging.getLogger(__name__)


class Process:
    """One worker process, from start to end.

    `variables` is its whole environment; `arguments` follow the lifeline on its command line. With
    `own_group` it leads a process group, so that whatever a job starts ends with it. Otherwise it is in
    the group of the process that starts it.

    Threads of this object call `on_message(message)` for each message and then `on_end()` once, after
    the process has ended and its output was read. No method blocks, except `join`. Raises OSError or
    ValueError if the process cannot be started.
    """

    def __init__(
        self,
        variables: Mapping[str, str],
        table: str,
        on_message: Callable[[dict[str, Any]], None],
        on_end: Callable[[], None],
        *,
        arguments: Sequence[str] = (),
        own_group: bool = True,
    ) -> None:
        self._own_group = own_group
        self._on_message = on_message
        self._on_end = on_end
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)
        theirs, self._lifeline = os.pipe()
        try:
            self._popen = subprocess.Popen(
                start.command("inspector.jobs.engine.worker", table, str(theirs), *arguments),
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs,),
                # A Ctrl-C meant for the server must not reach it.
                start_new_session=own_group,
            )
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(theirs)
        self.pid = self._popen.pid
        self._send_thread = self._thread(self._send_all, "send")
        self._receive_thread = self._thread(self._receive_all, "receive")
        self._stderr_thread = self._thread(self._keep_stderr, "stderr")
        self._end_thread = self._thread(self._await_end, "end")
        try:
            self._send_thread.start()
            self._receive_thread.start()
            self._stderr_thread.start()
            self._end_thread.start()  # last, because it waits for the others
        except RuntimeError as error:  # no more threads, or the interpreter is shutting down
            self.kill()
            self._popen.wait()
            os.close(self._lifeline)
            raise OSError(str(error)) from error

    def _thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=target, name=f"worker {self.pid} {name}", daemon=True)

    def send(self, line: bytes) -> None:
        """Queue a line to be sent. Return at once, even if the worker does not read."""
        self._outbox.put(line)

    def kill(self) -> None:
        """Kill the process and all that it started. Return at once. May be repeated."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it may just have ended
                if self._own_group:
                    os.killpg(self.pid, signal.SIGKILL)
                else:
                    self._popen.kill()

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the end of the process. Return whether it has ended."""
        self._end_thread.join(timeout)
        return not self._end_thread.is_alive()

    def stderr(self) -> str:
        """Return the last lines of standard error since the last run began."""
        return "\n".join(list(self._stderr))

    def ending(self) -> str:
        """Return how the process ended, to follow its name: "was killed (SIGKILL)"."""
        code = self._popen.returncode
        if code == -signal.SIGKILL:
            return "was killed (SIGKILL)"
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            return f"crashed ({name})" if -code in CRASHES else f"was ended ({name})"
        return f"ended by itself (exit status {code})"

    def fatal_message(self) -> str | None:
        """Return the line of standard error that explains a crash, if there is one."""
        lines = list(self._stderr)
        for pattern in FATAL:
            for line in reversed(lines):
                if match := pattern.search(line):
                    return match["message"].strip()[:300]
        return None

    def ran_out_of_memory(self) -> bool:
        """Return whether native code ended the process because it was refused memory."""
        lines = list(self._stderr)
        return any(pattern.search(line) for pattern in OUT_OF_MEMORY for line in lines)

    def crashed(self) -> bool:
        """Return whether native code ended the process, as it would again for the same input."""
        return -self._popen.returncode in CRASHES

    def explain_end(self, name: str, phase: str, new: str = "a new one") -> str:
        """Return one sentence on why a run failed when this process ended during `phase`."""
        killed = self._popen.returncode == -signal.SIGKILL
        # The kernel does this to the process that uses most, workers first (`end_before_others`).
        smaller = ", with smaller sizes if the machine had no memory left" if killed else ""
        return f"{name} {self._ending_during(phase)}; nothing was saved, run again to start {new}{smaller}."

    def explain_unreadable(self, what: str, phase: str) -> str:
        """Return one sentence on a file whose parser this process was when it crashed during `phase`."""
        return f"{what} cannot be read: its parser {self._ending_during(phase)}."

    def _ending_during(self, phase: str) -> str:
        message = None if self._popen.returncode == -signal.SIGKILL else self.fatal_message()
        quoted = f", saying “{message.rstrip('.')}”" if message else ""
        return f"{self.ending()} during {phase}{quoted}"

    def _send_all(self) -> None:
        stdin = self._popen.stdin
        assert stdin is not None
        try:
            while (line := self._outbox.get()) is not None:
                stdin.write(line)
                stdin.flush()
        except OSError:
            pass  # the worker has ended, which another thread notices
        finally:
            with contextlib.suppress(OSError):
                stdin.close()

    def _receive_all(self) -> None:
        stdout = self._popen.stdout
        assert stdout is not None
        try:
            with stdout:
                for line in stdout:
                    if line.endswith(b"\n"):  # otherwise it ended in the middle of a message
                        self._on_message(decode(line))
        except Exception:
            _log.exception("Worker %d sent an invalid message.", self.pid)
        finally:
            # Without its messages a worker is useless, even if it still runs.
            self.kill()

    def _keep_stderr(self) -> None:
        stderr = self._popen.stderr
        assert stderr is not None
        with stderr:
            while line := stderr.readline(LINE_LENGTH):
                text = line.decode("utf-8", "replace").rstrip()
                if text == NEW_RUN:
                    # A crash must not be explained by the output of an earlier job.
                    self._stderr.clear()
                    continue
                self._stderr.append(text)
                _log.debug("Worker %d: %s", self.pid, text)

    def _await_end(self) -> None:
        self._popen.wait()
        if self._own_group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # processes that a job left running
        self._outbox.put(None)
        os.close(self._lifeline)
        # Bounded, because a process that left the group could still hold these pipes open.
        self._receive_thread.join(DRAIN_SECONDS)
        self._stderr_thread.join(DRAIN_SECONDS)
        self._remove_temporary_files()
        self._on_end()

    def _remove_temporary_files(self) -> None:
        """Remove what XLA had in the temporary folder: files named tempfile-HOST-THREAD-PROCESS-TIME."""
        folder = Path(tempfile.gettempdir())
        for left in folder.glob(f"tempfile-{glob.escape(socket.gethostname())}-*-{self.pid}-*"):
            with contextlib.suppress(OSError):
                left.unlink()


def process_name(index: int, processes: int) -> str:
    """Return the name of one of several processes for a sentence. JAX counts them from 0."""
    return f"Process {index} (of {processes}, counted from 0)"
