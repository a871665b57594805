from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import LONGEST
from tests.paths import ROOT

# What every change must run on both versions of JAX, and where its tests are.
PATHS = {
    "compile": "tests/producers/test_compile.py",
    "run": "tests/producers/test_run.py",
    "capture": "tests/producers/test_capture.py",
    "profile": "tests/producers/test_profile.py",
    "several processes": "tests/producers/test_distributed.py",
    "propagation": "tests/producers/propagation",
    "recorded programs": "tests/service/program_run",
    "private names of JAX": "tests/producers/jax_internals",
}


@pytest.mark.parametrize("script", ["run", "nightly"])
def test_the_paths_and_markers_in_the_ci_scripts_exist(script: str) -> None:
    text = (ROOT / ".ci" / script).read_text(encoding="utf-8")
    paths = set(re.findall(r"(?<![/^])(tests/\w[\w/.]*)", text))
    assert paths
    for path in paths:
        assert (ROOT / path).exists(), path
    markers = set(re.findall(r'-m "?([\w ]+)', text))
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name in {word for each in markers for word in each.split()} - {"not", "and", "or"}:
        assert f'"{name}: ' in settings, name


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
