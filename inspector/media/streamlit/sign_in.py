"""Sign-in and sign-out of a team server, with Streamlit's own `st.login`."""

from __future__ import annotations

import streamlit as st

from inspector.media.streamlit import user
from inspector.media.streamlit.plain_text import plain
from inspector.service import audit_log, serving

_SEEN = "sign_in_seen"


def passed() -> bool:
    """Return whether this session may use the pages. If not, draw how to sign in."""
    providers = serving.current().providers
    if not providers:
        return True
    problem = user.problem()
    if problem is None:
        if not st.session_state.get(_SEEN):
            st.session_state[_SEEN] = True
            audit_log.shared().sign_in(user.current(), "accepted")
        return True
    st.navigation([st.Page(_show, title="Sign in")], position="hidden").run()
    return False


def _show() -> None:
    st.markdown("### Sharding Inspector")
    if user.is_signed_in():
        if not st.session_state.get(_SEEN):
            st.session_state[_SEEN] = True
            audit_log.shared().sign_in(user.signed_in(), "refused")
        st.error(plain(user.problem() or ""), icon=":material/block:")
        st.button("Sign out", key="sign_out", icon=":material/logout:", on_click=st.logout)
        return
    st.write("Sign in to use this server.")
    for provider in serving.current().providers:
        label = "Sign in" if provider == "default" else f"Sign in with {plain(provider)}"
        st.button(
            label,
            key=f"sign_in:{provider}",
            type="primary",
            icon=":material/login:",
            on_click=st.login,
            args=(None if provider == "default" else provider,),
        )


def show_account() -> None:
    """Draw the page of the signed-in user."""
    st.markdown("### Account")
    st.write(f"Signed in as **{plain(user.current().name)}**.")
    st.button("Sign out", key="sign_out", icon=":material/logout:", on_click=st.logout)
