"""The plan of a layout for a page: at once where the shapes are known, else after a short wait."""

from __future__ import annotations

import streamlit as st

from inspector.abstract import AbstractState
from inspector.errors import Refused
from inspector.inspection import Inspection
from inspector.layout import Layout
from inspector.plan import plan
from inspector.snapshot import Snapshot
from inspector.views.plain_text import plain


def planned(service: Inspection, layout: Layout) -> Snapshot | None:
    """The planned Snapshot, or None and a sentence on the page where the model cannot be traced."""
    state = service.known_state(layout)
    try:
        if state is None:
            state = _wait_for_state(service, layout)
        return plan(layout, state)
    except Refused as refused:
        st.error(plain(str(refused)), icon=":material/error:")
        return None


def _wait_for_state(service: Inspection, layout: Layout) -> AbstractState:
    job = service.ask_state(layout)
    try:
        with st.spinner("Reading the model's shapes with JAX …", show_time=True):
            note = st.empty()
            while not job.wait(0.2).finished:
                # Writing lets Streamlit end this run if the person has changed something meanwhile.
                note.empty()
        return service.take_state(layout, job)
    finally:
        job.cancel()
