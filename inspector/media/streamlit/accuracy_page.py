"""The guide on accuracy: predicted step times against published measurements."""

from __future__ import annotations

import streamlit as st

from inspector.compare import accuracy
from inspector.media.streamlit import render
from inspector.sections import accuracy as section_of_accuracy


def show() -> None:
    """Draw the page."""
    st.markdown("### Accuracy")
    st.caption(
        "Published training runs, whose layouts were compiled and predicted with this version. Each "
        "prediction uses constants that were fitted without the runs of its model."
    )
    render.show(section_of_accuracy.section(accuracy.shipped()).blocks)
