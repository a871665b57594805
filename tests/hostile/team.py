"""A team server behind nginx, and what its users and strangers send, without a browser."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.web.server.starlette.starlette_server_config import XSRF_COOKIE_NAME
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.browser.server import Server, free_port
from tests.hostile.nginx import HEADER, PASSWORD, Nginx

SECONDS = 60.0  # within which every answer comes
STREAM = "/_stcore/stream"


class Team:
    """A server for these users behind an nginx, to which it listens at a port or at a Unix socket."""

    def __init__(self, folder: Path, *options: str, users: Sequence[str], unix: bool = False) -> None:
        self.audit = folder / "audit.jsonl"
        self.secret = os.urandom(16).hex()
        self.path = folder / "server.socket"
        secret = folder / "secret"
        secret.write_text(f"{self.secret}\n")
        secret.chmod(0o600)
        port = free_port()
        upstream = f"http://unix:{self.path}:" if unix else f"http://127.0.0.1:{port}"
        self.nginx = Nginx(folder / "nginx", upstream, self.secret, *users)
        every = ["--trusted-proxy", f"unix:{self.path}" if unix else "127.0.0.1", "--user-header", HEADER]
        every += ["--proxy-secret", str(secret), "--audit-log", str(self.audit)]
        try:
            self.server = Server([*every, *options], port, library=folder / "library", url=self.nginx.url)
        except BaseException:
            self.nginx.stop()
            raise
        self.url = self.nginx.url
        self.direct = f"http://127.0.0.1:{port}"
        self.pid = self.server.pid

    def stop(self) -> list[int]:
        """Stop both. Return the processes of the server that are still alive."""
        left = self.server.stop()
        self.nginx.stop()
        return left

    def log(self) -> str:
        return self.server.log()

    def user(self, name: str) -> Client:
        """Return a browser of a user, who has given nginx the password."""
        token = base64.b64encode(f"{name}:{PASSWORD}".encode()).decode()
        client = Client(self.url, {"Authorization": f"Basic {token}"})
        client.take_xsrf_token(self.url)
        return client

    def stranger(self, *headers: tuple[str, str], source: str = "127.0.0.1") -> Client:
        """Return a program that connects to the server from an address, past the proxy."""
        client = Client(self.direct, headers, source=source)
        client.take_xsrf_token(self.url)
        return client


@dataclass
class Client:
    """A program that sends what a browser would, or anything else. Its cookies are those of one browser."""

    url: str
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()
    cookies: dict[str, str] = field(default_factory=dict)
    source: str | None = None  # the address that it connects from

    def __post_init__(self) -> None:
        self._sender = httpx.Client(timeout=SECONDS, transport=httpx.HTTPTransport(local_address=self.source))

    def request(self, method: str, path: str, **options: object) -> httpx.Response:
        headers = httpx.Headers(self.headers).multi_items()
        headers += [("Cookie", self.cookie_header()), *dict(options.pop("headers", {})).items()]  # type: ignore[call-overload]
        self._sender.cookies.clear()  # only those of `cookies` are sent
        return self._sender.request(method, f"{self.url}{path}", headers=headers, **options)  # type: ignore[arg-type]

    def get(self, path: str, **options: object) -> httpx.Response:
        return self.request("GET", path, **options)

    def cookie_header(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    def take_xsrf_token(self, url: str) -> None:
        """Get the token that Streamlit wants with uploads and web sockets; anyone can."""
        answer = httpx.get(f"{url}/_stcore/health", timeout=SECONDS)
        self.cookies[XSRF_COOKIE_NAME] = answer.cookies[XSRF_COOKIE_NAME].strip('"')

    def open_tab(self, session: str | None = None, origin: str | None = None) -> Tab:
        """Open the web socket of a tab.

        Raises:
          websockets.exceptions.InvalidStatus: the server refuses it.
        """
        parts = ["streamlit", self.cookies[XSRF_COOKIE_NAME]] + ([] if session is None else [session])
        sent = [*httpx.Headers(self.headers).multi_items(), ("Cookie", self.cookie_header())]
        address = urlsplit(self.url)
        opened = socket.create_connection(
            (str(address.hostname), address.port or 0), SECONDS, (self.source or "", 0)
        )
        opened.settimeout(None)
        return Tab(
            connect(
                f"{self.url.replace('http', 'ws', 1)}{STREAM}",
                sock=opened,
                subprotocols=[Subprotocol(part) for part in parts],
                additional_headers=sent,
                origin=origin or self.url,  # type: ignore[arg-type]
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

    def media_file(self, messages: list[ForwardMsg]) -> str:
        """Return the path of the file of the first download button, which the server makes now."""
        elements = [message.delta.new_element for message in messages]
        buttons = [element.download_button for element in elements if element.HasField("download_button")]
        message = BackMsg()
        message.backend_operation_request.request_id = "1"
        message.backend_operation_request.session_id = self.session
        message.backend_operation_request.deferred_file.file_id = buttons[0].deferred_file_id
        self.send(message)
        while True:
            content = self.socket.recv(SECONDS)
            assert isinstance(content, bytes)
            answer = ForwardMsg.FromString(content).backend_operation_response
            if answer.request_id:
                assert not answer.error_msg
                return answer.deferred_file.url

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
