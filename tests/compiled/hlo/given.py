"""Where the HLO texts with known answers are, and how a test that needs one skips."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.paths import CASES

FOLDER = CASES / "hlo"

needs_cases = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the cases with answers are not beside this project"
)


def text(name: str) -> str:
    """One file of the cases, wherever below the folder it is."""
    (path,) = FOLDER.rglob(name)
    return path.read_text(encoding="utf-8")


def answers(name: str) -> Any:
    """The parsed JSON of a file of answers; nothing where the folder is absent."""
    path = FOLDER / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def modules_of_xla() -> list[dict[str, Any]]:
    """XLA's own test modules, one record each."""
    path = FOLDER / "xla_test_modules.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
