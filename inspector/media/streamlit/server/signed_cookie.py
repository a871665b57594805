"""The cookie that Streamlit signs after sign-in."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import Scope
from streamlit.auth_util import get_cookie_with_chunks
from streamlit.web.server.server_util import get_cookie_secret
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from inspector.service.sign_outs import SignIn


@dataclass(frozen=True)
class SignedCookie:
    """What a valid cookie contains.

    Attributes:
      claims: the fields of the provider's ID token, with `is_logged_in`.
      sign_in: the sign-in that it is of. The token has a random number and its time, so two sign-ins differ.
    """

    claims: dict[str, Any]
    sign_in: SignIn


def of(scope: Scope) -> SignedCookie | None:
    """Return the signed cookie of a request or web socket; None if it has none with a valid signature."""
    # As Streamlit reads them, so that both see the same user if a cookie is sent twice.
    cookies = HTTPConnection(scope).cookies

    def signed(name: str) -> bytes | None:
        value = cookies.get(name)
        if value is None:
            return None
        return decode_signed_value(get_cookie_secret(), name, value.encode("latin-1", "replace"))

    content = get_cookie_with_chunks(signed, USER_COOKIE_NAME)
    if not content:
        return None
    try:
        claims = json.loads(content)
    except ValueError:
        return None
    if not isinstance(claims, dict):
        return None
    issued = claims.get("iat")
    at = issued if isinstance(issued, int) and 0 <= issued < 2**53 else 0
    return SignedCookie(claims, SignIn(hashlib.sha256(content).hexdigest(), at))
