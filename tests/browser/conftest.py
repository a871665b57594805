"""One server and one browser for all tests here, and a fresh tab for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.browser.chromium import chromium
from tests.browser.dashboard import Dashboard, artifact
from tests.browser.server import Server

_FAILED = pytest.StashKey[bool]()


# Both end with this package, because Playwright's event loop would break other tests.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    """The app. At the end, it and its workers must have ended."""
    server = Server()
    try:
        yield server
    finally:
        left = server.stop()
    assert not left, f"processes {left} outlived the server"
    # Streamlit logs tracebacks of dropped connections; tracebacks of this project are errors.
    log = server.log()
    assert "inspector/" not in log, log[-6000:]


@pytest.fixture
def another_server() -> Iterator[Server]:
    """A server that only this test uses."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def open_context(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Open browser contexts without shared cookies or storage."""
    contexts: list[BrowserContext] = []

    def make(**options: object) -> BrowserContext:
        contexts.append(browser.new_context(**options))  # type: ignore[arg-type]
        return contexts[-1]

    yield make
    for context in contexts:
        context.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record for the fixtures that a test failed."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture
def open_dashboard(
    request: pytest.FixtureRequest, open_context: Callable[..., BrowserContext], server: Server
) -> Iterator[Callable[..., Dashboard]]:
    """Open tabs with the dashboard. At the end, no script may have failed.

    After a failed test, a picture of each tab is saved.
    """
    opened: list[Dashboard] = []

    def make(query: str = "", *, size: dict[str, int] | None = None, **options: object):
        sized = {} if size is None else {"size": size}
        opened.append(Dashboard(open_context(**options), server.url, **sized))
        return opened[-1].open(query)

    yield make
    if request.node.stash.get(_FAILED, False):
        for number, one in enumerate(opened):
            name = re.sub(r"[^\w-]+", "_", request.node.name)
            one.page.screenshot(path=artifact(f"failed_{name}_{number}"))
    assert [error for one in opened for error in one.script_errors] == []


@pytest.fixture
def dashboard(open_dashboard: Callable[..., Dashboard]) -> Dashboard:
    """The dashboard with the default layout."""
    return open_dashboard()
