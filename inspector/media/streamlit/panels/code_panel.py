"""The button and the dialog that show the layout as a runnable script."""

from __future__ import annotations

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.layout import Layout
from inspector.layout.script import script
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import downloads, open_dialog
from inspector.model import ModelEntry

HEIGHT_PX = 520


_DIALOG = "code"


def draw_button(layout: Layout) -> None:
    """Draw the button, and the dialog if it is open."""
    open_dialog.draw_button("Code", ":material/code:", _DIALOG, key="code_button")
    if open_dialog.is_open(_DIALOG):
        st.dialog("Code", width="large", icon=":material/code:", on_dismiss=open_dialog.close)(
            show
        )(layout)


def show(layout: Layout) -> None:
    """Draw the script with its download, or why there is none."""
    try:
        text = script(layout)
    except InvalidInput as error:
        st.info(plain(f"{error}."), icon=":material/code_off:")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(plain(_caption(layout.entry)), width="stretch")
        name = _file_name(layout.entry)
        downloads.draw(
            "Download", text, name, "code_download", mime="text/x-python", type="secondary"
        )
    # The container scrolls by keyboard, because it has the copy button, which takes the focus.
    with st.container(height=HEIGHT_PX, border=False):
        st.code(text, language="python", wrap_lines=True)


def _caption(entry: ModelEntry) -> str:
    needs = "JAX, Flax, Optax and NumPy"
    if entry.own:
        needs = f"JAX, Flax, NumPy and {entry.name.partition(':')[0]}"
    return (
        "A Flax script that trains the model in this layout, and prints the sharding of every array and the "
        f"losses. It needs {needs}."
    )


def _file_name(entry: ModelEntry) -> str:
    """Return a file name that differs from the module of a custom model."""
    if not entry.own:
        return f"{entry.name}.py"
    return f"train_{entry.name.replace('.', '_').replace(':', '_')}.py"
