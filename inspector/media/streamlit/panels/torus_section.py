"""The mesh on its machine: the links of each axis."""

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import render
from inspector.sections import machine


def show(snapshot: Snapshot) -> None:
    """Draw them, if the Snapshot contains the machine."""
    target = machine.target_of(snapshot)
    if target is None:
        return
    st.markdown("##### Mesh on the machine")
    st.markdown(plain(target.sentence))
    render.show([machine.links(snapshot, target)])
