"""The cookie that Streamlit signs after sign-in."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from streamlit.auth_util import get_cookie_with_chunks
from streamlit.web.server.server_util import get_cookie_secret
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME


def is_signed_in(headers: Headers) -> bool:
    """Return whether a request has the cookie that Streamlit signs after sign-in."""
    cookies = cookie_parser(headers.get("cookie", ""))

    def signed(name: str) -> bytes | None:
        value = cookies.get(name)
        if value is None:
            return None
        return decode_signed_value(get_cookie_secret(), name, value.encode("latin-1", "replace"))

    return bool(get_cookie_with_chunks(signed, USER_COOKIE_NAME))
