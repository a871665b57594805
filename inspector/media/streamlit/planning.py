"""The plan of a layout for a page: at once where the shapes are known, else after a short wait."""

from __future__ import annotations

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.media.streamlit import waiting
from inspector.media.streamlit.plain_text import plain
from inspector.service.inspection import Inspection


def planned(service: Inspection, layout: Layout) -> Snapshot | None:
    """The planned Snapshot, or None and a sentence on the page where the model cannot be traced."""
    state = service.known_state(layout)
    try:
        if state is None:
            state = waiting.wait_for(
                service.start_state(layout),
                "Reading the model's shapes with JAX …",
            )
        return plan(layout, state)
    except InvalidInput as refused:
        st.error(plain(str(refused)), icon=":material/error:")
        return None
