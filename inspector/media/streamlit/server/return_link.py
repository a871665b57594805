"""Bring a user back to the link that was opened before sign-in.

Streamlit sends users to the first page after sign-in. A cookie keeps the link meanwhile. The browser sends
the cookie, so only links to pages of this server are followed.
"""

import re
from urllib.parse import quote, unquote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Message, Scope, Send

COOKIE = "sharding_inspector_link"
_LINK = re.compile(r"/[a-z]*\?[!-~]+|/[a-z]+")
_MOST_CHARACTERS = 3500  # browsers keep 4096 with the name of the cookie
_SECONDS = 900  # to sign in


def keep(scope: Scope, answer: Response) -> None:
    """Add the link of a request to its answer, which asks the user to sign in."""
    query = scope["query_string"].decode("latin-1")
    link = f"{scope['path']}?{query}" if query else scope["path"]
    quoted = quote(link, safe="")
    if _LINK.fullmatch(link) and len(quoted) <= _MOST_CHARACTERS:
        answer.set_cookie(COOKIE, quoted, max_age=_SECONDS, httponly=True, samesite="lax")


def following(scope: Scope, send: Send) -> Send:
    """Return a `send` that redirects to the kept link if the answer redirects to the first page."""
    kept = unquote(HTTPConnection(scope).cookies.get(COOKIE, ""))

    async def send_link(message: Message) -> None:
        if message["type"] == "http.response.start" and kept:
            answer = MutableHeaders(scope=message)
            if _LINK.fullmatch(kept) and answer.get("location") == "/":
                answer["location"] = kept
            answer.append("set-cookie", f"{COOKIE}=; Path=/; Max-Age=0")
        await send(message)

    return send_link
