"""`serve` refuses unsafe settings, and starts Streamlit with safe ones."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.jobs import serving
from inspector.jobs.serving import Serving, TrustedProxy
from inspector.media.terminal import main
from inspector.records import typed_json

SECRET = "0123456789abcdef" * 2
HEADER = ["--user-header", "X-User"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that replaced this process."""
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda program, command, variables: commands.append(command))
    monkeypatch.setenv(serving.VARIABLE, "")
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    return commands


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def settings() -> Serving:
    return typed_json.decode(Serving, json.loads(os.environ[serving.VARIABLE]))


def values(command: list[str], option: str) -> list[str]:
    return [after for name, after in itertools.pairwise(command) if name == option]


def test_a_loopback_server_needs_no_sign_in(started: list[list[str]]) -> None:
    port = free_port()
    assert main(["serve", "--port", port, "--host", "shards.my.org"]) == 0
    (command,) = started
    assert values(command, "--server.address") == ["127.0.0.1"]
    assert values(command, "--server.port") == [port]
    hosts = ["127.0.0.1", "localhost", "[::1]", "shards.my.org"]
    assert values(command, "--server.allowedHosts") == hosts
    assert "--server.trustedUserHeaders" not in command
    assert settings() == Serving(team=True)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.7"])
def test_another_address_needs_sign_in_or_consent(
    address: str, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--address", address, "--port", free_port()]) == 2
    error = capsys.readouterr().err
    assert (
        error.count("\n") == 1
        and address in error
        and "--without-sign-in" in error
        and "--trusted-proxy" in error
    )
    assert started == []


def test_an_open_server_is_started_on_request(started: list[list[str]]) -> None:
    assert main(["serve", "--address", "0.0.0.0", "--without-sign-in", "--port", free_port()]) == 0
    assert values(started[0], "--server.address") == ["0.0.0.0"]
    assert "0.0.0.0" not in values(started[0], "--server.allowedHosts")


@pytest.mark.parametrize(
    ("proxy", "address"),
    [("10.0.0.2", "10.0.0.2"), ("::ffff:10.0.0.2", "10.0.0.2"), ("FD00:0::2", "fd00::2"), ("::1", "::1")],
)
def test_a_proxy_opens_every_address(
    proxy: str, address: str, tmp_path: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    more = ["--proxy-secret", str(file), "--port", free_port()]
    assert main(["serve", "--address", "0.0.0.0", "--trusted-proxy", proxy, *HEADER, *more]) == 0
    (mapping,) = values(started[0], "--server.trustedUserHeaders")
    assert json.loads(mapping) == {"X-User": "user"}
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    assert settings().proxy == TrustedProxy("X-User", address, digest)
    assert SECRET not in os.environ[serving.VARIABLE] + " ".join(started[0])
    # Otherwise a header would be the sender's address.
    assert os.environ["FORWARDED_ALLOW_IPS"] == ""
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("proxy", ["127.0.0.1", "127.5.0.1", "::1"])
def test_a_proxy_on_this_machine_without_a_secret_is_warned_of(
    proxy: str, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--trusted-proxy", proxy, *HEADER, "--port", free_port()]) == 0
    error = capsys.readouterr().err
    assert error.startswith("warning: ") and "--proxy-secret" in error and error.count("\n") == 1
    assert main(["serve", "--trusted-proxy", "10.0.0.2", *HEADER, "--port", free_port()]) == 0
    assert capsys.readouterr().err == "" and len(started) == 2


def test_a_unix_socket_of_an_earlier_server_is_replaced(
    tmp_path: Path,
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket has at most 108 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        server.listen()
        assert main(["serve", "--trusted-proxy", "unix:socket", *HEADER]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "socket" in error and started == []
    assert main(["serve", "--trusted-proxy", "unix:socket", *HEADER]) == 0
    assert values(started[0], "--server.address") == [f"unix://{tmp_path / 'socket'}"]
    assert settings().proxy == TrustedProxy("X-User") and not (tmp_path / "socket").exists()
    assert capsys.readouterr().err == ""


def test_a_file_is_no_socket(tmp_path: Path, started: list[list[str]]) -> None:
    file = tmp_path / "data"
    file.write_text("data")
    for path in (file, tmp_path / "missing" / "socket", tmp_path / ("x" * 200)):
        assert main(["serve", "--trusted-proxy", f"unix:{path}", *HEADER]) == 2
    assert file.read_text() == "data" and started == []


@pytest.mark.parametrize(
    "content", ["short", "", f"{SECRET} {SECRET}", f"{SECRET}\n{SECRET}", f"{SECRET}\x00"]
)
def test_an_unusable_secret_is_refused_without_showing_it(
    content: str, tmp_path: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "secret"
    file.write_text(content)
    assert main(["serve", "--trusted-proxy", "10.0.0.2", *HEADER, "--proxy-secret", str(file)]) == 2
    error = capsys.readouterr().err
    assert str(file) in error and error.count("\n") == 1 and SECRET not in error
    assert started == []


@pytest.fixture
def taken() -> Iterator[str]:
    """A port of 127.0.0.1 that a server listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield str(server.getsockname()[1])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--address", "my.host"],
        ["--port", "0"],
        ["--port", "x"],
        ["--worker-memory", "1MB"],
        ["--worker-memory", "80%"],
        ["--host", "http://my.host"],
        ["--host", "my.host:80"],
        ["--trusted-proxy", "10.0.0.2"],
        ["--trusted-proxy", "shards.my.org", *HEADER],
        ["--trusted-proxy", "10.0.0.0/8", *HEADER],
        ["--trusted-proxy", "10.0.0.2", "--user-header", "X User"],
        ["--trusted-proxy", "10.0.0.2", *HEADER, "--proxy-secret", "/dev/null"],
        ["--address", "my.host", "--trusted-proxy", "10.0.0.2", *HEADER],
        ["--user-header", "X-User"],
        ["--proxy-secret", "secret"],
        ["--model", "not-a-model"],
        ["--audit-log", "/dev/null/nothing"],
        ["--server.address", "0.0.0.0"],
    ],
)
def test_unusable_options_are_refused_before_the_port_is_tried(
    arguments: list[str],
    taken: str,
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--port", taken, *arguments]) == 2
    error = capsys.readouterr().err
    assert arguments[0] in error or arguments[-1] in error
    assert error.count("\n") == 1 and started == []


def test_a_port_in_use_is_refused(
    taken: str, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", taken]) == 2
    assert taken in capsys.readouterr().err and started == []
