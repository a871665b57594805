"""What was wrong with a model that the server was started with: said on every page, which else works."""

from __future__ import annotations

import streamlit as st

from inspector.media.streamlit.plain_text import plain
from inspector.service import own_model_registration


def show() -> None:
    """A sentence for each model of the command line that could not be read."""
    for problem in own_model_registration.PROBLEMS:
        st.error(plain(problem), icon=":material/error:")
