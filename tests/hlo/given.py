"""HLO texts with known answers: our own, and those in ../shared/cases/hlo."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.hlo import own_programs
from tests.paths import CASES, OWN_CASES

OWN = OWN_CASES / "hlo"
FOLDER = CASES / "hlo"

needs_cases = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs ../shared/cases/hlo")


def shared(*values: Any) -> Any:
    """Return a case of `pytest.mark.parametrize` that needs ../shared/cases."""
    return pytest.param(*values, marks=needs_cases)


TRUNCATED = (
    "truncated.txt",
    shared("reference_hlo_llama3_8b.txt"),
    shared("reference_hlo_qwen3_1.7b.txt"),
)


def text(name: str) -> str:
    """Return the text of a case by file name, or of one of our programs by name."""
    if name in own_programs.NAMES:
        return own_programs.text(name)
    (path,) = [*OWN.glob(name), *FOLDER.rglob(name)]
    return path.read_text(encoding="utf-8")


def chain(lines: str, count: int = 2000) -> str:
    """Return the computations c0, c1, …, each with these lines, in which BEFORE is the one before it."""
    return "".join(f"c{n} {{\n{lines.replace('BEFORE', f'c{n - 1}')}\n}}\n" for n in range(count))


def answers(name: str) -> Any:
    """Return a JSON file of answers: ours, and those in the folder, if it is there."""
    answers: dict[str, Any] = {}
    for path in (OWN / name, FOLDER / name):
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        for key, value in content.items():
            answers[key] = [*answers.get(key, ()), *value] if isinstance(value, list) else value
    return answers


def modules_of_xla() -> list[dict[str, Any]]:
    """Return the test modules of XLA; empty if the folder is missing."""
    path = FOLDER / "xla_test_modules.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def own_modules() -> list[dict[str, Any]]:
    """Return our texts and programs, in the form of `modules_of_xla`."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(OWN.glob("*.hlo"))}
    texts |= {name: own_programs.text(name) for name in own_programs.NAMES}
    return [
        {"id": name, "module": module} for name, text in texts.items() for module in text.split("// -----")
    ]


MODULES = {"own": own_modules, "of XLA": modules_of_xla}
each_source = pytest.mark.parametrize("source", ["own", shared("of XLA")])
