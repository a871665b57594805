"""Interpreters of this package import nothing from the current folder but the user's own model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from inspector.jobs import start
from tests.checkout_command import run_py, write_command

PRINTS = """
import json, sys


from inspector.jobs import start


def main():
    start.find_own_models()
    names = sys.argv[1:]
    print(json.dumps([sys.path, {name: getattr(__import__(name), "__file__", None) for name in names}]))
"""


def _imported(folder: Path, *names: str) -> tuple[list[str], dict[str, str | None]]:
    """Return `sys.path` of a child process, and the file of each module that it imports."""
    tool = folder.parent / "tools"
    tool.mkdir(exist_ok=True)
    (tool / "prints.py").write_text(PRINTS)
    variables = start.variables()
    variables["PYTHONPATH"] = os.pathsep.join([str(tool), *variables.get("PYTHONPATH", "").split(os.pathsep)])
    command = start.command("prints", *names)
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    path, files = json.loads(done.stdout)
    return path, files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with modules of its own."""
    folder = tmp_path / "downloaded"
    (folder / "namespace").mkdir(parents=True)
    for name in "mine", "msgspec", "colorsys", "sitecustomize":
        (folder / f"{name}.py").write_text("")
    (folder / "sitecustomize.py").write_text("open('executed', 'w').close()")
    (folder / "namespace" / "model.py").write_text("")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", str(tmp_path / "named")]))
    monkeypatch.setenv(start.OWN_MODELS, "")  # so that it is removed after the test
    monkeypatch.delenv(start.OWN_MODELS)
    return folder


def test_relative_entries_of_the_path_are_left_out(folder: Path) -> None:
    assert start.variables()["PYTHONPATH"] == str(folder.parent / "named")
    path, files = _imported(folder, "msgspec", "colorsys")
    assert str(folder) not in path and "" not in path
    assert all(not Path(file or "").is_relative_to(folder) for file in files.values())
    assert not (folder / "executed").exists()


def test_the_folder_of_a_named_model_comes_last(folder: Path) -> None:
    for module in "msgspec_of_nobody", "numpy.linalg", "namespace_of_nobody":
        start.name_own_model(module)  # not here
    assert start.OWN_MODELS not in os.environ
    start.name_own_model("mine.model")
    path, files = _imported(folder, "mine", "msgspec", "colorsys")
    assert path[-1] == str(folder)
    assert files["mine"] == str(folder / "mine.py")
    assert [name for name, file in files.items() if Path(file or "").is_relative_to(folder)] == ["mine"]
    assert not (folder / "executed").exists()


def test_a_named_model_is_found_before_an_installed_package(folder: Path) -> None:
    start.name_own_model("namespace.model")
    start.name_own_model("colorsys")
    _, files = _imported(folder, "colorsys", "namespace.model", "msgspec")
    assert files["colorsys"] == str(folder / "colorsys.py")
    assert not Path(files["msgspec"] or "").is_relative_to(folder)


def test_the_command_of_a_checkout_obeys_the_environment(folder: Path) -> None:
    command = write_command(folder.parent)
    done = subprocess.run([command, "show", "×.json"], cwd=folder, capture_output=True)
    assert (done.returncode, "×" in done.stderr.decode("utf-8")) == (2, True)
    variables = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([command, "show", "×.json"], cwd=folder, env=variables, capture_output=True)
    assert (done.returncode, b"\xd7.json" in done.stderr) == (2, True)
    assert not (folder / "executed").exists()


def test_an_interpreter_in_a_folder_with_spaces_starts_the_command(tmp_path: Path) -> None:
    python = tmp_path / "a long folder"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", python], check=True)
    (packages,) = python.glob("lib/python*/site-packages")
    (packages / "more.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    command = tmp_path / "command"
    command.write_text(run_py().command_text(python / "bin" / "python"))
    command.chmod(0o755)
    done = subprocess.run([command, "--help"], capture_output=True, text=True)
    assert (done.returncode, "dashboard" in done.stdout) == (0, True), done.stderr
