"""Settings of Hypothesis for properties whose examples take more than 1 s in all: fewer of them in CI."""

from __future__ import annotations

import os

from hypothesis import settings


def costly(in_ci: int = 8, otherwise: int = 100) -> settings:
    """Return the settings of a property. `tests/conftest.py` has those of the others."""
    return settings(max_examples=in_ci if "CI" in os.environ else otherwise)
