"""Whether the session of a team server has a user, and sign-out, with Streamlit's own `st.logout`."""

import streamlit as st

from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import user
from inspector.service import audit_log, serving

_SEEN = "sign_in_seen"


def passed() -> bool:
    """Return whether this session may use the pages. If not, draw why.

    Web sockets of those who have not signed in or are not allowed are refused. Of an allowed user, Streamlit
    does not pass on who it is if the browser reached the server by another address than `redirect_uri`.
    """
    if not serving.current().providers:
        return True
    if user.problem() is None:
        if not st.session_state.get(_SEEN):
            st.session_state[_SEEN] = True
            audit_log.shared().sign_in(user.current(), "accepted")
        return True
    st.navigation([st.Page(_show_problem, title="Sign in")], position="hidden").run()
    return False


def _show_problem() -> None:
    st.markdown("### Sharding Inspector")
    st.error(
        "Your sign-in is not valid at this address. Sign out, open the server by the address in its "
        "redirect_uri, and sign in.",
        icon=":material/block:",
    )
    st.button("Sign out", key="sign_out", icon=":material/logout:", on_click=st.logout)


def show_account() -> None:
    """Draw the page of the signed-in user."""
    st.markdown("### Account")
    st.write(f"Signed in as **{plain(user.current().name)}**.")
    st.button("Sign out", key="sign_out", icon=":material/logout:", on_click=st.logout)
