"""The machine with the mesh laid on it: the picture, what the machine is, and each mesh axis's links."""

from __future__ import annotations

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.figures.torus_map import torus_map
from inspector.machines import targets
from inspector.machines.links import NoLink
from inspector.machines.mesh_links import links_of
from inspector.machines.targets import Target
from inspector.media.streamlit import chart, page_width
from inspector.media.streamlit.plain_text import plain


def show(found: Snapshot) -> None:
    """The picture beside the sentences; nothing where the Snapshot is not of a machine."""
    if found.mesh is None or found.source.target is None:
        return
    target = _target(found)
    names = [axis.name for axis in found.mesh.axes if axis.size > 1] or [*found.mesh.axis_names]
    if target is None or not names or torus_map(found.mesh) is None:
        return
    st.markdown("##### The mesh on the machine")
    st.markdown(plain(target.sentence))
    if st.session_state.get("torus_axis") not in names:
        st.session_state["torus_axis"] = names[0]
    axis = st.segmented_control(
        "Coloured by the index along",
        names,
        format_func=plain,
        key="torus_axis",
        required=True,
    )
    chart.draw(
        torus_map(found.mesh, highlight_axis=axis, width_px=int(page_width.content_px())),
        "torus_map",
        alt="Chips of the machine at their places, coloured by mesh index",
    )
    links = links_of(found.mesh, target.chip, [(name,) for name in names])
    for (name,), link in links.items():
        kind = "not known" if isinstance(link, NoLink) else link.name
        st.markdown(f"- **{plain(name)}**: {plain(kind)}. {plain(link.assumption)}")


def _target(found: Snapshot) -> Target | None:
    """The machine; None where the Snapshot names none, as one of emulated devices does."""
    try:
        return targets.parse(found.source.target)
    except InvalidInput:
        return None
