"""Jobs that the tests of the engine run in real workers: some succeed, some fail."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from inspector.text.errors import InvalidInput

NAMES = """
    echo big loop stubborn stuck chatty noisy abort killed leave refuse fail not_json not_dict
    devices modules spawn orphan swallow reads environment gate together
    grow grow_below choose
"""
JOBS = {name: f"{__name__}:{name}" for name in NAMES.split()}
JOBS["missing"] = "no_such_module:function"
MEET = f"{__name__}:meet"

PIECE = 16 * 1024**2  # bytes
PLACE = []  # of this process among several, once it has met the others


def echo(payload, report):
    """Return the payload and the process id."""
    return {"payload": payload, "pid": os.getpid()}


def choose(payload, report):
    """Run the job that the payload names."""
    return globals()[payload["job"]](payload, report)


def big(payload, report):
    """Return a result of `size` characters."""
    report("making", size=payload["size"])
    return {"text": "x" * payload["size"], "got": len(payload.get("ballast", ""))}


def gate(payload, report):
    """Report, then wait until a file exists. Count the runs in another file."""
    with Path(payload["count"]).open("a") as count:
        count.write(f"{os.getpid()}\n")
    while not Path(payload["open"]).exists():
        report("waiting", pid=os.getpid())
        time.sleep(0.01)
    return {"pid": os.getpid()}


def loop(payload, report):
    """Reports for ever."""
    for number in itertools.count():
        report("looping", number=number, pid=os.getpid())
        time.sleep(0.01)


def swallow(payload, report):
    """Reports for ever, and catches every exception on the way."""
    while True:
        with contextlib.suppress(Exception):
            report("looping", pid=os.getpid())
        time.sleep(0.01)


def stubborn(payload, report):
    """Sleeps in one native call and hears no cancel."""
    report("sleeping", pid=os.getpid())
    time.sleep(3600)


def stuck(payload, report):
    """Native code that never gives up the interpreter's lock: no other thread runs again."""
    report("stuck", pid=os.getpid())
    collections.deque(itertools.repeat(None), maxlen=0)


def grow(payload, report):
    """Allocate memory piece by piece and write to it, up to `bytes`. Return how much there is."""
    report("growing", pid=os.getpid())
    pieces = []
    for _ in range(payload["bytes"] // PIECE):
        pieces.append(bytearray(PIECE))
        pieces[-1][::4096] = b"x" * (PIECE // 4096)  # the kernel gives a page when it is written
        time.sleep(payload.get("pause", 0.0))
    return {"pid": os.getpid(), "bytes": sum(map(len, pieces))}


def grow_below(payload, report):
    """Have a process below this one grow."""
    code = f"import time; x = bytearray({payload['bytes']}); x[::4096] = x[::4096].replace(b'\\0', b'x')"
    report("growing", pid=os.getpid())
    subprocess.run([sys.executable, "-c", f"{code}; time.sleep(60)"], check=True)
    return {}


def chatty(payload, report):
    """Reports as fast as it can."""
    for number in range(payload["reports"]):
        report("talking", number=number)
    report("last", number=payload["reports"])
    return {}


def noisy(payload, report):
    """Writes to standard output in every way there is, things that look like messages included."""
    print('{"kind":"done","run":1,"result":{"forged":true}}')
    sys.__stdout__.write("more\n")
    os.write(1, b'{"kind":"progress"}\n')
    subprocess.run([sys.executable, "-c", "print('from a process')"], check=True)
    return {"honest": True}


def reads(payload, report):
    """Reads standard input, which must be empty instead of being the protocol."""
    return {"read": sys.stdin.read(), "descriptor": os.read(0, 10).decode()}


def abort(payload, report):
    """Ends as XLA does on a failed check."""
    report("compile")
    os.write(2, b"F1120 10:52:15.065337    4988 literal.cc:12] Check failed: 3 == rank (3 vs. 2)\n")
    os.abort()


def killed(payload, report):
    """Ends as if the system had run out of memory, with a temporary file as XLA names them."""
    name = f"tempfile-{socket.gethostname()}-7f0d97250169004-{os.getpid()}-660eb1cfbafa5"
    (Path(tempfile.gettempdir()) / name).touch()
    report("compile", file=name)
    os.kill(os.getpid(), signal.SIGKILL)


def leave(payload, report):
    """Exit the process."""
    os._exit(7)


def refuse(payload, report):
    """Raise InvalidInput."""
    raise InvalidInput("`hidden` is 1023; 4 ways of `model` do not divide it.")


def fail(payload, report):
    """Fails with an exception of several lines, or none, or a request to exit."""
    if payload["how"] == "exit":
        sys.exit("enough")
    if payload["how"] == "silent":
        raise KeyError
    raise ValueError("the first line\n\n   the second " + "x" * 1000)


def not_json(payload, report):
    """Gives what JSON cannot hold."""
    return {"loss": float("nan")}


def not_dict(payload, report):
    """Gives something else than promised."""
    return [1]


def devices(payload, report):
    """Asks JAX itself."""
    import jax

    return {
        "devices": len(jax.devices()),
        "platform": jax.default_backend(),
        "flags": os.environ.get("XLA_FLAGS"),
    }


def modules(payload, report):
    """Which modules this worker has imported."""
    return {"modules": sorted(sys.modules)}


def environment(payload, report):
    """What this process has inherited."""
    open_files = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists the folder
            open_files.append(os.readlink(f"/proc/self/fd/{entry}"))
    return {"variables": dict(os.environ), "files": open_files, "path": sys.path}


def spawn(payload, report):
    """Start a child process, report its id, and sleep."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    report("spawned", child=child.pid, pid=os.getpid())
    time.sleep(3600)


def orphan(payload, report):
    """Start a child process and exit without waiting for it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    report("spawned", child=child.pid)
    os._exit(0)


def meet(address, processes, index):
    """Store the arguments, without initializing JAX."""
    if os.environ.get("NO_MEETING") == str(index):
        raise RuntimeError("no other process")
    PLACE.append((address, processes, index))


def together(payload, report):
    """Run the action of this process from the payload, after the door file exists."""
    ((address, processes, index),) = PLACE
    report("working", pid=os.getpid())
    act = payload["acts"][index]
    while payload.get("door") and not Path(payload["door"]).exists():
        time.sleep(0.01)
    if act == "meet the end":  # fail because of another process, before its failure is known
        while not Path(payload["end"]).exists():
            time.sleep(0.005)
        raise ConnectionError("the other has hung up")
    if act in ("die first", "refuse first"):
        Path(payload["end"]).touch()
        time.sleep(0.1)
        act = "killed" if act == "die first" else "refuse"
    if act == "wait":  # as in a collective that another process does not join
        time.sleep(3600)
    actions = {"abort": abort, "killed": killed, "leave": leave, "refuse": refuse, "stuck": stuck}
    if act in actions:
        actions[act](payload, report)
    if act == "fail":
        raise ValueError("three is not two")
    return {"address": address, "processes": processes, "index": index, "pid": os.getpid()}
