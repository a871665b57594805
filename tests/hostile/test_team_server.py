"""What strangers and users of a team server try, over HTTP and web sockets, against the real server.

CI tries each thing once. `HOSTILE_EXAMPLES=10000` draws as many links and messages.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
import stat
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.web.server.starlette.starlette_server_config import XSRF_COOKIE_NAME
from websockets.exceptions import InvalidStatus

from inspector import layout as layouts
from inspector.jobs.serving import SECRET_HEADER
from inspector.media.streamlit.server.middleware import HEALTH, READY
from tests.hostile import nginx, team
from tests.hostile.damage import damaged_text
from tests.hostile.team import Client, Team

ANN, BEN = "ann@my.org", "ben@my.org"
EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "0"))
GROWTH = 50 * 2**20  # bytes that refused requests may leave in the server
HEALTHY_SECONDS = 1.0
PLAIN = {"Accept": "*/*"}
PAGE = {"Accept": "text/html,*/*;q=0.8"}

# Everything that Streamlit serves, under names that a check of the path could miss.
ADDRESSES = [
    *("/", "/library", "/index.html", "/favicon.png", "/static/js/index.js", "/no/such/page"),
    *("/_stcore/host-config", "/_stcore/metrics", "/_stcore/script-health-check", "/st-metrics"),
    *("/media/0123456789abcdef.json", "/component/a.b/index.html", "/app/static/secrets.toml"),
    *("/_stcore/bidi-components/a.b/index.js", "/_stcore/agent", "/_stcore/upload_file/a/b"),
    *("//_stcore/metrics", "/_stcore//metrics", "/./_stcore/metrics", "/ready/../_stcore/metrics"),
    *("/%5fstcore/metrics", "/_stcore%2fmetrics", "/ready%2f..%2f_stcore%2fmetrics", "/READY"),
    *("/_stcore/health/../metrics", "/_stcore/health/", "/_stcore/health;x", "/ready%00", "/ready/"),
    *("/auth/login/../../_stcore/metrics", "/oauth2callback/", "/sign-in/", "/auth", "/_stcore"),
    *("/%2e%2e/%2e%2e/etc/passwd", "/static/..%2f..%2f..%2fetc%2fpasswd", "/..%5c..%5cetc"),
]  # fmt: skip
FORGED: list[tuple[int, int]] = []  # parts of the server's log, while it got forged messages
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """The server. At the end, nothing of this project has failed in it.

    Exceptions of forged messages are left out, which only their sender sees.
    """
    server = Team(tmp_path_factory.mktemp("team"), users=(ANN, BEN))
    yield server
    log = server.log()
    for begin, end in FORGED:
        log = log[:begin] + log[end:]
    left = server.stop()
    assert not left, f"processes {left} outlived the server"
    assert "inspector/" not in log and server.secret not in log, log[-6000:]


@pytest.fixture(scope="module")
def ann(server: Team) -> Client:
    return server.user(ANN)


@pytest.fixture(scope="module")
def ben(server: Team) -> Client:
    return server.user(BEN)


def strangers(server: Team) -> dict[str, Client]:
    """Those who are not the proxy, or do not name one user. Each has a token for uploads."""
    named, secret = (nginx.HEADER, ANN), (SECRET_HEADER, server.secret)
    forwarded = (("X-Forwarded-For", "127.0.0.1"), ("X-Real-IP", "127.0.0.1"))
    return {
        "from another address": server.stranger(named, secret, source="127.0.0.2"),
        "from a forged address": server.stranger(named, secret, *forwarded, source="127.0.0.2"),
        "without a secret": server.stranger(named),
        "with another secret": server.stranger(named, (SECRET_HEADER, "0" * 32)),
        "with two secrets": server.stranger(named, secret, secret),
        "without a user": server.stranger(secret),
        "with two users": server.stranger(named, (nginx.HEADER, BEN), secret),
    }


def healthy_seconds(server: Team) -> float:
    """Return how long a health check takes."""
    begin = time.monotonic()
    headers = {SECRET_HEADER: server.secret}
    assert httpx.get(f"{server.direct}/_stcore/health", headers=headers, timeout=60.0).status_code == 200
    return time.monotonic() - begin


@pytest.mark.parametrize("unix", [False, True], ids=["port", "unix socket"])
def test_users_of_the_proxy_get_pages_uploads_and_media_files(
    unix: bool, server: Team, tmp_path: Path
) -> None:
    team_server = Team(tmp_path, users=(ANN,), unix=True) if unix else server
    client = team_server.user(ANN)
    try:
        if unix:
            assert stat.S_IMODE(team_server.path.stat().st_mode) == 0o660
            with pytest.raises(OSError):
                socket.create_connection(("127.0.0.1", team_server.server.port), 5)
        assert "<script" in client.get("/library", headers=PAGE).text
        tab = client.open_tab()
        messages = tab.open_page("model=mlp&depth=64&batch=8&layers=2")
        assert not team.exceptions(messages) and len(messages) > 20
        upload = f"/_stcore/upload_file/{tab.session}/1"
        token = {"X-Xsrftoken": client.cookies[XSRF_COOKIE_NAME]}
        assert client.request("PUT", upload, headers=token, files={"file": ("a", b"{}")}).status_code == 204
        media = tab.media_file(messages)
        assert media.startswith("/media/")
        answer = client.get(media)
        assert answer.status_code == 200 and answer.content
        if not unix:
            for name, stranger in strangers(server).items():
                assert stranger.get(media).status_code == 403, name
        assert Client(team_server.url).get(media).status_code == 401, "nginx asks who it is"
        tab.close()
    finally:
        if unix:
            assert not team_server.stop()


def test_others_get_nothing_past_the_proxy(server: Team, ann: Client) -> None:
    tab = ann.open_tab()
    tab.open_page()
    assert tab.session
    before, tried = team.resident_bytes(server.pid), 0
    everyone = strangers(server)
    for name, client in everyone.items():
        proxy_asks = name in ("without a user", "with two users")
        for path, accept in itertools.product((*ADDRESSES, READY, HEALTH), (PLAIN, PAGE)):
            answer = client.get(path, headers=accept)
            expected = 200 if proxy_asks and path in (READY, HEALTH) else 403
            assert answer.status_code == expected, (name, path, answer.status_code)
            assert not any(word in answer.text for word in ("root:", "stApp", "sessions", ANN))
            tried += 1
        for method in METHODS:
            answer = client.request(method, "/_stcore/metrics")
            assert answer.status_code == 403, (name, method)
            tried += 1
        # With the address of a session that exists, and with the token.
        token = {"X-Xsrftoken": client.cookies[XSRF_COOKIE_NAME]}
        for method in ("PUT", "POST", "DELETE", "OPTIONS"):
            files = {"file": ("a.json", b"x" * 2**20)}
            path = f"/_stcore/upload_file/{tab.session}/file-{tried}"
            answer = client.request(method, path, headers=token, files=files)
            assert answer.status_code == 403, (name, method)
            tried += 1
        for session in (None, tab.session, "no-session"):
            with pytest.raises(InvalidStatus) as refused:
                client.open_tab(session)
            assert refused.value.response.status_code == 403, name
            tried += 1
    assert tried == len(everyone) * (2 * len(ADDRESSES) + 4 + len(METHODS) + 4 + 3)
    assert team.resident_bytes(server.pid) - before < GROWTH
    assert tab.open_page() and tab.code is None, "the tab goes on"
    tab.close()


def test_no_browser_names_another_user(server: Team, ann: Client) -> None:
    forged = server.user(ANN)
    forged.headers = {**dict(forged.headers), nginx.HEADER: BEN, SECRET_HEADER: "x"}
    tab = forged.open_tab()
    tab.open_page("", "library")
    # nginx replaces the header, so this is a session of Ann, which only she can continue.
    session = tab.session
    tab.close()
    for client, is_taken in ((ann, True), (server.user(BEN), False)):
        again = client.open_tab(session)
        again.open_page()
        assert (again.session == session) == is_taken
        again.close()


@pytest.mark.nightly
def test_a_user_can_upload_only_with_the_token_and_to_a_session(ben: Client) -> None:
    tab = ben.open_tab()
    tab.open_page()
    path = f"/_stcore/upload_file/{tab.session}/1"
    files = {"file": ("../../x.json", b"{}")}
    token = {"X-Xsrftoken": ben.cookies[XSRF_COOKIE_NAME]}
    assert ben.request("PUT", path, files=files).status_code == 403
    assert ben.request("PUT", path, headers={"X-Xsrftoken": "2|0|0|0"}, files=files).status_code == 403
    absent = "/_stcore/upload_file/no-session/1"
    assert ben.request("PUT", absent, headers=token, files=files).status_code == 400
    assert ben.request("PUT", path, headers=token, content=b"no form").status_code == 400
    assert ben.request("PUT", path, headers=token, files=files).status_code == 204
    huge = token | {"Content-Length": str(2**40), "Content-Type": "multipart/form-data; boundary=x"}
    lines = [f"PUT {path} HTTP/1.1", f"Host: {urllib.parse.urlsplit(ben.url).netloc}"]
    lines += [f"{name}: {value}" for name, value in huge.items()]
    lines += [f"{name}: {value}" for name, value in dict(ben.headers).items()]
    lines += [f"Cookie: {ben.cookie_header()}", "Connection: close", "", ""]
    assert team.raw_answers(ben.url, "\r\n".join(lines).encode()) == [413]
    assert ben.request("DELETE", path, headers=token).status_code == 204
    tab.close()


@pytest.mark.nightly
def test_no_user_takes_over_the_session_of_another(ann: Client, ben: Client) -> None:
    tab = ann.open_tab()
    tab.open_page()
    taken = ben.open_tab(tab.session)
    taken.open_page()
    assert taken.session and taken.session != tab.session
    tab.close()
    again = ben.open_tab(tab.session)  # now without a connection
    again.open_page()
    assert again.session != tab.session
    taken.close()
    again.close()


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost.evil"])
def test_other_sites_open_no_web_socket(origin: str, ann: Client) -> None:
    with pytest.raises(InvalidStatus) as refused:
        ann.open_tab(origin=origin)
    assert refused.value.response.status_code == 403


@pytest.mark.nightly
def test_headers(server: Team) -> None:
    good = f"Host: localhost:{server.server.port}"
    user = f"{nginx.HEADER}: {ANN}"
    signed_in = f"{user}\r\n{SECRET_HEADER}: {server.secret}"
    for lines, expected in (
        ((good, "GET"), [403]),
        ((f"{good}\r\n{user}", "GET"), [403]),
        ((f"{good}\r\n{signed_in}", "GET"), [200]),
        ((f"{good}\r\n{signed_in}\r\n{user}", "GET"), [403]),
        ((f"{good}\r\nHost: evil.example\r\n{signed_in}", "GET"), [400]),
        ((f"Host: evil.example\r\n{good}\r\n{signed_in}", "GET"), [400]),
        ((f"Host: evil.example\r\n{signed_in}", "GET"), [403]),
        ((signed_in, "GET"), [400]),
        ((f"{good}\r\nContent-Length: -1\r\n{signed_in}", "GET"), [400]),
        ((f"{good}\r\nContent-Length: 1\r\nContent-Length: 2\r\n{signed_in}", "GET"), [400]),
        ((f"{good}\r\nX: {'a' * 200_000}\r\n{signed_in}", "GET"), [400]),
        ((f"{good}\r\nbroken header", "GET"), [400]),
        ((good, "GE T"), [400]),
    ):
        header, method = lines
        sent = f"{method} /_stcore/host-config HTTP/1.1\r\n{header}\r\nConnection: close\r\n\r\n"
        # uvicorn closes a connection with an unusable request after one answer, or without one.
        assert team.raw_answers(server.direct, sent.encode()) in (expected, []), sent[:200]
    assert healthy_seconds(server) < HEALTHY_SECONDS


@pytest.mark.nightly
def test_slow_and_idle_connections_do_not_stop_the_server(server: Team, ben: Client) -> None:
    address = ("127.0.0.1", server.server.port)
    before = team.resident_bytes(server.pid)
    connections = [socket.create_connection(address) for _ in range(200)]
    head = f"PUT /_stcore/upload_file/a/b HTTP/1.1\r\nHost: localhost:{server.server.port}\r\n"
    user = f"{nginx.HEADER}: {BEN}\r\n{SECRET_HEADER}: {server.secret}\r\n"
    user += f"Cookie: {ben.cookie_header()}\r\nX-Xsrftoken: {ben.cookies[XSRF_COOKIE_NAME]}\r\n"
    starts = [b"", b"GET / HT", head.encode(), f"{head}Content-Length: 1000000\r\n\r\n".encode()]
    starts.append(f"{head}{user}Transfer-Encoding: chunked\r\n\r\n1\r\n".encode())
    try:
        for connection, start in zip(connections, itertools.cycle(starts), strict=False):
            connection.sendall(start)
        for _ in range(5):
            assert healthy_seconds(server) < HEALTHY_SECONDS
            for connection in connections[3::5]:
                try:
                    connection.send(b"x")
                except OSError:
                    continue  # refused by now
        assert team.resident_bytes(server.pid) - before < GROWTH
    finally:
        for connection in connections:
            connection.close()


def messages(draw: random.Random) -> Iterator[bytes | str]:
    """Yield messages that no browser sends: other types, wrong values, no messages at all."""
    yield b""
    yield b"\xff" * 100
    yield "text"
    yield BackMsg().SerializeToString()
    plain = BackMsg()
    plain.rerun_script.query_string = "model=moe"
    plain.rerun_script.widget_states.widgets.add(id="field:mesh", string_value="2x2")
    content = plain.SerializeToString()
    for name in ("debug_disconnect_websocket", "debug_shutdown_runtime", "load_git_info"):
        message = BackMsg()
        setattr(message, name, True)
        yield message.SerializeToString()
    files = BackMsg()
    files.file_urls_request.request_id = "1"
    files.file_urls_request.file_names.extend(["../../x", "/etc/passwd"])
    files.file_urls_request.session_id = "another session"
    yield files.SerializeToString()
    for name, value in (("script", "x"), ("", "")):
        page = BackMsg()
        page.rerun_script.page_name = f"../{name}"
        page.rerun_script.page_script_hash = value
        page.rerun_script.fragment_id = "/etc/passwd"
        yield page.SerializeToString()
    yield b"x" * (2**24 * 16)
    for _ in range(EXAMPLES or 5):
        changed = bytearray(content)
        for _ in range(draw.choice((1, 2, 5))):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        yield bytes(changed)


@pytest.mark.nightly
def test_messages_that_no_browser_sends(server: Team, ben: Client) -> None:
    """Each ends the web socket or the script of this tab at most. The other tab goes on.

    A widget that does not exist, or a value of another type, is an exception of Streamlit for the sender.
    """
    draw = random.Random(None if EXAMPLES else 1)
    other = ben.open_tab()
    other.open_page()
    begin = len(server.log())
    for message in messages(draw):
        tab = ben.open_tab()
        tab.send(message)
        with contextlib.suppress(TimeoutError):
            tab.read(2.0)
        tab.close()
        assert healthy_seconds(server) < 5
    assert not team.exceptions(other.open_page()) and other.code is None
    FORGED.append((begin, len(server.log())))
    other.close()


def links(draw: random.Random) -> Iterator[tuple[str, str]]:
    """Yield pages and damaged links to them."""
    pages = ("", "board", "search", "open", "library", "jobs", "learn", "assemble")
    pages += ("processes", "restore", "variants", "accuracy", "run", "../x", "<b>x</b>")
    for page in pages:
        yield page, ""
    fields = layouts.to_fields(layouts.parse({"model": "transformer"}).unwrap())
    names = [*fields, "compiler_options", "target", "pin", "baseline", "chip", "panel", "array"]
    for _ in range(EXAMPLES or 8):
        chosen = {name: fields.get(name, "") for name in draw.sample(names, draw.randint(1, 4))}
        query = {name: damaged_text(value, draw) for name, value in chosen.items()}
        text = urllib.parse.urlencode(query, errors="replace")
        yield draw.choice(("", "", "", *pages)), damaged_text(text, draw)


@pytest.mark.nightly
def test_damaged_links(server: Team, ben: Client, tmp_path: Path) -> None:
    """No page of a link has an exception, runs anything, or writes a file."""
    draw = random.Random(None if EXAMPLES else 1)
    dumped = tmp_path / "dump"
    options = f"compiler_options=xla_dump_to%3D{urllib.parse.quote(str(dumped), safe='')}"
    for page, query in [*links(draw), ("", options), ("", f"{options}&target=tpu:v5e:2x2")]:
        tab = ben.open_tab()
        begin = time.monotonic()
        messages = tab.open_page(query, page)
        assert not team.exceptions(messages), (page, query)
        assert not query.startswith(options) or any("compiler" in alert for alert in team.alerts(messages))
        assert time.monotonic() - begin < team.SECONDS
        tab.close()
    assert not dumped.exists()
