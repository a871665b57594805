"""On a server behind a proxy that signs users in, nothing is answered to anyone else.

Streamlit believes the header with the user from every sender (`server.trustedUserHeaders`). Here, a request
or web socket that does not come from the proxy, lacks its secret, or names no user gets status 403. That is
so on every path.
"""

import hashlib
import hmac

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from inspector.media.streamlit.server.paths import HEALTH, READY
from inspector.service import serving
from inspector.service.serving import SECRET_HEADER, TrustedProxy

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
