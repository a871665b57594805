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


# Both end with this package, because Playwright holds an event loop that other tests could not have.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    """The app; in the end it must be gone with all its workers."""
    server = Server()
    try:
        yield server
    finally:
        left = server.stop()
    assert not left, f"processes {left} outlived the server"
    # Streamlit itself leaves tracebacks of connections that a browser dropped; ours are mistakes.
    log = server.log()
    assert "inspector/" not in log, log[-6000:]


@pytest.fixture
def another_server() -> Iterator[Server]:
    """A server of the test's own, to be ended by it."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def open_context(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Makes browser contexts, which share neither cookies nor storage."""
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
    """Remember that a test failed, for its fixtures to know."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture
def open_dashboard(
    request: pytest.FixtureRequest, open_context: Callable[..., BrowserContext], server: Server
) -> Iterator[Callable[..., Dashboard]]:
    """Opens tabs with the dashboard; none of them may have had an error in a script.

    Of a test that fails, a picture of every tab is kept.
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
    """The dashboard as it opens at first."""
    return open_dashboard()
