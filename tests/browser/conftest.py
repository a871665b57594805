"""One server and one browser for all tests here, with tabs that tests use one after the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, WebSocket

from tests.browser.chromium import chromium
from tests.browser.dashboard import PATIENCE_MS, WIDE, Dashboard, artifact
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


@pytest.fixture(scope="package")
def _free_tabs(browser: Browser, server: Server) -> list[Page]:
    """Tabs that a test has left. A new tab compiles the page's scripts again, which takes seconds."""
    return [browser.new_context().new_page()]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record for the fixtures that a test failed."""
    report = yield
    before = call.when != "setup" and item.stash.get(_FAILED, False)
    item.stash[_FAILED] = before or call.excinfo is not None
    return report


@pytest.fixture
def open_tab(
    request: pytest.FixtureRequest, server: Server, _free_tabs: list[Page]
) -> Iterator[Callable[..., Page]]:
    """Open tabs without stored data. At the end, no script may have failed, and no page may have
    requested anything from another host.

    After a failed test, a picture of each tab is saved.
    """
    opened: list[Page] = []
    errors: list[str] = []
    requested: list[str] = []

    def record(error: object) -> None:
        errors.append(str(error))

    def note(request: Request | WebSocket) -> None:
        requested.append(request.url)

    def make(*, size: dict[str, int] = WIDE, color_scheme: str = "light") -> Page:
        page = _free_tabs.pop() if _free_tabs else opened[0].context.new_page()
        opened.append(page)
        page.on("pageerror", record)
        page.on("request", note)
        page.on("websocket", note)
        page.set_default_timeout(PATIENCE_MS)
        page.set_viewport_size(size)
        # A third of the processor time of a page was for moving what changes.
        page.emulate_media(color_scheme=color_scheme, reduced_motion="reduce")
        return page

    yield make
    failed = request.node.stash.get(_FAILED, False)
    for number, page in enumerate(opened):
        if failed:
            name = re.sub(r"[^\w-]+", "_", request.node.name)
            page.screenshot(path=artifact(f"failed_{name}_{number}"))
        page.goto(f"{server.url}/_stcore/health")  # leaves the page, and keeps its origin
        page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        page.context.clear_cookies()
        page.remove_listener("pageerror", record)
        page.remove_listener("request", note)
        page.remove_listener("websocket", note)
        _free_tabs.append(page)
    assert errors == []
    remote = [url for url in requested if urlsplit(url).scheme not in ("data", "blob")]
    assert any(url.startswith("ws://") for url in remote) or not opened
    assert {urlsplit(url).hostname for url in remote} <= {"127.0.0.1"}, remote


@pytest.fixture
def open_dashboard(open_tab: Callable[..., Page], server: Server) -> Callable[..., Dashboard]:
    """Open tabs with the Layout page."""

    def make(query: str = "", **options: object) -> Dashboard:
        return Dashboard(open_tab(**options), server.url).open(query)

    return make


@pytest.fixture
def dashboard(open_dashboard: Callable[..., Dashboard]) -> Dashboard:
    """The dashboard with the default layout."""
    return open_dashboard()
