"""The cookie that Streamlit signs after sign-in."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import Scope

from inspector.media.streamlit import streamlit_internals
from inspector.service.sign_outs import SignIn


@dataclass(frozen=True)
class SignedCookie:
    """The content of a valid cookie.

    Attributes:
      claims: the fields of the provider's ID token, with `is_logged_in`.
      sign_in: the sign-in that it is of. The token has a random number and its time, so two sign-ins differ.
    """

    claims: dict[str, Any]
    sign_in: SignIn


def of(scope: Scope) -> SignedCookie | None:
    """Return the signed cookie of a request or web socket; None without a valid signature."""
    content = streamlit_internals.signed_user(HTTPConnection(scope).cookies)
    try:
        claims = json.loads(content or b"")
    except ValueError:
        return None
    if content is None or not isinstance(claims, dict):
        return None
    issued = claims.get("iat")
    at = issued if isinstance(issued, int) and 0 <= issued < 2**53 else 0
    return SignedCookie(claims, SignIn(hashlib.sha256(content).hexdigest(), at))
