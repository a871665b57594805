"""A team server with a real OpenID provider, and what its users and strangers send, without a browser."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import oidc_provider_mock
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.web.server.starlette.starlette_server_config import (
    USER_COOKIE_NAME,
    XSRF_COOKIE_NAME,
)
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.browser.server import Server, free_port

SECONDS = 60.0  # within which every answer comes
STREAM = "/_stcore/stream"


@contextlib.contextmanager
def provider(*emails: str) -> Iterator[str]:
    """Run an OpenID provider with these users; yield the address of its metadata."""
    users = [
        oidc_provider_mock.User(sub=email[:3], claims={"email": email, "email_verified": True})
        for email in emails
    ]
    with oidc_provider_mock.run_server_in_thread(user_claims=users) as server:
        yield f"http://localhost:{server.server_port}/.well-known/openid-configuration"


def start(folder: Path, metadata: str, *options: str) -> Server:
    """Start a server for users of my.org. A second one in the folder has the same secrets and library."""
    port = free_port()
    secrets = folder / "secrets.toml"
    if not secrets.exists():
        secrets.write_text(
            f"""[auth]
redirect_uri = "http://localhost:{port}/oauth2callback"
cookie_secret = "{os.urandom(16).hex()}"
client_id = "team"
client_secret = "the secret of the client"
server_metadata_url = "{metadata}"
"""
        )
        secrets.chmod(0o600)
    every = ["--secrets", str(secrets), "--allow-domain", "my.org", "--log-format", "json"]
    every += ["--audit-log", str(folder / "audit.jsonl"), *options]
    return Server(every, port, "localhost", library=folder / "library")


@dataclass
class Client:
    """A program that sends what a browser would, or anything else. Its cookies are those of one browser."""

    url: str
    cookies: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sender = httpx.Client(timeout=SECONDS)

    def request(self, method: str, path: str, **options: object) -> httpx.Response:
        headers = {"Cookie": self.cookie_header()} | dict(options.pop("headers", {}))  # type: ignore[call-overload]
        self._sender.cookies.clear()  # only those of `cookies` are sent
        return self._sender.request(method, f"{self.url}{path}", headers=headers, **options)  # type: ignore[arg-type]

    def get(self, path: str, **options: object) -> httpx.Response:
        return self.request("GET", path, **options)

    def cookie_header(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    def take_xsrf_token(self) -> str:
        """Get the token that Streamlit wants with uploads and web sockets; anyone can."""
        answer = httpx.get(f"{self.url}/_stcore/health", timeout=SECONDS)
        self.cookies[XSRF_COOKIE_NAME] = answer.cookies[XSRF_COOKIE_NAME].strip('"')
        return self.cookies[XSRF_COOKIE_NAME]

    def sign_in(self, user: str) -> Client:
        """Sign in at the provider, as the buttons of the pages do."""
        with httpx.Client(follow_redirects=True, timeout=SECONDS) as browser:
            form = browser.get(f"{self.url}/sign-in", params={"provider": "default"})
            assert urlsplit(str(form.url)).path == "/oauth2/authorize", form.url
            browser.post(str(form.url), data={"sub": user[:3]})
            for cookie in browser.cookies.jar:
                if cookie.name.startswith(USER_COOKIE_NAME):
                    self.cookies[cookie.name] = str(cookie.value)
        assert USER_COOKIE_NAME in self.cookies
        self.take_xsrf_token()
        return self

    def open_tab(self, session: str | None = None, **headers: str) -> Tab:
        """Open the web socket of a tab.

        Raises:
          websockets.exceptions.InvalidStatus: the server refuses it.
        """
        token = self.cookies.get(XSRF_COOKIE_NAME) or self.take_xsrf_token()
        parts = ["streamlit", token] + ([] if session is None else [session])
        sent = {"Cookie": self.cookie_header()} | headers
        origin = sent.pop("Origin", self.url)
        return Tab(
            connect(
                f"{self.url.replace('http', 'ws', 1)}{STREAM}",
                subprotocols=[Subprotocol(part) for part in parts],
                additional_headers=sent,
                origin=origin,  # type: ignore[arg-type]
                max_size=None,
                open_timeout=SECONDS,
            )
        )


class Tab:
    """The web socket of a tab, and what the server has sent to it."""

    def __init__(self, socket: AbstractContextManager[ClientConnection]) -> None:
        self._open = contextlib.ExitStack()
        self.socket = self._open.enter_context(socket)
        self.code: int | None = None  # with which the server has closed it
        self.session = ""

    def send(self, message: BackMsg | bytes | str) -> None:
        """Send a message, unless the server has closed the socket."""
        content = message.SerializeToString() if isinstance(message, BackMsg) else message
        with contextlib.suppress(ConnectionClosed):
            self.socket.send(content)

    def open_page(self, query: str = "", page: str = "") -> list[ForwardMsg]:
        """Run the script of a page with the query of a link. Return the messages until its end."""
        message = BackMsg()
        message.rerun_script.query_string = query
        message.rerun_script.page_name = page
        self.send(message)
        return self.read()

    def read(self, seconds: float = SECONDS) -> list[ForwardMsg]:
        """Return the messages until a script has finished or the socket is closed.

        Raises:
          TimeoutError: nothing came for so long.
        """
        messages: list[ForwardMsg] = []
        while not messages or messages[-1].WhichOneof("type") != "script_finished":
            try:
                content = self.socket.recv(seconds)
            except ConnectionClosed as closed:
                self.code = closed.rcvd.code if closed.rcvd else 0
                break
            assert isinstance(content, bytes)
            messages.append(ForwardMsg.FromString(content))
            if messages[-1].WhichOneof("type") == "new_session":
                self.session = messages[-1].new_session.initialize.session_id
        return messages

    def close(self) -> None:
        self._open.close()


def exceptions(messages: list[ForwardMsg]) -> list[str]:
    """Return the exceptions that the messages draw on the page."""
    elements = [
        message.delta.new_element for message in messages if message.delta.WhichOneof("type") == "new_element"
    ]
    return [element.exception.message for element in elements if element.WhichOneof("type") == "exception"]


def alerts(messages: list[ForwardMsg]) -> list[str]:
    """Return the texts of the alerts that the messages draw on the page."""
    elements = [
        message.delta.new_element for message in messages if message.delta.WhichOneof("type") == "new_element"
    ]
    return [element.alert.body for element in elements if element.WhichOneof("type") == "alert"]


def raw_answers(url: str, content: bytes, seconds: float = 20.0) -> list[int]:
    """Send bytes to the server, and return the status codes of its answers until it closes the connection
    or is silent for so long."""
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    received = b""
    with socket.create_connection((parts.hostname, parts.port), seconds) as connection:
        connection.settimeout(seconds)
        with contextlib.suppress(OSError):
            connection.sendall(content)
        with contextlib.suppress(OSError):
            while part := connection.recv(65536):
                received += part
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3})", received)]


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is in RAM."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
