"""Commands of these tests share their worker processes."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="package", autouse=True)
def _shared(commands_share_workers: None) -> None:
    pass
