"""What the server adds to Streamlit: headers, refused host names, JSON logs, an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from plotly.offline import get_plotlyjs
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from streamlit import config
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.web.server.starlette import starlette_websocket
from streamlit.web.server.starlette.starlette_app_utils import create_signed_value
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from benchmarks.processes import until
from inspector.media.streamlit.server import (
    plotly_script,
    return_link,
    session_log,
    sign_in_required,
)
from inspector.media.streamlit.server.json_log import JsonFormatter
from inspector.media.streamlit.server.middleware import SafeAnswers
from inspector.media.streamlit.server.paths import BROWSER_COOKIE, PLOTLY, READY
from inspector.media.streamlit.server.shutdown import GracefulShutdown
from inspector.media.streamlit.server.sign_in_required import SignInRequired
from inspector.service import serving, sign_outs
from inspector.service.engine.requester import digest_of_session
from inspector.service.serving import Serving
from inspector.service.sign_outs import SignOuts

HOSTS = "server.allowedHosts"


@pytest.fixture
def client():
    before = config.get_option(HOSTS)
    config.set_option(HOSTS, ["localhost", "*.my.org"])
    app = Starlette(routes=[Route(path, lambda _: PlainTextResponse("here")) for path in ("/page", READY)])
    yield TestClient(SafeAnswers(app))
    config.set_option(HOSTS, before)


def test_the_script_of_figures_is_that_of_the_installed_plotly() -> None:
    app = TestClient(Starlette(routes=[Route(PLOTLY, plotly_script.answer)]))
    for accepted in ("gzip", "identity"):
        answer = app.get(PLOTLY, headers={"Accept-Encoding": accepted})
        assert answer.text == get_plotlyjs()
        assert answer.headers.get("Content-Encoding", "identity") == accepted
        assert "immutable" in answer.headers["Cache-Control"]


def test_pages_load_the_script_of_figures_early() -> None:
    app = Starlette(
        routes=[
            Route("/", lambda _: HTMLResponse("here")),
            Route(READY, lambda _: PlainTextResponse("here")),
            Route("/refused", lambda _: HTMLResponse("here", 403)),
        ]
    )
    client = TestClient(SafeAnswers(app), base_url="http://localhost")
    assert PLOTLY in client.get("/").headers["Link"]
    assert "Link" not in client.get(READY).headers
    assert "Link" not in client.get("/refused").headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("localhost:80", "a.my.org")),
        *((host, 403) for host in ("evil.example", "evil.example:80", "localhost.evil", "*")),
        *((host, 403) for host in ("localhost@evil.example", "", "[::1")),
    ],
)
def test_only_known_host_names_get_answers(client: TestClient, host: str, status: int) -> None:
    answer = client.get("/page", headers={"Host": host})
    assert answer.status_code == status
    assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert "frame-ancestors 'self'" in answer.headers["Content-Security-Policy"]
    # Load balancers ask by address.
    assert client.get(READY, headers={"Host": host}).status_code == 200


def test_a_browser_gets_one_number_that_its_scripts_and_other_sites_cannot_read() -> None:
    app = Starlette(routes=[Route("/", lambda _: HTMLResponse("here"))])
    client = TestClient(SafeAnswers(app), base_url="http://localhost")
    sent = client.get("/").headers["Set-Cookie"]
    number, *attributes = sent.split("; ")
    assert re.fullmatch(f"{BROWSER_COOKIE}=[0-9a-f]{{32}}", number)
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(attributes)
    assert "Set-Cookie" not in client.get("/").headers, "the browser has sent it"
    other = TestClient(SafeAnswers(app), base_url="http://localhost").get("/").headers["Set-Cookie"]
    assert other.split("; ")[0] != number


@pytest.mark.parametrize("gone", [True, False])
def test_a_browser_that_leaves_while_the_server_writes_is_no_error(gone: bool) -> None:
    async def reads_after_it_wrote(scope, receive, send) -> None:
        websocket = WebSocket(scope, receive, send)
        await websocket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            await websocket.send_bytes(b"a figure")
        if websocket.application_state is not WebSocketState.CONNECTED:
            await websocket.receive_bytes()
        raise TypeError("a fault of the server")

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message) -> None:
        if gone and message["type"] == "websocket.send":
            raise OSError("the browser is gone")

    scope = {"type": "websocket", "path": "/", "headers": []}
    run = SafeAnswers(reads_after_it_wrote)(scope, receive, send)
    if gone:
        asyncio.run(run)
        return
    with pytest.raises(TypeError):
        asyncio.run(run)


SECRET = "the server's secret"
MESSAGE = ForwardMsg(hash="1").SerializeToString()
CLAIMS = {
    "is_logged_in": True, "iss": "https://p.org", "sub": "1", "iat": 5, "email": "ann@my.org",
    "email_verified": True,
}  # fmt: skip


def cookie(secret: str = SECRET, **claims: object) -> dict[str, str]:
    """Return the header with the cookie of a user."""
    signed = create_signed_value(secret, USER_COOKIE_NAME, json.dumps(CLAIMS | claims))
    return {"Cookie": f"{USER_COOKIE_NAME}={signed.decode()}"}


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TestClient]:
    """A server with sign-in for users of my.org; the pages are those of Streamlit."""
    settings = Serving(team=True, providers=("default", "okta <b>"), domains=("my.org",))
    monkeypatch.setattr(serving, "current", lambda: settings)
    monkeypatch.setattr(starlette_websocket, "get_cookie_secret", lambda: SECRET)
    kept = SignOuts(tmp_path / "sign_outs.sqlite3")
    monkeypatch.setattr(sign_outs, "shared", lambda: kept)

    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                await socket.send_bytes(await socket.receive_bytes())

    app = Starlette(
        routes=[
            Route("/auth/logout", lambda _: RedirectResponse("/", 302)),
            Route("/oauth2callback", lambda _: RedirectResponse("/", 302)),
            WebSocketRoute("/_stcore/stream", echo),
            Route("/{path:path}", lambda _: HTMLResponse("page"), methods=["GET", "PUT"]),
        ]
    )
    checked = SafeAnswers(SignInRequired(app))
    # In one event loop, as in the server.
    with TestClient(checked, "http://localhost", follow_redirects=False) as client:
        yield client


STRANGERS = [
    {}, cookie("another secret"), cookie(is_logged_in=False), cookie(is_logged_in="true"), cookie(sub=""),
    cookie(email="eve@elsewhere.org"), cookie(email_verified=False), cookie(email="a@my.org.evil"),
    cookie(email="eve@notmy.org"), cookie(email=None), cookie(email=["ann@my.org"]),
    cookie(email="eve@elsewhere.org@my.org"), cookie(email="@my.org"), cookie(email='"a"@b"@my.org'),
    cookie(email='"ann@my.org"@elsewhere.org'), cookie(email="eve @my.org"),
    {"Cookie": f"{USER_COOKIE_NAME}=x"},
]  # fmt: skip


@pytest.mark.parametrize("headers", STRANGERS)
def test_who_is_not_allowed_gets_no_page_upload_or_web_socket(
    team: TestClient, headers: dict[str, str]
) -> None:
    page = team.get("/library", headers={"Accept": "text/html"} | headers)
    assert page.status_code == 403 and page.text != "page" and "<script" not in page.text
    assert page.headers["Cache-Control"] == "no-store"
    upload = team.put("/_stcore/upload_file/session/file", headers=headers)
    assert (upload.status_code, upload.headers["content-type"][:10]) == (403, "text/plain")
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        team.websocket_connect("/_stcore/stream", headers=headers),
    ):
        pass
    assert refused.value.code == 1008
    assert team.get("/_stcore/health", headers=headers).text == "page"


def test_an_allowed_user_gets_everything(team: TestClient) -> None:
    assert team.get("/library", headers=cookie()).text == "page"
    quoted = cookie(email='"ann@home"@My.org')  # a mailbox of my.org
    assert team.get("/library", headers=quoted).text == "page"
    assert team.put("/_stcore/upload_file/session/file", headers=cookie()).text == "page"
    with team.websocket_connect("/_stcore/stream", headers=cookie()) as tab:
        tab.send_bytes(MESSAGE)
        assert tab.receive_bytes() == MESSAGE


def test_the_page_of_a_stranger_begins_sign_in_with_a_known_provider(
    team: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in_required, "encode_provider_token", lambda name: f"token-{len(name)}")
    page = team.get("/", headers={"Accept": "text/html"}).text
    assert page.count("<form") == 2 and "okta &lt;b&gt;" in page and "<b>" not in page
    answer = team.get("/sign-in", params={"provider": "okta <b>"})
    assert answer.headers["location"] == "/auth/login?provider=token-8"
    for query in ("", "?provider=", "?provider=x", "?provider=default&provider=default"):
        assert team.get(f"/sign-in{query}").status_code == 400
    refused = team.get("/", headers={"Accept": "text/html"} | cookie(email="<i>@x.org")).text
    assert "&lt;i&gt;@x.org" in refused and "<i>" not in refused


def test_a_sign_out_ends_the_tabs_and_the_cookie_of_one_sign_in(team: TestClient) -> None:
    copied, other = cookie(), cookie(iat=6)
    with (
        team.websocket_connect("/_stcore/stream", headers=copied) as tab,
        team.websocket_connect("/_stcore/stream", headers=other) as other_tab,
    ):
        cross = copied | {"Sec-Fetch-Site": "cross-site"}
        assert team.get("/auth/logout", headers=cross).status_code == 403
        assert team.get("/", headers=copied).text == "page"
        assert team.get("/auth/logout", headers=copied).status_code == 302
        sent = ForwardMsg.FromString(tab.receive_bytes())
        assert sent.auth_redirect.url == "/"
        with pytest.raises(WebSocketDisconnect) as ended:
            tab.receive_bytes()
        assert ended.value.code == 1008
        other_tab.send_bytes(MESSAGE)
        assert other_tab.receive_bytes() == MESSAGE
    assert team.get("/", headers=copied).status_code == 403
    assert team.get("/", headers=other).text == "page"


def test_the_tab_that_signs_out_goes_to_the_provider_only(team: TestClient) -> None:
    away = ForwardMsg()
    away.auth_redirect.url = "/auth/logout"
    with team.websocket_connect("/_stcore/stream", headers=cookie()) as tab:
        tab.send_bytes(away.SerializeToString())
        tab.receive_bytes()
        team.get("/auth/logout", headers=cookie())
        with pytest.raises(WebSocketDisconnect):
            tab.receive_bytes()


def test_text_ends_a_web_socket(team: TestClient) -> None:
    with team.websocket_connect("/_stcore/stream", headers=cookie()) as tab:
        tab.send_text("1")
        with pytest.raises(WebSocketDisconnect) as ended:
            tab.receive_bytes()
        assert ended.value.code == 1003


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
def test_a_link_is_followed_after_sign_in(link: str, kept: str | None, team: TestClient) -> None:
    assert team.get(link, headers={"Accept": "text/html"}).status_code == 403
    assert (return_link.COOKIE in team.cookies) == (kept is not None)
    assert team.get("/oauth2callback").headers["location"] == (kept or "/")
    assert team.get("/oauth2callback").headers["location"] == "/", "only once"


@pytest.mark.parametrize(
    "forged", ["//evil.example", "https://evil.example/", "/\\evil.example", "/a/../b", "/x\r\ny"]
)
def test_no_link_to_another_site_is_followed(forged: str, team: TestClient) -> None:
    cookie = f"{return_link.COOKIE}={quote(forged, safe='')}"
    answer = team.get("/oauth2callback", headers={"Cookie": cookie})
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize("path", ["//evil.example", "/%0d%0aSet-Cookie:x", "//evil.example/?a"])
def test_no_path_to_another_site_is_kept(path: str, team: TestClient) -> None:
    team.get(f"http://localhost{path}", headers={"Accept": "text/html"})
    assert return_link.COOKIE not in team.cookies


def test_a_log_record_is_one_line_of_json() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("name", logging.ERROR, "f.py", 1, "%s\nb", ("a",), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    plain = json.loads(line)
    assert (plain["level"], plain["logger"], plain["message"]) == ("error", "name", "a\nb")
    assert "ValueError" in plain["traceback"] and plain["time"].endswith("Z")


def test_the_log_has_no_ids_of_sessions(caplog: pytest.LogCaptureFixture) -> None:
    before = logging.getLogRecordFactory()
    session = str(uuid.uuid4())
    try:
        session_log.hide_ids()
        log = logging.getLogger("streamlit.runtime.some_manager")
        log.warning("Session with id %s is already connected! %d", session, 2)
        log.warning(f"disconnects {session}")
        logging.getLogger("uvicorn.access").error("%s /_stcore/upload_file/%s/1", "PUT", session)
    finally:
        logging.setLogRecordFactory(before)
    digest = digest_of_session(session)
    texts = {record.getMessage() for record in caplog.records}
    assert len(texts) == 3 and all(digest in text and session not in text for text in texts)
    assert caplog.records[0].args == (digest, 2)


class Slow:
    """Jobs that end when they are released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.refused = False

    def jobs(self) -> list[str]:
        return []

    def drain(self, seconds: float) -> bool:
        self.refused = True
        return self.released.wait(seconds)


def test_the_first_signal_waits_for_jobs_and_the_second_does_not() -> None:
    pool, stopped = Slow(), threading.Event()
    ending = GracefulShutdown(pool, 60.0, stopped.set)  # type: ignore[arg-type]
    ending(15, None)
    until(lambda: pool.refused)
    assert ending.began and not stopped.wait(0.05)
    ending(15, None)
    assert stopped.is_set()
    pool.released.set()


def test_jobs_are_waited_for_at_most_the_limit() -> None:
    pool, stopped = Slow(), threading.Event()
    GracefulShutdown(pool, 0.05, stopped.set)(15, None)  # type: ignore[arg-type]
    assert stopped.wait(10)
