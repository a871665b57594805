from __future__ import annotations

import re

from tests.paths import ROOT


def test_the_paths_in_the_ci_script_exist() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    found = re.findall(r"(tests/[\w/]+(?:\.py)?)(?:::(\w+))?", text)
    assert found
    for path, name in found:
        assert (ROOT / path).exists(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name
