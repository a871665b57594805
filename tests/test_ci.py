from __future__ import annotations

import re

from tests.conftest import LONGEST
from tests.paths import ROOT


def test_the_paths_in_the_ci_script_exist() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    found = re.findall(r"(tests/[\w/]+(?:\.py)?)(?:::(\w+))?", text)
    assert found
    for path, name in found:
        assert (ROOT / path).exists(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name


def test_the_files_that_run_first_exist() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []
