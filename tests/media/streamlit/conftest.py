"""The page's script without a browser, on real workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inspector.core import snapshot
from inspector.core.snapshot import Snapshot
from inspector.service.inspection import Inspection
from tests.media.streamlit.scripted_page import PATIENCE, ScriptedPage


@pytest.fixture
def open_page(service: Inspection) -> Callable[..., ScriptedPage]:
    """Open the page in a new session, with the given fields in its URL."""
    return ScriptedPage


@pytest.fixture
def page(open_page: Callable[..., ScriptedPage]) -> ScriptedPage:
    """The page with the default layout."""
    return open_page()


@pytest.fixture
def shown(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., AppTest]:
    """Draw a part of the page with the module's SCRIPT, for a Snapshot.

    The session state has the Snapshot's file as `path`, and the other arguments.
    """

    def show(one: Snapshot, **state: str) -> AppTest:
        path = tmp_path / "found.json"
        snapshot.write(one, path)
        page = AppTest.from_string(request.module.SCRIPT, default_timeout=PATIENCE)
        page.session_state["path"] = str(path)
        for key, value in state.items():
            page.session_state[key] = value
        page.run()
        assert not page.exception, [error.value for error in page.exception]
        return page

    return show
