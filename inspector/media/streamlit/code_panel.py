"""*Copy as code*: the layout as a script that runs by itself."""

from __future__ import annotations

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.layout.script import script
from inspector.media.streamlit.plain_text import plain
from inspector.model import ModelEntry

HEIGHT_PX = 520


def show(_: Snapshot, layout: Layout | None) -> None:
    """The script with a button to copy it and one to download it; why there is none, where there is none."""
    if layout is None:
        st.info(
            "What made this Snapshot is not known, so there is no code.", icon=":material/code_off:"
        )
        return
    try:
        text = script(layout)
    except InvalidInput as refused:
        st.info(plain(f"{refused}."), icon=":material/code_off:")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(plain(_caption(layout.entry)), width="stretch")
        st.download_button(
            "Download",
            data=text,
            file_name=_file_name(layout.entry),
            mime="text/x-python",
            key="code_download",
            icon=":material/download:",
            on_click="ignore",
        )
    st.code(text, language="python", height=HEIGHT_PX)


def _caption(entry: ModelEntry) -> str:
    needs = "only JAX, Flax, Optax and NumPy"
    if entry.own:
        needs = f"JAX, Flax and NumPy, and {entry.name.partition(':')[0]}, which it imports"
    return (
        f"A Flax script that builds and trains the model in exactly this layout. It needs {needs}, "
        "and prints the sharding of every array and the losses."
    )


def _file_name(entry: ModelEntry) -> str:
    """Not that of the module which the script of a model of one's own imports."""
    if not entry.own:
        return f"{entry.name}.py"
    return f"train_{entry.name.replace('.', '_').replace(':', '_')}.py"
