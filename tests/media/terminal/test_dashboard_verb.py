from __future__ import annotations

import argparse

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

    def run(options: argparse.Namespace) -> None:
        commands.append(dashboard_verb.command(options))

    monkeypatch.setattr(dashboard_verb, "run", run)
    assert main(["dashboard", *arguments]) == 0
    (command,) = commands
    script = command.index(str(dashboard_verb._SCRIPT))
    assert command[script + 1 :] == [*others, *models]


def test_other_verbs_refuse_unknown_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--server.port", "80"]) == 2
    assert "--server.port" in capsys.readouterr().err
