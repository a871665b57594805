"""Bring a user back to the link that was opened before sign-in.

Streamlit sends users to the first page after sign-in. A cookie keeps the link meanwhile. The browser sends
the cookie, so only links to pages of this server are followed.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inspector.media.streamlit.server import signed_cookie
from inspector.media.streamlit.server.paths import CALLBACK
from inspector.service import serving

COOKIE = "sharding_inspector_link"
_LINK = re.compile(r"/[a-z]*\?[!-~]+|/[a-z]+")
_MOST_CHARACTERS = 3500  # browsers keep 4096 with the name of the cookie
_SECONDS = 900  # to sign in
_ATTRIBUTES = "; Path=/; HttpOnly; SameSite=Lax; Max-Age="


class ReturnToLink:
    """Keeps the link of a request without sign-in, and redirects to it after sign-in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not serving.current().providers:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                if scope["path"] == CALLBACK:
                    _follow(headers, answer)
                elif _is_page(answer) and signed_cookie.of(scope) is None:
                    _keep(scope, answer)
            await send(message)

        await self._app(scope, receive, send_with_cookie)


def _is_page(answer: MutableHeaders) -> bool:
    return answer.get("content-type", "").startswith("text/html")


def _keep(scope: Scope, answer: MutableHeaders) -> None:
    query = scope["query_string"].decode("latin-1")
    link = quote(f"{scope['path']}?{query}" if query else scope["path"], safe="")
    if _LINK.fullmatch(unquote(link)) and len(link) <= _MOST_CHARACTERS:
        answer.append("set-cookie", f"{COOKIE}={link}{_ATTRIBUTES}{_SECONDS}")


def _follow(headers: Headers, answer: MutableHeaders) -> None:
    kept = unquote(cookie_parser(headers.get("cookie", "")).get(COOKIE, ""))
    if kept and "location" in answer:
        if _LINK.fullmatch(kept) and answer["location"] == "/":
            answer["location"] = kept
        answer.append("set-cookie", f"{COOKIE}={_ATTRIBUTES}0")
