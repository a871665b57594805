"""A limit on the memory of worker processes, so that none of them takes the server or the machine with it.

A worker has a limit on its memory, together with all that it started. Its pool reads that from
the kernel `CHECKS_PER_SECOND` times a second, and ends the worker above the limit: a limit on addresses
(`RLIMIT_AS`) does not work, because XLA reserves gigabytes that it never uses.

A job that only parses needs little, so it can have a smaller limit: bytes beyond those that its worker
had when the job began, or has with JAX. The kernel then refuses memory above it (`RLIMIT_DATA`), which is a
MemoryError in Python. The pool ends the worker if its other memory grows that much.
"""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from inspector.core import byte_size, host_memory
from inspector.core.formatting import bytes_text

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
    return byte_size.at_least(text, LEAST, what)


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
