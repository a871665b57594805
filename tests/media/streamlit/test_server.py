"""What the server adds to Streamlit: headers, refused host names and senders, a log without ids."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import uuid
from collections.abc import Callable

import pytest
from plotly.offline import get_plotlyjs
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from streamlit import config

from inspector.jobs import serving
from inspector.jobs.engine.job import digest_of_session
from inspector.jobs.serving import SECRET_HEADER, Serving, TrustedProxy
from inspector.media.streamlit import server
from inspector.media.streamlit.server.middleware import (
    BROWSER_COOKIE,
    HEALTH,
    PLOTLY,
    READY,
    BehindProxy,
    SafeAnswers,
)

HOSTS = "server.allowedHosts"


@pytest.fixture
def client():
    before = config.get_option(HOSTS)
    config.set_option(HOSTS, ["localhost", "*.my.org"])
    app = Starlette(routes=[Route(path, lambda _: PlainTextResponse("here")) for path in ("/page", READY)])
    yield TestClient(SafeAnswers(app))
    config.set_option(HOSTS, before)


def test_the_script_of_figures_is_that_of_the_installed_plotly() -> None:
    app = TestClient(Starlette(routes=[Route(PLOTLY, server.plotly_answer)]))
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


SECRET = "0123456789abcdef" * 2
PROXY = "10.0.0.2"
ANN = {"X-User": "ann@my.org", SECRET_HEADER: SECRET}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TestClient]:
    """Return a client at an address of a server that is behind a proxy; the pages are those of Streamlit."""
    digest = hashlib.sha256(SECRET.encode()).hexdigest()

    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                await socket.send_bytes(await socket.receive_bytes())

    app = Starlette(
        routes=[
            WebSocketRoute("/_stcore/stream", echo),
            Route("/{path:path}", lambda _: HTMLResponse("page"), methods=["GET", "PUT"]),
        ]
    )

    def client(address: str | None, proxy: str | None = PROXY, secret: str | None = digest) -> TestClient:
        settings = Serving(team=True, proxy=TrustedProxy("X-User", proxy, secret))
        monkeypatch.setattr(serving, "current", lambda: settings)
        checked: ASGIApp = SafeAnswers(BehindProxy(app))

        async def without_address(scope: Scope, receive: Receive, send: Send) -> None:
            await checked(scope | {"client": None}, receive, send)

        asked = without_address if address is None else checked
        return TestClient(asked, "http://localhost", client=(address or "", 5000))

    return client


@pytest.mark.parametrize(
    ("address", "headers"),
    [
        *((address, ANN) for address in ("10.0.0.3", "127.0.0.1", "::1", "::ffff:10.0.0.3", None)),
        ("10.0.0.3", ANN | {"X-Forwarded-For": PROXY, "Forwarded": f"for={PROXY}"}),
        (PROXY, {}),
        (PROXY, {"X-User": "ann"}),
        (PROXY, ANN | {SECRET_HEADER: SECRET[:-1]}),
        (PROXY, ANN | {SECRET_HEADER: ""}),
        (PROXY, [*ANN.items(), (SECRET_HEADER, SECRET)]),
        (PROXY, {SECRET_HEADER: SECRET}),
        (PROXY, ANN | {"X-User": " "}),
        (PROXY, [*ANN.items(), ("X-User", "ben@my.org")]),
    ],
)
def test_only_the_proxy_gets_pages_uploads_and_web_sockets(
    ask: Callable[..., TestClient], address: str | None, headers: dict[str, str] | list[tuple[str, str]]
) -> None:
    client = ask(address)
    for path in ("/", "/library", "/media/a.png", "/_stcore/metrics", "/no/such/page", "//ready"):
        assert client.get(path, headers=headers).status_code == 403
    assert client.put("/_stcore/upload_file/session/file", headers=headers).status_code == 403
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        client.websocket_connect("/_stcore/stream", headers=type(client.headers)(headers)),
    ):
        pass
    assert refused.value.code == 1008
    # The proxy can ask whether the server is healthy without a user.
    secrets = type(client.headers)(headers).get_list(SECRET_HEADER)
    is_proxy = address == PROXY and secrets == [SECRET]
    for path in (READY, HEALTH):
        assert client.get(path, headers=headers).status_code == (200 if is_proxy else 403)


@pytest.mark.parametrize("address", [PROXY, f"::ffff:{PROXY}", None])
def test_a_user_of_the_proxy_gets_everything(ask: Callable[..., TestClient], address: str | None) -> None:
    client = ask(address, PROXY if address else None)
    assert client.get("/library", headers=ANN).text == "page"
    assert client.put("/_stcore/upload_file/session/file", headers=ANN).text == "page"
    with client.websocket_connect("/_stcore/stream", headers=ANN) as tab:
        tab.send_bytes(b"message")
        assert tab.receive_bytes() == b"message"


def test_the_secret_is_optional(ask: Callable[..., TestClient]) -> None:
    assert ask(PROXY, secret=None).get("/", headers={"X-User": "ann"}).text == "page"


def test_text_ends_a_web_socket(ask: Callable[..., TestClient]) -> None:
    with ask(PROXY).websocket_connect("/_stcore/stream", headers=ANN) as tab:
        tab.send_text("1")
        with pytest.raises(WebSocketDisconnect) as ended:
            tab.receive_bytes()
        assert ended.value.code == 1003


def test_the_log_has_no_ids_of_sessions(caplog: pytest.LogCaptureFixture) -> None:
    before = logging.getLogRecordFactory()
    session = str(uuid.uuid4())
    try:
        server.hide_ids()
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
