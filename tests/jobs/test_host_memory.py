"""The memory of this machine and of processes, against the kernel's own figures and this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inspector.jobs import host_memory
from inspector.text.errors import InvalidInput

MIB = 1024**2


def test_total_is_at_most_that_of_the_machine():
    line = Path("/proc/meminfo").read_text().splitlines()[0]
    assert 0 < host_memory.total_bytes() <= int(line.split()[1]) * 1024
    assert host_memory.available_bytes() <= host_memory.total_bytes()


def test_the_variable_lowers_both(monkeypatch):
    monkeypatch.setenv(host_memory.VARIABLE, "1 GiB")
    assert host_memory.total_bytes() == 1024 * MIB
    assert host_memory.available_bytes() <= 1024 * MIB
    monkeypatch.setenv(host_memory.VARIABLE, "900 TiB")
    assert host_memory.total_bytes() < 900 * 1024**4


@pytest.mark.parametrize("text", ["", "lots", "1 MiB", "-3 GiB"])
def test_a_variable_that_is_no_size_or_too_small(text, monkeypatch):
    monkeypatch.setenv(host_memory.VARIABLE, text)
    with pytest.raises(InvalidInput, match=host_memory.VARIABLE):
        host_memory.total_bytes()


@pytest.mark.parametrize(
    ("lines", "files", "limit", "used"),
    [
        (  # version 2, in a container whose group is the root that it sees
            "0::/",
            {"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 1\ninactive_file 200"},
            1000,
            500,
        ),
        (  # version 2, of a systemd unit
            "0::/system.slice/shards.service",
            {
                "system.slice/memory.max": "5000",
                "system.slice/memory.current": "100",
                "system.slice/memory.stat": "inactive_file 0",
                "system.slice/shards.service/memory.max": "max",
                "system.slice/shards.service/memory.current": "50",
                "system.slice/shards.service/memory.stat": "inactive_file 0",
            },
            5000,
            100,
        ),
        (  # version 1
            "4:memory,hugetlb:/docker/abc\n0::/",
            {
                "memory/docker/abc/memory.limit_in_bytes": "2000",
                "memory/docker/abc/memory.usage_in_bytes": "900",
                "memory/docker/abc/memory.stat": "total_inactive_file 400",
            },
            2000,
            500,
        ),
        (  # version 1, in a container that sees its own group as the root
            "4:memory:/docker/abc",
            {
                "memory/memory.limit_in_bytes": "2000",
                "memory/memory.usage_in_bytes": "900",
                "memory/memory.stat": "total_inactive_file 0",
            },
            2000,
            900,
        ),
    ],
)  # fmt: skip
def test_limits_of_control_groups(lines, files, limit, used, tmp_path):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    (tmp_path / "cgroup").write_text(f"{lines}\n")
    assert list(host_memory.groups(tmp_path / "cgroup", tmp_path)) == [(limit, used)]


def test_no_control_groups(tmp_path):
    assert list(host_memory.groups(tmp_path / "absent", tmp_path)) == []


def test_memory_of_a_process_and_its_child():
    code = f"x = bytearray({64 * MIB}); x[::4096] = bytes({64 * MIB // 4096}).replace(b'\\0', b'x');"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{code} print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        child.stdout.readline()
        own = host_memory.resident_bytes(child.pid)
        assert own is not None and 64 * MIB < own < 128 * MIB
        assert 64 * MIB < host_memory.proportional_bytes(child.pid) <= own
        both = host_memory.resident_bytes(os.getpid())
        alone = host_memory.proportional_bytes(os.getpid(), children=False)
        assert both > own + alone / 2
    finally:
        child.kill()
        child.communicate()
    assert host_memory.resident_bytes(child.pid) is None
    assert host_memory.proportional_bytes(child.pid) is None
