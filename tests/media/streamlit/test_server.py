"""What the server adds to Streamlit: headers, refused host names, JSON logs, an orderly end."""

from __future__ import annotations

import json
import logging
import sys
import threading
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from streamlit import config
from streamlit.web.server.starlette.starlette_app_utils import create_signed_value
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from benchmarks.processes import until
from inspector.media.streamlit.server import return_link, signed_cookie
from inspector.media.streamlit.server.json_log import JsonFormatter
from inspector.media.streamlit.server.middleware import READY, SafeAnswers
from inspector.media.streamlit.server.return_link import ReturnToLink
from inspector.media.streamlit.server.shutdown import GracefulShutdown
from inspector.service import serving
from inspector.service.serving import Serving

HOSTS = "server.allowedHosts"


@pytest.fixture
def client():
    before = config.get_option(HOSTS)
    config.set_option(HOSTS, ["localhost", "*.my.org"])
    app = Starlette(
        routes=[Route(path, lambda _: PlainTextResponse("here")) for path in ("/page", READY)]
    )
    yield TestClient(SafeAnswers(app))
    config.set_option(HOSTS, before)


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:80", 200), ("a.my.org", 200), ("evil.example", 403), ("localhost.evil", 403)],
)
def test_only_known_host_names_get_answers(client: TestClient, host: str, status: int) -> None:
    answer = client.get("/page", headers={"Host": host})
    assert answer.status_code == status
    assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert "frame-ancestors 'self'" in answer.headers["Content-Security-Policy"]
    # Load balancers ask by address.
    assert client.get(READY, headers={"Host": host}).status_code == 200


def test_uploads_need_the_cookie_that_the_server_signed(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(cookie: str | None = None) -> int:
        cookies = {} if cookie is None else {"Cookie": f"{USER_COOKIE_NAME}={cookie}"}
        headers = {"Host": "localhost"} | cookies
        return client.put("/_stcore/upload_file/session/file", headers=headers).status_code

    assert status() == 404, "a server without sign-in passes it on"
    monkeypatch.setattr(serving, "current", lambda: Serving(team=True, providers=("default",)))
    monkeypatch.setattr(signed_cookie, "get_cookie_secret", lambda: "the server's secret")
    forged = create_signed_value("another secret", USER_COOKIE_NAME, '{"is_logged_in": true}')
    assert [status(), status("x"), status(forged.decode())] == [403] * 3
    signed = create_signed_value("the server's secret", USER_COOKIE_NAME, '{"is_logged_in": true}')
    assert status(signed.decode()) == 404


LINK = "/board?layouts=a%3Db&x=1,2"


@pytest.mark.parametrize(
    ("link", "kept"),
    [
        (LINK, LINK),
        ("/?model=moe", "/?model=moe"),
        ("/library", "/library"),
        ("/", None),
        ("/a.js?x", None),
        ("/?x=" + "a" * 5000, None),
    ],
)
def test_a_link_is_followed_after_sign_in(
    link: str, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "current", lambda: Serving(team=True, providers=("default",)))
    client = TestClient(ReturnToLink(_sign_in_app()), follow_redirects=False)
    client.get(link)
    assert (return_link.COOKIE in client.cookies) == (kept is not None)
    assert client.get("/oauth2callback").headers["location"] == (kept or "/")
    assert client.get("/oauth2callback").headers["location"] == "/", "only once"


@pytest.mark.parametrize(
    "forged", ["//evil.example", "https://evil.example/", "/\\evil.example", "/a/../b", "/x\r\ny"]
)
def test_no_link_to_another_site_is_followed(forged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "current", lambda: Serving(team=True, providers=("default",)))
    client = TestClient(ReturnToLink(_sign_in_app()), follow_redirects=False)
    cookie = f"{return_link.COOKIE}={quote(forged, safe='')}"
    answer = client.get("/oauth2callback", headers={"Cookie": cookie})
    assert answer.headers["location"] == "/"


def _sign_in_app() -> Starlette:
    """Pages of HTML, and the callback that Streamlit answers with a redirect to the first page."""
    return Starlette(
        routes=[
            Route("/oauth2callback", lambda _: RedirectResponse("/", 302)),
            Route("/{page}", lambda _: HTMLResponse("page")),
            Route("/", lambda _: HTMLResponse("page")),
        ]
    )


def test_a_log_record_is_one_line_of_json() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord(
            "name", logging.ERROR, "f.py", 1, "%s\nb", ("a",), sys.exc_info()
        )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    plain = json.loads(line)
    assert (plain["level"], plain["logger"], plain["message"]) == ("error", "name", "a\nb")
    assert "ValueError" in plain["traceback"] and plain["time"].endswith("Z")


class Slow:
    """Jobs that end when they are released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.refused = False

    def jobs(self) -> list[str]:
        return []

    listed = jobs

    def drain(self, seconds: float) -> bool:
        self.refused = True
        return self.released.wait(seconds)


def test_the_first_signal_waits_for_jobs_and_the_second_does_not() -> None:
    service, searches, stopped = Slow(), Slow(), threading.Event()
    ending = GracefulShutdown(service, searches, 60.0, stopped.set)  # type: ignore[arg-type]
    ending(15, None)
    until(lambda: service.refused and searches.refused)
    assert ending.began and not stopped.is_set()
    searches.released.set()
    assert not stopped.wait(0.05)
    ending(15, None)
    assert stopped.is_set()
    service.released.set()


def test_jobs_are_waited_for_at_most_the_limit() -> None:
    service, searches, stopped = Slow(), Slow(), threading.Event()
    GracefulShutdown(service, searches, 0.05, stopped.set)(15, None)  # type: ignore[arg-type]
    assert stopped.wait(10)
