"""`serve` refuses unsafe settings, and starts Streamlit with safe ones."""

from __future__ import annotations

import itertools
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.core import typed_json
from inspector.media.terminal import main
from inspector.service import serving
from inspector.service.serving import Serving

SECRET = "0123456789abcdef" * 2
PROVIDER = {"client_id": "c", "client_secret": SECRET, "server_metadata_url": "https://p.org/x"}
AUTH = {"redirect_uri": "https://shards.my.org/oauth2callback", "cookie_secret": SECRET}


def write(path: Path, **sections: dict[str, object]) -> str:
    lines = []
    for name, fields in sections.items():
        lines.append(f"[{name.replace('__', '.')}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that replaced this process."""
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda program, command, variables: commands.append(command))
    monkeypatch.setenv(serving.VARIABLE, "")
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
    assert main(["serve", "--port", port, "--queued-per-user", "3", "--host", "shards.my.org"]) == 0
    (command,) = started
    assert values(command, "--server.address") == ["127.0.0.1"]
    assert values(command, "--server.port") == [port]
    hosts = ["127.0.0.1", "localhost", "[::1]", "shards.my.org"]
    assert values(command, "--server.allowedHosts") == hosts
    assert "--secrets.files" not in command
    assert settings() == Serving(team=True, jobs_per_user=2, queued_per_user=3, shutdown_seconds=60.0)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.7"])
def test_another_address_needs_sign_in_or_consent(
    address: str, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--address", address, "--port", free_port()]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and address in error and "--insecure-open" in error
    assert started == []


def test_an_open_server_is_started_on_request(started: list[list[str]]) -> None:
    assert main(["serve", "--address", "0.0.0.0", "--insecure-open", "--port", free_port()]) == 0
    assert values(started[0], "--server.address") == ["0.0.0.0"]
    assert "0.0.0.0" not in values(started[0], "--server.allowedHosts")


@pytest.mark.parametrize(
    ("sections", "providers"),
    [
        ({"auth": AUTH | PROVIDER}, ("default",)),
        ({"auth": AUTH, "auth__google": PROVIDER, "auth__okta": PROVIDER}, ("google", "okta")),
        ({"auth": AUTH, "auth__okta": PROVIDER, "auth__half": {"client_id": "c"}}, ("okta",)),
    ],
)
def test_sign_in_opens_every_address(
    sections: dict, providers: tuple[str, ...], tmp_path: Path, started: list[list[str]]
) -> None:
    file = write(tmp_path / "secrets.toml", **sections)
    more = ["--allow-domain", "My.org", "--port", free_port()]
    assert main(["serve", "--address", "0.0.0.0", "--secrets", file, *more]) == 0
    assert values(started[0], "--secrets.files") == [file]
    assert values(started[0], "--server.allowedHosts")[-1] == "shards.my.org"
    assert settings().providers == providers and settings().domains == ("my.org",)
    assert SECRET not in os.environ[serving.VARIABLE] + " ".join(started[0])


@pytest.mark.parametrize(
    ("auth", "named"),
    [
        (None, "[auth]"),
        (AUTH, "client_id"),
        (AUTH | PROVIDER | {"client_id": ""}, "client_id"),
        (AUTH | PROVIDER | {"cookie_secret": "short"}, "cookie_secret"),
        (AUTH | PROVIDER | {"redirect_uri": "https://shards.my.org/"}, "redirect_uri"),
        (AUTH | PROVIDER | {"redirect_uri": 5}, "redirect_uri"),
        (AUTH | {"my_provider": PROVIDER}, "TOML"),  # not TOML: a JSON object as a value
    ],
)
def test_unusable_secrets_are_refused_without_showing_them(
    auth: dict | None,
    named: str,
    tmp_path: Path,
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = write(tmp_path / "secrets.toml", **({} if auth is None else {"auth": auth}))
    assert main(["serve", "--secrets", file]) == 2
    error = capsys.readouterr().err
    assert named in error and error.count("\n") == 1 and SECRET not in error
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
        ["--jobs-per-user", "0"],
        ["--worker-memory", "1MB"],
        ["--worker-memory", "80%"],
        ["--queued-per-user", "many"],
        ["--shutdown-seconds", "-1"],
        ["--host", "http://my.host"],
        ["--host", "my.host:80"],
        ["--allow-domain", "my.org"],
        ["--model", "not-a-model"],
        ["--log-format", "xml"],
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
