"""`run`: a program finds the environment, path, arguments, files and signals that it has alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.checkout_command import write_command
from tests.paths import ROOT

# It prints what a program can see of how it was started.
PROGRAM = """
import atexit, json, os, resource, signal, sys, threading, warnings


def open_files():
    files = {}
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            files[number] = (os.get_inheritable(number), os.stat(number).st_ino)
        except OSError:  # of `listdir`
            pass
    return files


def attributes(module):
    names = ("__name__", "__file__", "__package__", "__cached__", "__doc__", "__spec__", "__path__")
    return {**{name: str(getattr(module, name, "absent")).partition(" object at 0x")[0] for name in names},
            "origin": getattr(module.__spec__, "origin", None),
            "__loader__": type(module.__loader__).__name__, "all": sorted(vars(module))}


print(json.dumps({
    "environment": list(os.environ.items()),
    "path": sys.path,
    "arguments": [sys.argv, sys.orig_argv[1:]],
    "main": attributes(sys.modules["__main__"]),
    "flags": [repr(sys.flags), sys.warnoptions, sys._xoptions, sys.dont_write_bytecode],
    "interpreter": [sys.executable, sys.prefix, sys.exec_prefix],
    "files": open_files(),
    "signals": {int(number): str(signal.getsignal(number)) for number in signal.valid_signals()
                if not callable(signal.getsignal(number))},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT" in name],
    "process": [os.getcwd(), os.umask(0o22), os.getpriority(os.PRIO_PROCESS, 0), os.getsid(0)],
    "streams": [[stream.encoding, stream.errors, stream.line_buffering] if stream else None
                for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "threads": [thread.name for thread in threading.enumerate()],
    "exit functions": atexit._ncallbacks(),
    "hooks": [sys.excepthook is sys.__excepthook__, sys.gettrace(), len(sys.path_hooks)],
    "importers": [folder for folder in sys.path_importer_cache if "program_run" in folder],
    "startup": [name for name in sys.modules if "customize" in name or "inspector" in name],
    "warnings": [str(filter) for filter in warnings.filters],
}))
"""

# What starts a program: a variable of the environment, and a folder of modules.
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "plain": {},
    "with_an_empty_entry": {"PYTHONPATH": f"more{os.pathsep}"},
    "safe_path": {"PYTHONPATH": ".", "PYTHONSAFEPATH": "1", "PYTHONUTF8": "1"},
}
WAYS = {"script": ["program.py", "--flag", "-m"], "module": ["-m", "package.program", "--flag"]}


def _started(
    command: Sequence[str], folder: Path, variables: dict[str, str], **options: Any
) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    # A shell would correct PWD.
    environment |= {"PWD": "/", "PYTHONDONTWRITEBYTECODE": "1", **variables}
    with (folder / "inherited.txt").open("w+") as inherited:
        done = subprocess.run(
            [*command], cwd=folder, env=environment, capture_output=True, text=True,
            pass_fds=(inherited.fileno(),), stdin=subprocess.DEVNULL, timeout=100, **options,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    for stream in "012":  # each run has pipes of its own
        seen["files"].pop(stream, None)
    return seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name in "package", "more":
        (folder / name).mkdir()
    for path in (folder / "program.py", folder / "package" / "program.py"):
        path.write_text(PROGRAM)
    return folder


@pytest.fixture(scope="module")
def by_command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [str(write_command(tmp_path_factory.mktemp("bin")))]


@pytest.mark.parametrize("variables", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_program_sees_what_it_sees_alone(
    folder: Path, by_command: list[str], way: str, variables: dict[str, str]
) -> None:
    alone = _started([sys.executable, *WAYS[way]], folder, variables)
    assert _started([*by_command, "run", "-o", "recorded", *WAYS[way]], folder, variables) == alone
    # The package is installed for both here, as the second command needs it.
    variables = {
        **variables,
        "PYTHONPATH": os.pathsep.join([str(ROOT), variables.get("PYTHONPATH", "")]),
    }
    alone = _started([sys.executable, *WAYS[way]], folder, variables)
    package = [sys.executable, "-m", "inspector"]
    assert _started([*package, "run", "-o", "recorded", *WAYS[way]], folder, variables) == alone


def _ignore_some_signals() -> None:
    for number in signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD:
        signal.signal(number, signal.SIG_IGN)


def _block_a_signal() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])


def _close_streams() -> None:
    os.close(0)
    os.close(2)


@pytest.mark.parametrize("before", [_ignore_some_signals, _block_a_signal, _close_streams])
def test_what_a_parent_process_set_reaches_the_program(
    folder: Path, by_command: list[str], before: Callable[[], None]
) -> None:
    alone = _started([sys.executable, "program.py"], folder, {}, preexec_fn=before)
    run = [*by_command, "run", "-o", "recorded", "program.py"]
    assert _started(run, folder, {}, preexec_fn=before) == alone
