"""Where the files with known answers are, and how a test that needs them skips."""

from __future__ import annotations

import pytest

from tests.paths import CASES

ORBAX = CASES / "orbax"
GOLDENS = sorted((CASES / "maxtext_goldens").glob("**/named_shardings.json"))
HLO = CASES / "hlo"

needs_cases = pytest.mark.skipif(
    not CASES.is_dir(), reason="the cases with answers are not beside this project"
)
