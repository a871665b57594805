"""The user of a session, who owns the jobs that it starts and the Snapshots that it saves.

With sign-in, the provider signs the user. Streamlit checks the signature when a session begins. A
browser sends nothing else that is read here. Without sign-in, each browser is a user, with all its tabs: the
server gives it a random cookie. A client without the cookie is a user for one session.
"""

import re
from typing import Any

import streamlit as st

from inspector.media.streamlit.server.paths import BROWSER_COOKIE
from inspector.media.streamlit.streamlit_internals import session_id
from inspector.service import audit_log, inspection, serving, signed_in_user
from inspector.service.engine import Requester
from inspector.service.engine.requester import digest_of_session
from inspector.service.inspection import Inspection
from inspector.service.library import Library

_COOKIE = re.compile("[0-9a-f]{32}")
_OWNER = "browser_owner"  # owner and name


def current() -> Requester:
    """Return the user of this session.

    Raises:
      PermissionError: sign-in is required, and no allowed user has signed in.
    """
    session = session_id()
    if not serving.current().providers:
        owner: tuple[str, str] | None = st.session_state.get(_OWNER)
        if owner is None:
            cookie = str(st.context.cookies.get(BROWSER_COOKIE))
            kind, secret = ("browser", cookie) if _COOKIE.fullmatch(cookie) else ("session", session)
            digest = digest_of_session(secret)
            owner = st.session_state[_OWNER] = f"{kind} {digest}", f"{kind.capitalize()} {digest[:4]}"
        return Requester(*owner, session)
    if (reason := problem()) is not None:
        raise PermissionError(reason)
    return signed_in_user.requester(_claims(), session)


def problem() -> str | None:
    """Return why the user of this session may not use a server with sign-in, or None."""
    return signed_in_user.problem(_claims())


def service() -> Inspection:
    """Return the service, with the user as the owner of the jobs that it starts."""
    return inspection.shared().of(current())


def library() -> Library:
    """Return the library as this user sees it. On a server for one local user, that is all of it."""
    if not serving.current().team:
        return Library()
    return Library(user=current(), on_change=audit_log.shared().library)


def _claims() -> dict[str, Any]:
    return dict(st.user.to_dict())
