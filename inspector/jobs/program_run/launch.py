"""Start a program as Python would start it, pass signals on to it, and end as it ends."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[3]
VARIABLE = "SHARDING_INSPECTOR_RUN"
_STARTUP = PROJECT / "inspector/recording/startup"

# Signals that a program can handle and that reach only this process if they are sent to it.
_PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM",
                 "SIGCONT", "SIGWINCH")
    if hasattr(signal, name)
)  # fmt: skip
_FROM_TERMINAL = 128  # si_code SI_KERNEL: the terminal sent the signal to the program, too
_PR_SET_PDEATHSIG = 1


class LaunchedProgram:
    """The process of a program that records each program that it compiles.

    Args:
      arguments: the script or `-m MODULE`, and the arguments of the program.
      folder: the folder in which the program records; it has the folder `raw`.
      variables: environment variables on top of those of this process.
      platform: the platform of the target, None without a target.
      settings: more settings of the hook.
      streams: standard streams, as `Popen` takes them. By default, those of this process.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        variables: Mapping[str, str] | None = None,
        platform: str | None = None,
        settings: Mapping[str, Any] | None = None,
        streams: Mapping[str, Any] | None = None,
    ) -> None:
        self.started = time.time()
        environment = dict(os.environ) | dict(variables or {})
        before = environment.get("PYTHONPATH")
        all_settings = {
            "folder": str(folder.resolve()),
            "root": str(PROJECT),
            "pythonpath": before,
            "started": self.started,
            "platform": platform,
            **(settings or {}),
        }
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_STARTUP), before)))
        environment[VARIABLE] = json.dumps(all_settings)
        self._handled = [number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
        # If the parent process ignores SIGCHLD, the kernel announces no end of a child and keeps no status.
        self._ignores_children = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        if self._ignores_children:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Signals wait until `wait` passes them on. The program starts with the mask of this process.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*self._handled, signal.SIGCHLD})
        try:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                env=environment,
                preexec_fn=self._before_start,
                close_fds=False,  # it inherits the open files that this process inherited, and no others
                **(streams or {}),
            )
        except BaseException:
            self._unblock()
            raise

    def wait(self) -> int:
        """Wait for the end of the program, and pass signals on. Return its status like `Popen`."""
        try:
            while self._process.poll() is None:
                self._pass_on()
        finally:
            self._unblock()
        return self._process.returncode

    def end_alike(self) -> int:
        """End this process by the signal that ended the program, or return the exit status."""
        status = self._process.returncode
        if status < 0:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or None
                    stream.flush()
            _dump_no_core()
            with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
                signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
        return status

    def _pass_on(self) -> None:
        if hasattr(signal, "sigwaitinfo"):
            received = signal.sigwaitinfo({*self._handled, signal.SIGCHLD})
            if received.si_signo == signal.SIGCHLD or received.si_code == _FROM_TERMINAL:
                return
            number = received.si_signo
        else:  # macOS does not say who sent a signal; Ctrl-C reaches the program anyway
            number = signal.sigwait({*self._handled, signal.SIGCHLD})
            if number in (signal.SIGCHLD, signal.SIGINT):
                return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def _before_start(self) -> None:
        if self._ignores_children:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if sys.platform == "linux":  # the program ends with this process if that is killed
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def _dump_no_core() -> None:
    """Leave the core file to the program."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
