"""The server does not import JAX, listen on other interfaces, connect to other hosts, or leave workers."""

from __future__ import annotations

import base64
import http.client
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.processes import alive, until
from tests.browser.dashboard import Dashboard

LOOPBACK = {"0100007F", "00000000000000000000000001000000"}  # as /proc/net writes it
LISTENING = "0A"


def test_the_server_listens_on_loopback_only(server):
    inodes = sockets(server.pid)
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in inodes:
                address, port = fields[1].split(":")
                listening.append((address, int(port, 16)))
    assert listening, "the server's socket was not found"
    assert {address for address, _ in listening} <= LOOPBACK
    assert server.port in {port for _, port in listening}


def test_jax_streamlit_and_connections_stay_where_they_belong(open_dashboard, server):
    """What a page requests is checked in every test, by the fixture `open_tab`."""
    open_dashboard()
    workers = server.workers()
    assert workers
    assert all("jaxlib" in mapped(pid) for pid in workers)
    assert "jaxlib" not in mapped(server.pid)
    assert "streamlit" in " ".join(Path(f"/proc/{server.pid}/cmdline").read_text().split("\0"))
    # Streamlit loads native libraries that the workers do not need.
    assert not [pid for pid in workers if "/pyarrow/" in mapped(pid)]
    assert "/pyarrow/" in mapped(server.pid)

    inodes = sockets(server.pid)
    remote = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != LISTENING and fields[9] in inodes:
                remote.add(fields[2].split(":")[0])
    assert remote, "not even the browser's connection was found"
    # The IPv6 table writes IPv4 addresses behind a prefix.
    assert {address for address in remote if address[-8:] != "0100007F"} <= LOOPBACK


@pytest.mark.nightly
def test_ctrl_c_leaves_no_worker(open_context, another_server):
    """Other ends of a server are in tests/jobs/engine/test_server_end.py."""
    Dashboard(open_context().new_page(), another_server.url).open()
    workers = another_server.workers()
    assert workers
    another_server.signal(signal.SIGINT)
    until(lambda: not any(map(alive, workers)), "the end of the workers")


def mapped(pid):
    """Return the files that a process has mapped into memory."""
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize(("host", "status"), [("localhost", 101), ("evil.example", 403)])
def test_a_page_under_another_name_is_refused(server, host, status):
    """Its name can resolve to this machine. All content of a page comes through this web socket.

    Other names and files are in tests/media/streamlit/test_server.py.
    """
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    headers = {
        "Host": f"{host}:{parts.port}",
        "Origin": f"http://{host}:{parts.port}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
    }
    connection.request("GET", "/_stcore/stream", headers=headers)
    assert connection.getresponse().status == status
    connection.close()


def sockets(pid):
    """Return the inodes of a process's open sockets."""
    result = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue  # it is closed
        if target.startswith("socket:["):
            result.add(target.removeprefix("socket:[").removesuffix("]"))
    return result
