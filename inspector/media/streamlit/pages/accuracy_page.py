"""The guide on accuracy: predicted step times against published measurements."""

from __future__ import annotations

import streamlit as st

from inspector.compare.measured import accuracy
from inspector.core.errors import InvalidInput
from inspector.machines.prediction import own_runs
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import render
from inspector.sections import accuracy as section_of_accuracy
from inspector.service import serving


def show() -> None:
    """Draw the page."""
    st.markdown("### Accuracy")
    try:
        own = () if serving.current().providers else own_runs.read()
    except InvalidInput as error:
        own = ()
        st.warning(plain(str(error)), icon=":material/warning:")
    render.show(section_of_accuracy.section(accuracy.shipped(), own).blocks)
