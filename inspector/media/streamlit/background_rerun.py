"""Reruns of the page that background work asks for, without a user action.

Such a rerun has the URL that the browser last reported. If the browser has not yet applied a newer one, the
old URL must not be read as a link or as the back button, which would undo the user's last edit.
"""

from __future__ import annotations

from typing import NoReturn

import streamlit as st

_ASKED = "background_rerun"


def rerun() -> NoReturn:
    """Run the page again, because background work has ended."""
    st.session_state[_ASKED] = True
    st.rerun()


def take() -> bool:
    """Return whether background work asked for this run, once."""
    return bool(st.session_state.pop(_ASKED, False))
