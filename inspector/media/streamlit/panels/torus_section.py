"""The mesh on its machine: the chips colored by a mesh axis of choice, and the links of each axis."""

from __future__ import annotations

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import kept_field
from inspector.sections import machine


def show(snapshot: Snapshot) -> None:
    """Draw the machine, if the Snapshot contains it."""
    target = machine.target_of(snapshot)
    if target is None:
        return
    st.markdown("##### Mesh on the machine")
    st.markdown(plain(target.sentence))
    names = machine.axes(snapshot)
    label = "Color by the index along"
    axis = kept_field.choose(label, names, "torus_axis", format_func=plain, label_visibility="visible")
    render.show(machine.blocks(snapshot, target, axis))
