"""On a server with sign-in, nothing but the way to sign in is answered to anyone else.

Streamlit asks for sign-in in the script of a session, after it has accepted a web socket and given the
session an address for uploads. Here, a request without the cookie of an allowed user gets a page of HTML
without a script, and neither web socket, upload, file nor metrics. A sign-out ends the sign-in: its open tabs
are sent to that page, and a copy of its cookie is refused. SECURITY.md says which libraries do not do this.
"""

import asyncio
import contextlib
from collections import defaultdict
from urllib.parse import parse_qs

import anyio
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inspector.media.streamlit.server import return_link, sign_in_page, signed_cookie
from inspector.media.streamlit.server.paths import CALLBACK, HEALTH, LOGIN, LOGOUT, READY, SIGN_IN
from inspector.media.streamlit.server.signed_cookie import SignedCookie
from inspector.media.streamlit.streamlit_internals import encode_provider_token, is_redirect, redirect
from inspector.service import audit_log, serving, sign_outs, signed_in_user
from inspector.service.sign_outs import SignIn

# Answered without sign-in, next to `SIGN_IN` and `LOGOUT`. All other paths are refused, also unknown ones.
_PUBLIC = (READY, HEALTH, LOGIN, CALLBACK)
USER = "inspector.user"  # the key of the user in the scope of a request
_POLICY_VIOLATION = 1008  # a status code of web sockets


class Refused(Exception):
    """Not signed in, or the user is not allowed. The argument is a sentence for the user, or None."""


def refuse_stranger(scope: Scope) -> SignedCookie:
    """Return the cookie of an allowed user in a request or web socket.

    Raises:
      Refused: it has no cookie of an allowed user, or the sign-in has ended.
    """
    cookie = signed_cookie.of(scope)
    if cookie is None or not signed_in_user.has_signed_in(cookie.claims):
        raise Refused(None)
    if sign_outs.shared().has(cookie.sign_in):
        raise Refused(None)
    if (problem := signed_in_user.problem(cookie.claims)) is not None:
        raise Refused(problem)
    return cookie


class SignInRequired:
    """Refuses everything but sign-in to those who are not signed in and allowed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tabs: defaultdict[SignIn, set[anyio.CancelScope]] = defaultdict(set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not serving.current().providers:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._open_tab(scope, receive, send)
        else:
            scope = dict(scope)
            if scope["path"] == CALLBACK:
                send = return_link.following(scope, send)
            answer = await self._answer(scope)
            await (answer or self._app)(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response | None:
        """Return the answer to a request, or None for that of Streamlit. Note its user in the scope."""
        if scope["path"] in _PUBLIC:
            return None
        if scope["path"] == SIGN_IN:
            return _begin_sign_in(scope)
        if scope["path"] == LOGOUT:
            return await self._sign_out(scope)
        try:
            cookie = refuse_stranger(scope)
        except Refused as refused:
            return _refusal(scope, refused.args[0])
        scope[USER] = signed_in_user.requester(cookie.claims).owner
        return None

    async def _sign_out(self, scope: Scope) -> Response | None:
        """End the sign-in and its tabs. Streamlit then deletes the cookie, and signs out at the provider."""
        if Headers(scope=scope).get("sec-fetch-site") == "cross-site":
            return PlainTextResponse("Sign out on a page of this server.", status_code=403)
        cookie = signed_cookie.of(scope)
        if cookie is not None and not sign_outs.shared().has(cookie.sign_in):
            await asyncio.to_thread(sign_outs.shared().add, cookie.sign_in)
            for tab in tuple(self._tabs.get(cookie.sign_in, ())):
                tab.cancel()
        return None

    async def _open_tab(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open the web socket of a browser tab, which ends with its sign-in."""
        try:
            sign_in = refuse_stranger(scope).sign_in
        except Refused:
            await receive()  # websocket.connect
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        gone = False  # the browser has closed it, or has gone to another page

        async def receive_signed_in() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or message["type"] == "websocket.disconnect"
            # Another server can have ended the sign-in, or its cookie is too old by now.
            if not gone and _is_over(scope):
                tab.cancel()
                await anyio.sleep(0)  # ends here
            return message

        async def send_noting_redirects(message: Message) -> None:
            nonlocal gone
            gone = gone or is_redirect(message.get("bytes") or b"")
            await send(message)

        with anyio.CancelScope() as tab:
            self._tabs[sign_in].add(tab)
            try:
                await self._app(scope, receive_signed_in, send_noting_redirects)
            finally:
                self._tabs[sign_in].discard(tab)
                if not self._tabs[sign_in]:
                    del self._tabs[sign_in]
        if tab.cancel_called:
            with contextlib.suppress(RuntimeError, OSError):  # the browser has closed it
                if not gone:  # another redirect would take it back from the provider
                    await send({"type": "websocket.send", "bytes": redirect("/")})
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION})


def _is_over(scope: Scope) -> bool:
    try:
        refuse_stranger(scope)
    except Refused:
        return True
    return False


def _begin_sign_in(scope: Scope) -> Response:
    """Send the browser to the provider, as `st.login` does."""
    names = parse_qs(scope["query_string"].decode("latin-1")).get("provider", [])
    if scope["method"] != "GET" or len(names) != 1 or names[0] not in serving.current().providers:
        return PlainTextResponse("This server has no such provider.", status_code=400)
    return RedirectResponse(f"{LOGIN}?provider={encode_provider_token(names[0])}", 302)


def _refusal(scope: Scope, problem: str | None) -> Response:
    wants_page = "text/html" in Headers(scope=scope).get("accept", "")
    if scope["method"] != "GET" or not wants_page:
        return PlainTextResponse("Sign in to use this server.", status_code=403)
    cookie = signed_cookie.of(scope)
    if problem is not None and cookie is not None:
        user = signed_in_user.requester(cookie.claims)
        audit_log.shared().sign_in(user, "refused")
    content = sign_in_page.html(serving.current().providers, problem)
    page = HTMLResponse(content, 403, headers=sign_in_page.HEADERS)
    if problem is None:
        return_link.keep(scope, page)
    return page
