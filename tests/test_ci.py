from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.checkout_command import run_py
from tests.conftest import LONGEST
from tests.paths import ROOT

# What every change must run on both versions of JAX, and where its tests are.
PATHS = {
    "compile": "tests/compiling/test_compile_layout.py",
    "run": "tests/compiling/test_run_layout.py",
    "capture": "tests/recording/test_capture.py",
    "profile": "tests/compiling/test_profile.py",
    "several processes": "tests/tracing/test_distributed.py",
    "propagation": "tests/partition",
    "recorded programs": "tests/jobs/program_run",
    "private names of JAX": "tests/jax_private",
}


@pytest.mark.parametrize("script", [".ci/run", ".ci/nightly", "run.py"])
def test_the_paths_and_markers_in_the_scripts_exist(script: str) -> None:
    text = (ROOT / script).read_text(encoding="utf-8")
    for path in set(re.findall(r"(?<![/^])(tests/\w[\w/.]*)", text)):
        assert (ROOT / path).exists(), path
    markers = set(re.findall(r'-m"?,? "([\w ]+)"', text)) - {"pytest", "ruff", "mypy", "sphinx"}
    markers -= {"benchmarks", "venv", "pip"}
    assert markers
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name in {word for marker in markers for word in marker.split()} - {"not", "and", "or"}:
        assert f'"{name}: ' in settings, name


class Recorded:
    """`run.py` whose commands are recorded, and end with these statuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *statuses: int) -> None:
        self.module = run_py()
        self.installed: list[str] = []
        self.commands: list[tuple[tuple[str, ...], dict[str, str] | None]] = []
        self.ended = False
        left = list(statuses)

        def run(*arguments: str, variables: dict[str, str] | None = None) -> int:
            self.commands.append((arguments, variables))
            return left.pop(0) if left else 0

        def install(*names: str) -> None:
            self.installed += names

        monkeypatch.setattr(self.module, "_run", run)
        monkeypatch.setattr(self.module, "_install", install)
        monkeypatch.setattr(self.module, "_require_chromium", lambda: None)
        monkeypatch.setattr(self.module, "_start_checks", lambda log: self)

    def wait(self) -> int:
        return 0

    def terminate(self) -> None:
        self.ended = True


def test_without_arguments_the_tests_of_every_change_and_the_checks_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Recorded(monkeypatch)
    assert script.module.tests([]) == 0 and script.ended
    assert not {"tpu", "gpu"} & {*script.installed}
    (browser, first), (others, second) = script.commands
    for command in (browser, others):
        assert command[command.index("not nightly") - 1] == "-m"
    assert "tests/browser" in browser and "--ignore=tests/browser" in others
    assert first == second == {"CI": "true"}


def test_all_runs_the_slow_tests_with_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Recorded(monkeypatch)
    assert script.module.tests(["--all"]) == 0
    assert {"tpu", "gpu"} <= set(script.installed)
    (browser, first), (others, second) = script.commands
    assert "not nightly" not in (*browser, *others)
    assert first == {"CI": "true"} and not second, "other examples each time"


def test_arguments_of_tests_go_to_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Recorded(monkeypatch, 1)
    assert script.module.tests(["tests/layout", "-k", "mesh"]) == 1
    ((command, variables),) = script.commands
    assert command[-3:] == ("tests/layout", "-k", "mesh") and not variables
    assert "not nightly" not in command


@pytest.mark.parametrize(("statuses", "status", "parts"), [((1, 0), 1, 2), ((2,), 2, 1)])
def test_failed_tests_end_no_other_part_but_an_interrupt_does(
    statuses: tuple[int, ...], status: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Recorded(monkeypatch, *statuses)
    assert script.module.tests([]) == status and script.ended
    assert len(script.commands) == parts


def has_tests_of_every_change(path: Path) -> bool:
    """Return whether a file has a test that `.ci/run` runs on both versions of JAX."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    marks = " ".join(
        ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    )
    left_out = {"pytest.mark.nightly", "pytest.mark.first_jax_is_enough"}
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return "close_to_jax" in marks and any(
        left_out.isdisjoint(ast.unparse(decorator) for decorator in test.decorator_list)
        for test in tests
        if test.name.startswith("test_") and left_out.isdisjoint(re.split(r"[\[\], ]+", marks))
    )


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_every_change_runs_each_path_on_both_versions_of_jax(path: str) -> None:
    where = ROOT / path
    files = [where] if where.is_file() else where.rglob("test_*.py")
    assert any(has_tests_of_every_change(file) for file in files)


def test_the_files_that_run_first_exist() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []
