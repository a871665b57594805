"""`dashboard` starts Streamlit with the user's models."""

from __future__ import annotations

import os
import socket

import pytest

from inspector.media.terminal import main, serve_verb


@pytest.mark.parametrize(
    ("arguments", "models", "others"),
    [
        ([], [], []),
        (["--model=a:b", "--server.port", "80"], ["--", "--model", "a:b"], ["--server.port", "80"]),
        (
            ["--server.port=80", "--model", "a:b", "--model", "c:d"],
            ["--", "--model", "a:b", "--model", "c:d"],
            ["--server.port=80"],
        ),
    ],
)
def test_models_go_to_the_app_and_other_options_to_streamlit(
    arguments: list[str],
    models: list[str],
    others: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda program, command, variables: commands.append(command))
    assert main(["dashboard", *arguments]) == 0
    (command,) = commands
    script = command.index(str(serve_verb.SCRIPT))
    assert command[script + 1 :] == [*others, *models]


def test_a_malformed_model_name_starts_no_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda program, command, variables: commands.append(command))
    assert main(["dashboard", "--model", "mlp", "--model", "nope"]) == 2 and not commands
    assert "--model is 'nope'" in capsys.readouterr().err
    assert main(["dashboard", "--model", "mlp"]) == 0 and len(commands) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--zzz"], "--zzz"),
        (["--server.prt", "80"], "--server.prt"),
        (["--server.port", "abc"], "'abc'"),
        (["extra"], "extra"),
        (["--port", "0"], "--port is '0'"),
        (["--address", "0.0.0.0"], "`serve`"),
        (["--address", "nowhere"], "--address is 'nowhere'"),
    ],
)
def test_an_option_that_streamlit_refuses_is_one_line(
    options: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "execve", lambda program, command, variables: pytest.fail("a server was started"))
    assert main(["dashboard", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_address_and_port(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda program, command, variables: commands.append(command))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["dashboard", "--port", port]) == 2 and not commands
        assert port in capsys.readouterr().err
    assert main(["dashboard", "--address", "127.0.0.1", "--port", port, "--model", "a:b"]) == 0
    assert commands[0][-7:] == [
        *("--server.address", "127.0.0.1", "--server.port", port),
        *("--", "--model", "a:b"),
    ]


def test_other_verbs_refuse_unknown_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--server.port", "80"]) == 2
    assert "--server.port" in capsys.readouterr().err
