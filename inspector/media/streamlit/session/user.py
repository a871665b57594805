"""The user of a session, who owns its jobs and saved Snapshots, and the folder of its runs.

Behind a proxy that signs users in, the proxy names the user in a header when a session begins. Otherwise each
browser is a user, with all its tabs: the server gives it a random cookie. A client without the cookie is a
user for one session.
"""

import os
import re
from pathlib import Path

import streamlit as st

from inspector.jobs import inspection, serving
from inspector.jobs.engine import Requester
from inspector.jobs.engine.job import digest_of_session
from inspector.jobs.inspection import Inspection
from inspector.jobs.library import Library
from inspector.media.streamlit.server.middleware import BROWSER_COOKIE
from inspector.media.streamlit.streamlit_internals import session_id
from inspector.records import program_run
from inspector.text.printable import one_line


def run_folder() -> Path | None:
    """Return the folder, or None if the dashboard shows no run."""
    folder = os.environ.get(program_run.FOLDER_VARIABLE)
    return Path(folder) if folder else None


_COOKIE = re.compile("[0-9a-f]{32}")
_OWNER = "browser_owner"  # owner and name
_LONGEST_NAME = 80  # characters of a user's name


def current() -> Requester:
    """Return the user of this session.

    Raises:
      PermissionError: the proxy has named no user for this session.
    """
    session = session_id()
    if serving.current().proxy is None:
        owner: tuple[str, str] | None = st.session_state.get(_OWNER)
        if owner is None:
            cookie = str(st.context.cookies.get(BROWSER_COOKIE))
            kind, secret = ("browser", cookie) if _COOKIE.fullmatch(cookie) else ("session", session)
            digest = digest_of_session(secret)
            owner = st.session_state[_OWNER] = f"{kind} {digest}", f"{kind.capitalize()} {digest[:4]}"
        return Requester(*owner, session)
    named = str(st.user.to_dict().get("user") or "").strip()
    if not named:
        raise PermissionError("no user has signed in")
    return Requester(named, one_line(named)[:_LONGEST_NAME], session, signed_in=True)


def service() -> Inspection:
    """Return the service, with the user as the owner of the jobs that it starts."""
    return inspection.shared().of(current())


def library() -> Library:
    """Return the library as this user sees it. On a server for one local user, that is all of it."""
    if not serving.current().team:
        return Library()
    return Library(user=current(), on_change=serving.shared().library)
