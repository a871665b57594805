"""The page's script run without a browser, on real workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from inspector import inspection
from tests.views.scripted_page import ScriptedPage


@pytest.fixture(scope="session")
def _workers() -> Iterator[None]:
    """The process's one service, whose workers end with the tests."""
    yield
    inspection.shared().close()
    inspection.shared.cache_clear()


@pytest.fixture
def open_page(_workers: None) -> Callable[..., ScriptedPage]:
    """Opens the page as a new session, with the given fields in its URL."""
    return ScriptedPage


@pytest.fixture
def page(open_page: Callable[..., ScriptedPage]) -> ScriptedPage:
    """The page as it opens at first."""
    return open_page()
