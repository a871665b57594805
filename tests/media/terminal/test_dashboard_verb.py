"""`dashboard` starts Streamlit with the user's models."""

from __future__ import annotations

import os

import pytest

from inspector.media.terminal import dashboard_verb, main


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
    monkeypatch.setattr(os, "execv", lambda program, command: commands.append(command))
    assert main(["dashboard", *arguments]) == 0
    (command,) = commands
    script = command.index(str(dashboard_verb.SCRIPT))
    assert command[script + 1 :] == [*others, *models]


def test_a_malformed_model_name_starts_no_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, command: commands.append(command))
    assert main(["dashboard", "--model", "mlp", "--model", "nope"]) == 2 and not commands
    assert "--model is 'nope'" in capsys.readouterr().err
    assert main(["dashboard", "--model", "mlp"]) == 0 and len(commands) == 1


def test_other_verbs_refuse_unknown_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--server.port", "80"]) == 2
    assert "--server.port" in capsys.readouterr().err
