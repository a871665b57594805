"""The plan of a layout for a page."""

from __future__ import annotations

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import waiting
from inspector.service.inspection import Inspection


def planned(service: Inspection, layout: Layout) -> Snapshot | None:
    """Return the planned Snapshot. If the model cannot be traced, draw the error and return None.

    If the shapes are unknown, the page waits until JAX has traced the model.
    """
    state = service.known_state(layout)
    try:
        if state is None:
            state = waiting.wait_for(service.start_state(layout), "Tracing the model with JAX …")
        return plan(layout, state)
    except InvalidInput as error:
        st.error(plain(str(error)), icon=":material/error:")
        return None
