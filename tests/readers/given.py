"""Paths of the files with known answers, and the mark that skips tests without those of third parties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.paths import CASES, OWN_CASES
from tests.readers import own_goldens

ORBAX = CASES / "orbax"
GOLDENS = sorted((CASES / "maxtext_goldens").glob("**/named_shardings.json"))
OWN_GOLDENS = [folder / "named_shardings.json" for folder in own_goldens.folders()]
HLO = CASES / "hlo"
OWN_HLO = OWN_CASES / "hlo"

needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the files in ../shared/cases are missing")


def shared(*values: Any) -> Any:
    """Return a case of `pytest.mark.parametrize` that needs ../shared/cases."""
    return pytest.param(*values, marks=needs_cases)


def golden_name(path: Path) -> str:
    """Return the name of a case, which may not contain a temporary folder."""
    return f"{path.parents[1].name} {path.parent.name[:40]}"
