"""Paths of the files with known answers, and the mark that skips tests without them."""

from __future__ import annotations

import pytest

from tests.paths import CASES

ORBAX = CASES / "orbax"
GOLDENS = sorted((CASES / "maxtext_goldens").glob("**/named_shardings.json"))
HLO = CASES / "hlo"

needs_cases = pytest.mark.skipif(
    not CASES.is_dir(), reason="the files in ../shared/cases are missing"
)
