"""HLO texts with known answers, in ../shared/cases/hlo."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.paths import CASES

FOLDER = CASES / "hlo"

needs_cases = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs ../shared/cases/hlo")


def text(name: str) -> str:
    """Return the text of a case by file name."""
    (path,) = FOLDER.rglob(name)
    return path.read_text(encoding="utf-8")


def chain(lines: str, count: int = 2000) -> str:
    """Return the computations c0, c1, …, each with these lines, in which BEFORE is the one before it."""
    return "".join(f"c{n} {{\n{lines.replace('BEFORE', f'c{n - 1}')}\n}}\n" for n in range(count))


def answers(name: str) -> Any:
    """Return a JSON file of answers; empty if the folder is missing."""
    path = FOLDER / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def modules_of_xla() -> list[dict[str, Any]]:
    """Return the test modules of XLA; empty if the folder is missing."""
    path = FOLDER / "xla_test_modules.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
