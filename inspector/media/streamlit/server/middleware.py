"""Checks and headers of every HTTP answer."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

from inspector.media.streamlit.server.signed_cookie import is_signed_in
from inspector.service import serving

READY = "/ready"
_HEALTH = "/_stcore/health"
_UPLOADS = "/_stcore/upload_file/"
# A load balancer asks these by the server's address.
_WITHOUT_HOST_CHECK = (READY, _HEALTH)

# No other site may show the pages in a frame: a click there could start or delete something.
_HEADERS = {
    "X-Frame-Options": "SAMEORIGIN",
    "Content-Security-Policy": "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    # A link to a layout has the whole layout.
    "Referrer-Policy": "same-origin",
}


class SafeAnswers:
    """Refuses requests for host names that are not allowed, and uploads of those who have not signed in.

    Forbids other sites to frame the pages. Streamlit checks the host of its web socket only. A page whose
    name was made to point to this machine must not upload or read files either.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        app = self._app
        if scope["path"] not in _WITHOUT_HOST_CHECK and not is_host_allowed(headers.get("host")):
            app = PlainTextResponse("This host name is not allowed.", status_code=403)
        elif (
            _UPLOADS in scope["path"] and serving.current().providers and not is_signed_in(headers)
        ):
            app = PlainTextResponse("Sign in to upload files.", status_code=403)
        await app(scope, receive, send_with_headers)
