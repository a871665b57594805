"""Profile some steps of a recorded program, in windows of time.

Nothing in a program says when a step begins, and a compiled one is called without Python. So a window begins
with each compile and ends after a time. The process that started the program reads the profile, and asks for
no further one when it has enough runs. Otherwise the next window is longer.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from inspector.files import output
from inspector.records.program_run import ENOUGH, PROFILE, PROFILE_TAKEN

if TYPE_CHECKING:
    from inspector.jax_private.profiler_hook import Profiler

_FIRST_SECONDS = 0.5
_LONGER = 4
_MOST_SECONDS = 300.0  # of one window
_MOST_SECONDS_TOGETHER = 900.0
_PAUSE = 2  # times the window, in which the profile is read


class StepProfile:
    """The windows of one program.

    Args:
      profiler: the `Profiler` of `jax_internals.profiler_hook`.
      folder: that of the run.
    """

    def __init__(self, profiler: Profiler, folder: Path) -> None:
        self._profiler = profiler
        self._folder = folder
        self._seconds = _FIRST_SECONDS
        self._spent = 0.0
        self._began: float | None = None
        self._next = 0.0
        self._count = 0
        self._lock = threading.RLock()

    def compiled(self) -> None:
        """Begin a window after a compile, whose program is in no window before."""
        with self._lock:
            if self._spent >= _MOST_SECONDS_TOGETHER or self._profiler.taken:
                return
            (self._folder / ENOUGH).unlink(missing_ok=True)
            if self._began is not None:
                self._profiler.end()
            self._seconds = _FIRST_SECONDS
            self._begin()

    def poll(self) -> None:
        """End a window that is over, or begin the next one."""
        with self._lock:
            now = time.monotonic()
            if self._began is not None:
                if now >= self._began + self._seconds:
                    self.end()
            elif (
                self._count
                and now >= self._next
                and self._spent < _MOST_SECONDS_TOGETHER
                and not (self._folder / ENOUGH).exists()
            ):
                self._begin()

    def end(self) -> None:
        """End the window, and write its profile."""
        with self._lock:
            if self._profiler.taken:
                (self._folder / PROFILE_TAKEN).touch()
            if self._began is None:
                return
            self._spent += time.monotonic() - self._began
            self._began = None
            profile = self._profiler.end()
            if profile:
                self._count += 1
                output.write_bytes(bytes(profile), self._folder / "raw" / PROFILE.format(self._count))
            self._next = time.monotonic() + _PAUSE * self._seconds
            self._seconds = min(self._seconds * _LONGER, _MOST_SECONDS)

    def _begin(self) -> None:
        self._began = time.monotonic() if self._profiler.begin() else None
