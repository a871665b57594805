"""Every command on a full disk and on a read-only one.

The library, the caches and the outputs of the commands are on a small file system, which first
gets entries and is then filled up or made read-only. A command may end with exit status 2 and one line, or do
its work without the disk. It must not print a traceback or leave a half-written file, and afterwards all
entries must be there. The file system is a tmpfs, which only root can mount.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.count import Count

SIZE = 2**20  # bytes of the file system
ROOM = (0, 4_096, 65_536)  # bytes that are free on the full disk
_SECONDS = 300
ROOT = Path(__file__).resolve().parents[2]
_MODEL = [
    "--model",
    "mlp",
    "--mesh",
    "2",
    "--axes",
    "data",
    "--set",
    "layers=1",
    "--set",
    "depth=8",
    "--set",
    "batch=8",
    "--steps",
    "1",
]
_SCRIPT = """
import jax, jax.numpy as jnp
print(jax.jit(lambda x: x @ x)(jnp.ones((8, 8))).sum())
"""


def commands(disk: Path, ready: Path) -> list[list[str]]:
    """Return the arguments of the commands. `ready` has files that they read."""
    snapshot, out = str(ready / "run.json"), str(disk / "out")
    return [
        ["library", "list"],
        ["library", "save", snapshot, "--name", "new"],
        ["library", "save", snapshot, "--name", "kept 1", "--replace"],
        ["library", "rename", "kept 2", "kept two"],
        ["library", "rename", "kept two", "kept 2"],
        ["library", "delete", "new"],
        ["library", "export", "kept 1", "-o", f"{out}/exported.json"],
        ["library", "export", "--all", "-o", f"{out}/all.zip"],
        ["inspect", *_MODEL, "--target", "plan", "-o", f"{out}/plan.json"],
        ["inspect", *_MODEL, "-o", f"{out}/run.json"],
        ["inspect", *_MODEL, "-o", "/dev/full"],
        ["report", snapshot, "-o", f"{out}/report.html"],
        ["compare", snapshot, snapshot, "-o", f"{out}/compare.md"],
        ["show", snapshot],
        ["search", *_MODEL, "--target", "plan", "--budget", "0", "-o", f"{out}/search.json"],
        ["run", "-o", f"{out}/program", str(ready / "script.py")],
        ["code", str(ready / "layout.json"), "-o", f"{out}/code.py"],
    ]


def faulty_disks() -> Count:
    """Run all commands on full and read-only disks."""
    count = Count("commands on a full or read-only disk")
    with tempfile.TemporaryDirectory() as name:
        ready = Path(name) / "ready"
        ready.mkdir()
        (ready / "script.py").write_text(_SCRIPT)
        _run(["inspect", *_MODEL, "-o", str(ready / "run.json")], Path(name))
        layout = json.loads((ready / "run.json").read_text())["layout"]
        (ready / "layout.json").write_text(json.dumps(layout))
        disk = Path(name) / "disk"
        for state in (*ROOM, "read-only"):
            with mounted(disk) as change:
                (disk / "out").mkdir()
                _prepare(disk, ready)
                change(state)
                words = "read-only" if state == "read-only" else f"{state} bytes free"
                for one in commands(disk, ready):
                    before = {path.name for path in (disk / "out").iterdir()}
                    count.check(_problem(one, disk, before), f"{words}: {' '.join(one[:3])}")
                change(None)
                count.check(_lost(disk), f"{words}: the entries afterwards")
    return count


@contextlib.contextmanager
def mounted(disk: Path) -> Iterator[Callable[[int | str | None], None]]:
    """Make a small file system, and return what changes its state: free bytes, `read-only` or None."""
    if os.geteuid() != 0:
        raise RuntimeError("benchmarks.faults.disks needs root, to mount a small file system")
    disk.mkdir(exist_ok=True)
    options = f"size={SIZE},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(disk)], check=True)
    ballast = disk / "ballast"

    def change(state: int | str | None) -> None:
        remount = "remount,ro" if state == "read-only" else "remount,rw"
        subprocess.run(["mount", "-o", f"{remount},{options}", str(disk)], check=True)
        if state is None:
            ballast.unlink(missing_ok=True)
        elif state != "read-only":
            free = shutil.disk_usage(disk).free - int(state)
            ballast.write_bytes(b"\0" * max(free, 0))

    try:
        yield change
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _prepare(disk: Path, ready: Path) -> None:
    for number in range(4):
        _run(["library", "save", str(ready / "run.json"), "--name", f"kept {number}"], disk)
    _run(["inspect", *_MODEL, "-o", str(disk / "out" / "plan.json")], disk)


def _run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",  # otherwise JAX prints why it finds no accelerator
        "SHARDING_INSPECTOR_LIBRARY": str(folder / "library"),
        "SHARDING_INSPECTOR_CACHE": str(folder / "cache"),
    }
    return subprocess.run(
        [sys.executable, "-m", "inspector", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )


def _problem(arguments: list[str], disk: Path, before: set[str]) -> str | None:
    try:
        ended = _run(arguments, disk)
    except subprocess.TimeoutExpired:
        return f"it takes more than {_SECONDS} s"
    text = ended.stdout + ended.stderr
    if "Traceback" in text or "unexpected" in ended.stderr:
        return f"a traceback: {ended.stderr[-300:]}"
    if ended.returncode not in (0, 2):
        return f"exit status {ended.returncode}: {ended.stderr[-300:]}"
    refusals = [line for line in ended.stderr.splitlines() if line.startswith("sharding-inspector:")]
    if ended.returncode == 2 and len(refusals) != 1:
        return f"{len(refusals)} sentences: {ended.stderr[-300:]}"
    reasons = ("full", "space", "ead-only", "already", "has no Snapshot", "quota", "large")
    if refusals and not any(word in refusals[0] for word in reasons):
        return f"the reason is not named: {refusals[0]}"
    warnings = [line for line in ended.stderr.splitlines() if "cannot be used" in line]
    if len(warnings) != len(set(warnings)):
        return f"a warning is repeated {len(warnings)} times"
    new = {path.name for path in (disk / "out").iterdir()} - before
    if ended.returncode == 2 and new and arguments[0] != "run":
        return f"it left {new}"
    if any(one.startswith(".") for one in new):
        return f"it left {new}"
    return None


def _lost(disk: Path) -> str | None:
    listed = _run(["library", "list", "--json"], disk)
    if listed.returncode:
        return listed.stderr
    names = {one["name"] for one in json.loads(listed.stdout)}
    missing = {f"kept {number}" for number in range(4)} - names
    for name in sorted(names):
        exported = _run(["library", "export", name, "-o", str(disk / "out" / "x.json")], disk)
        if exported.returncode:
            return exported.stderr
    return f"{sorted(missing)} are lost" if missing else None
