"""The environment of a worker process, and its limit of memory."""

import contextlib
import os
import resource
import site
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inspector.jobs import host_memory, start
from inspector.machines.compiler_options import NO_CUDA_FOLDER, UNSAFE_VARIABLE
from inspector.text import formatting
from inspector.text.formatting import bytes_text

# A limit on the memory of worker processes, so that none of them takes the server or the machine with it.
#
# A worker has a limit on its memory, together with all that it started. Its pool reads that from
# the kernel `CHECKS_PER_SECOND` times a second, and ends the worker above the limit: a limit on addresses
# (`RLIMIT_AS`) does not work, because XLA reserves gigabytes that it never uses.
#
# A job that only parses needs little, so it can have a smaller limit: bytes beyond those that its worker
# had when the job began, or has with JAX. The kernel then refuses memory above it (`RLIMIT_DATA`), which is a
# MemoryError in Python. The pool ends the worker if its other memory grows that much.


VARIABLE = "SHARDING_INSPECTOR_WORKER_MEMORY"
OPTION = "--worker-memory"
LEAST = 512 * 1024**2  # bytes
WORKER = 300 * 1024**2  # bytes of a worker that has imported JAX and Flax, measured with JAX 0.10 and 0.12
# Of the memory of the machine or container, the share of one worker. The compiler of a large model needs it.
SHARE = 0.75
# Bytes that a job may use to parse a file, beyond those of its worker: less than 1 GB together. On a machine
# or in a container with little memory, a share of it.
PARSING = 640 * 1024**2
PARSING_SHARE = 0.25
CHECKS_PER_SECOND = 10


def parse(text: str, what: str) -> int:
    """Return the limit that a person wrote as a size such as `8 GiB`. Errors call it `what`.

    Raises:
      InvalidInput: it is not a size, or less than a worker needs to start.
    """
    return formatting.at_least(text, LEAST, what)


def of_worker() -> int:
    """Return the bytes that one worker may use: those of `VARIABLE`, or a share of this machine.

    Raises:
      InvalidInput: the variable is not a size, or too small.
    """
    text = os.environ.get(VARIABLE)
    if text is not None:
        return parse(text, VARIABLE)
    return max(LEAST, int(host_memory.total_bytes() * SHARE))


def of_parsing() -> int:
    """Return the bytes that a job may use to parse a file, beyond those of its worker."""
    return min(PARSING, int(host_memory.total_bytes() * PARSING_SHARE))


def available_bytes() -> int:
    """Return the bytes that a job in a new worker can use here: the free ones, within the worker's limit."""
    return min(host_memory.available_bytes(), of_worker())


def used_bytes(pid: int, above: int) -> int | None:
    """Return the bytes that a worker and what it started have in memory; None if that is unknown.

    A figure over `above` does not count shared pages twice.
    """
    used = host_memory.resident_bytes(pid)
    if used is None or used <= above:
        return used
    return host_memory.proportional_bytes(pid) or used


def exceeded(used: int, limit: int, phase: str) -> str:
    """Return one sentence on a worker that was ended because it used more than its limit."""
    return (
        f"The worker was stopped during {phase}, because it used {bytes_text(used)} of memory and at most"
        f" {bytes_text(limit)} is allowed; nothing was saved: make the sizes smaller, or raise the limit"
        f" ({VARIABLE}, or {OPTION} of serve and dashboard)."
    )


def exceeded_by_job(limit: int, phase: str) -> str:
    """Return one sentence on a job that parses and needed more than its own limit."""
    return (
        f"The job was stopped during {phase}, because it needed more than the {bytes_text(limit)} of memory"
        " allowed for it; nothing was saved: give it less to read."
    )


@contextlib.contextmanager
def limited(bytes_more: int | None) -> Iterator[None]:
    """Refuse memory beyond what this process has now, or has when it has imported JAX. None sets no limit.

    If the kernel cannot limit it, nothing is refused.

    >>> with limited(2**20):
    ...     bytes(2**30)
    Traceback (most recent call last):
    MemoryError
    """
    used = host_memory.private_data_bytes()
    if bytes_more is None or used is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    soft = max(used, WORKER) + bytes_more
    for bound in before:
        if bound != resource.RLIM_INFINITY:
            soft = min(soft, bound)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def end_before_others() -> None:
    """Make the kernel end this process, not the server, if the machine or container has no memory left."""
    with contextlib.suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("1000")


@dataclass(frozen=True)
class Environment:
    """The number of emulated devices, environment variables, and the number of processes.

    `devices` counts those of all `processes` together, which have equal shares. With `local`, JAX finds the
    devices of this machine as in any other program, and `devices` is their number.
    """

    devices: int
    variables: tuple[tuple[str, str], ...] = ()
    processes: int = 1
    local: bool = False

    def __post_init__(self) -> None:
        # Sorted, so that equal sets of variables find the same warm worker.
        object.__setattr__(self, "variables", tuple(sorted(map(tuple, self.variables))))

    def __str__(self) -> str:
        devices = f"{self.devices} device" + ("s" if self.devices != 1 else "")
        return devices if self.processes == 1 else f"{devices} in {self.processes} processes"

    def for_child(self) -> dict[str, str]:
        """Return all environment variables of a worker: those of the server, with these on top."""
        child = dict(os.environ)
        # Only a worker that was started for unsafe options compiles with them.
        child.pop(UNSAFE_VARIABLE, None)
        if self.local:
            # An idle worker then leaves the memory of a GPU to other programs.
            child.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
            child["XLA_FLAGS"] = f"{NO_CUDA_FOLDER} {child.get('XLA_FLAGS', '')}".strip()
        else:
            child["JAX_PLATFORMS"] = "cpu"
            # Overrides --xla_force_host_platform_device_count in the user's XLA_FLAGS.
            child["JAX_NUM_CPU_DEVICES"] = str(self.devices // self.processes)
        child = start.with_path(child, _import_path())
        if self.processes > 1:
            child["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "gloo"
            for name in os.environ:
                # gRPC would look for the other processes of this machine through a proxy.
                if name.lower().endswith("_proxy"):
                    del child[name]
        child.update(self.variables)
        return child


def _import_path() -> list[str]:
    """Return the folders from which a worker imports, as does the server.

    The folders of the interpreter are left out: a worker runs the same interpreter, and in front they
    would change the search order. So are the folders of `.pth` files, which the interpreter adds again, and
    the current folder of a notebook or of `python -c`.
    """
    own = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    own.append(os.path.join(sysconfig.get_path("platstdlib"), "lib-dynload"))
    skipped = {os.path.realpath(folder) for folder in (*own, *_of_pth_files())}
    paths = []
    for folder in filter(os.path.isabs, sys.path):
        usable = os.path.exists(folder) and os.pathsep not in folder
        if usable and os.path.realpath(folder) not in skipped and folder not in paths:
            paths.append(folder)
    return paths


def _of_pth_files() -> Iterator[str]:
    """Return the folders that `.pth` files of the interpreter name, such as editable installs."""
    for packages in (*site.getsitepackages(), site.getusersitepackages()):
        for file in Path(packages).glob("*.pth"):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.strip() and not line.startswith(("#", "import ", "import\t")):
                    yield os.path.join(packages, line.strip())
