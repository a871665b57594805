"""Problems of the custom models that the server was started with."""

from __future__ import annotations

import streamlit as st

from inspector.media.streamlit.plain_text import plain
from inspector.service import own_model_registration


def show() -> None:
    """Draw an error for each model of the command line that could not be imported."""
    for problem in own_model_registration.PROBLEMS:
        st.error(plain(problem), icon=":material/error:")
