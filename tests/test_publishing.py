"""What hosts, hosted workflows and pre-commit look for exists; workflows try what the classifiers name."""

from __future__ import annotations

import os
import shlex
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from inspector.media.terminal import main
from tests.paths import ROOT

WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def commands(workflow: dict[str, Any]) -> Iterator[list[str]]:
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if "run" in step:
                yield shlex.split(step["run"])


@pytest.mark.parametrize(("name", "script"), [("checks", ".ci/run"), ("nightly", ".ci/nightly")])
def test_a_workflow_runs_the_script_of_ci(name: str, script: str) -> None:
    assert [script] in commands(WORKFLOWS[name])
    assert os.access(ROOT / script, os.X_OK)


def test_the_release_tries_verbs_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = [words[1:] for words in commands(WORKFLOWS["release"]) if "sharding-" in words[0]]
    assert verbs
    for arguments in verbs:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--help"])
        assert ended.value.code == 0, capsys.readouterr().err


def test_the_release_tries_every_python_of_the_classifiers() -> None:
    prefix = "Programming Language :: Python :: "
    named = {entry.removeprefix(prefix) for entry in PROJECT["classifiers"] if prefix in entry}
    assert named - {"3 :: Only"} == set(WORKFLOWS["release"]["jobs"]["try"]["strategy"]["matrix"]["python"])


def test_only_the_last_job_of_the_release_may_publish() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    assert WORKFLOWS["release"]["permissions"] == {"contents": "read"}
    writers = {name for name, job in jobs.items() if "write" in job.get("permissions", {}).values()}
    assert writers == {"publish"}


def test_pre_commit_runs_checks_of_run_py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delitem(sys.modules, "run", raising=False)
    import run

    settings = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    for hook in settings["repos"][0]["hooks"]:
        command, script, verb, *names = hook["entry"].split()
        assert (command, script, verb) == ("python3", "run.py", "checks")
        assert names and set(names) <= set(run.CHECKS)


def test_hosts_find_the_app_and_its_requirements_at_the_root() -> None:
    for folder in ("inspector", "models", "tests", ".streamlit"):
        assert (ROOT / folder).is_dir() and not (ROOT / folder).is_symlink(), folder
    for file in ("app.py", "requirements.txt"):
        assert (ROOT / file).is_file(), file
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    (requirement,) = (line for line in text.splitlines() if not line.startswith("#"))
    assert requirement == "--editable .", "the ranges are in pyproject.toml alone"
