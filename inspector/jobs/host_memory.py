"""The memory of this machine, within the limits of its control groups, and what processes use of it.

Control groups are those of a container, of a systemd unit or of a batch system, version 1 or 2:
https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
"""

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inspector.text import formatting

VARIABLE = "SHARDING_INSPECTOR_MEMORY"
LEAST = 1024**3  # bytes of VARIABLE; a server with two workers that have imported JAX has about half of that
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")  # the unit of /proc/PID/statm, which only Linux has


@dataclass(frozen=True)
class _Files:
    """The files of one control group: its limit, its use, and the part that the kernel can take back."""

    folder: Path
    limit: str
    used: str
    reclaimable: str  # the key in memory.stat


def total_bytes() -> int:
    """Return the bytes of memory that the server and its workers can use together.

    They are those of the machine or container, or fewer if `VARIABLE` says so.

    Raises:
      InvalidInput: the variable is not a size, or too small.
    """
    limits = [limit for limit, _ in groups()]
    return min([_meminfo("MemTotal"), *limits, *_given()])


def available_bytes() -> int:
    """Return the bytes that a new program can use without swapping, within the limits of control groups."""
    free = [max(0, limit - used) for limit, used in groups()]
    return min([_meminfo("MemAvailable"), *free, *_given()])


def _given() -> Iterator[int]:
    text = os.environ.get(VARIABLE)
    if text is not None:
        yield formatting.at_least(text, LEAST, VARIABLE)


def resident_bytes(pid: int) -> int | None:
    """Return the bytes that a process and its children have in memory; None if that is unknown.

    Pages that several of these processes share count for each of them; see `proportional_bytes`.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * _PAGE_BYTES + sum(resident_bytes(child) or 0 for child in _children(pid))


def proportional_bytes(pid: int, children: bool = True) -> int | None:
    """Return the same with shared pages divided among their processes, which takes the kernel longer.

    Return None if that is unknown. Without `children`, return the bytes of the process alone.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        own = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    below = _children(pid) if children else ()
    return own + sum(proportional_bytes(child) or 0 for child in below)


def private_data_bytes() -> int | None:
    """Return the bytes of this process that `RLIMIT_DATA` limits; None if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return None


def give_back() -> None:
    """Return the memory of objects that are no longer used to the system."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # a C library without malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def _children(pid: int) -> list[int]:
    """Return the processes that the main thread of a process started."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:  # it has ended, or the kernel does not list children
        return []
    return [int(child) for child in text.split()]


def _meminfo(key: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES  # not Linux


def groups(
    names: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> Iterator[tuple[int, int]]:
    """Yield the limit and the use of each control group of this process that has a limit.

    Args:
      names: the file with the groups of this process.
      root: the path at which control groups are mounted.
    """
    for files in _group_files(names, root):
        try:
            limit = (files.folder / files.limit).read_text().strip()
            if limit == "max":
                continue
            used = int((files.folder / files.used).read_text())
            statistics = dict(
                line.split() for line in (files.folder / "memory.stat").read_text().splitlines()
            )
            # Pages of files that were read count as used, but the kernel drops them when it needs room.
            yield int(limit), used - int(statistics.get(files.reclaimable, 0))
        except (OSError, ValueError):
            continue  # no such controller, or a group of another mount


def _group_files(names: Path, root: Path) -> Iterator[_Files]:
    """Yield the control groups from that of this process up to the root that it sees."""
    try:
        lines = names.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        inside = Path(path.lstrip("/"))
        if ".." in inside.parts:  # the group is outside of the namespace, as seen from a container
            inside = Path()
        if not controllers:
            files = ("memory.max", "memory.current", "inactive_file")
            top = root
        elif "memory" in controllers.split(","):
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            top = root / "memory"
        else:
            continue
        for folder in (inside, *inside.parents):
            yield _Files(top / folder, *files)
