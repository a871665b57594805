"""Paths, checks and headers of every HTTP answer, and the user that a trusted proxy names."""

import contextlib
import hashlib
import hmac
import secrets

import plotly
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inspector.jobs import serving
from inspector.jobs.serving import SECRET_HEADER, TrustedProxy
from inspector.media.streamlit.streamlit_internals import is_host_allowed

READY = "/ready"
PLOTLY = f"/plotly-{plotly.__version__}.js"  # browsers keep it until the version changes
HEALTH = "/_stcore/health"
UPLOADS = "/_stcore/upload_file/"  # followed by the session and the id of the file
BROWSER_COOKIE = "sharding_inspector_browser"  # 32 hexadecimal digits that no other browser knows


# On a server behind a proxy that signs users in, nothing is answered to anyone else.
#
# Streamlit believes the header with the user from every sender (`server.trustedUserHeaders`). Here, a request
# or web socket that does not come from the proxy, lacks its secret, or names no user gets status 403. That is
# so on every path.


USER = "inspector.user"  # the key of the user in the scope of a request
_WITHOUT_USER = (READY, HEALTH)  # the proxy itself asks these
_POLICY_VIOLATION = 1008  # a status code of web sockets


class BehindProxy:
    """Refuses everything that the trusted proxy has not sent for a user. Without a proxy, refuses nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        proxy = serving.current().proxy
        if scope["type"] not in ("http", "websocket") or proxy is None:
            await self._app(scope, receive, send)
            return
        user = _only(scope, proxy.user_header).strip()
        if (reason := _why_refused(scope, proxy, user)) is None:
            await self._app({**scope, USER: user}, receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse(reason, 403)(scope, receive, send)
        else:
            await receive()  # websocket.connect
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})


def _why_refused(scope: Scope, proxy: TrustedProxy, user: str) -> str | None:
    # A Unix socket has no address: its file decides who can connect.
    address = serving.plain_address(scope["client"][0]) if scope.get("client") else None
    if address != proxy.address:
        return "This server answers its proxy only."
    sent = hashlib.sha256(_only(scope, SECRET_HEADER).encode("latin-1")).hexdigest()
    if proxy.secret_digest is not None and not hmac.compare_digest(sent, proxy.secret_digest):
        return "The proxy must send its secret."
    if not user and scope["path"] not in _WITHOUT_USER:
        return "The proxy must name the user."
    return None


def _only(scope: Scope, header: str) -> str:
    """Return the value of a header that a request has once; otherwise an empty text."""
    values = Headers(scope=scope).getlist(header)
    return values[0] if len(values) == 1 else ""


# A load balancer asks these by the server's address.
_WITHOUT_HOST_CHECK = (READY, HEALTH)
_NO_TEXT = 1003  # a status code of web sockets: a kind of data that is not accepted

# No other site may show the pages in a frame: a click there could start or delete something.
_HEADERS = {
    "X-Frame-Options": "SAMEORIGIN",
    "Content-Security-Policy": "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    # A link to a layout has the whole layout.
    "Referrer-Policy": "same-origin",
}
# The first figure of a page needs this script, and the page asks for it only when it knows the figure.
_FOR_A_YEAR = "Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000"
_PRELOAD = f"<.{PLOTLY}>; rel=preload; as=script"


class SafeAnswers:
    """Refuses requests for host names that are not allowed, and text on a web socket.

    Gives each browser a number, which owns the jobs of all its tabs without sign-in, also after a reload.

    Keeps other sites from framing the pages. Streamlit checks the host of its web socket only. A page whose
    name was made to point to this machine must not upload or read files either.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await _without_text(self._app, scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if message["status"] == 200 and headers.get("content-type", "").startswith("text/html"):
                    headers.setdefault("Link", _PRELOAD)
                    if not cookie_parser(asked.get("cookie", "")).get(BROWSER_COOKIE):
                        cookie = f"{BROWSER_COOKIE}={secrets.token_hex(16)}"
                        headers.append(
                            "Set-Cookie", f"{cookie}; Path=/; HttpOnly; SameSite=Lax; {_FOR_A_YEAR}"
                        )
            await send(message)

        asked = Headers(scope=scope)
        host = asked.get("host")
        app = self._app
        if scope["path"] not in _WITHOUT_HOST_CHECK and not is_host_allowed(host):
            app = PlainTextResponse("This host name is not allowed.", status_code=403)
        await app(scope, receive, send_with_headers)


async def _without_text(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """End a web socket that sends text. Streamlit expects bytes, and fails with a traceback.

    It fails likewise if it reads from a web socket after the browser was gone while it wrote to it.
    """
    refused = gone = False

    async def receive_bytes() -> Message:
        nonlocal refused
        message = await receive()
        refused = message["type"] == "websocket.receive" and message.get("bytes") is None
        return {"type": "websocket.disconnect", "code": _NO_TEXT} if refused else message

    async def send_noting(message: Message) -> None:
        nonlocal gone
        try:
            await send(message)
        except OSError:
            gone = True
            raise

    try:
        await app(scope, receive_bytes, send_noting)
    except (RuntimeError, TypeError):
        if not gone:
            raise
    if refused:
        with contextlib.suppress(RuntimeError, OSError):  # the browser has closed it
            await send({"type": "websocket.close", "code": _NO_TEXT})
