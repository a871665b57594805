"""The button and the dialog that show the layout as a runnable script."""

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.layout import Layout
from inspector.layout.script import script
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import downloads, open_dialog

HEIGHT_PX = 520


def draw_button(layout: Layout, dialog: str = "code") -> None:
    """Draw the button, and the dialog if it is open.

    dialog: identifies the dialog on a page with the code of several layouts.
    """
    content, key = lambda: show(layout), f"{dialog}_button"
    open_dialog.draw("Code", "code", "Code", content, dialog, key=key, width="large")


def show(layout: Layout) -> None:
    """Draw the script with its download, or why there is none."""
    try:
        text = script(layout)
    except InvalidInput as error:
        st.info(plain(f"{error}."), icon=":material/code_off:")
        return
    name, needs = layout.entry.name, "JAX, Flax, Optax and NumPy"
    file_name = f"{name}.py"
    if layout.entry.own:
        needs = f"JAX, Flax, NumPy and {name.partition(':')[0]}"
        file_name = f"train_{name.replace('.', '_').replace(':', '_')}.py"  # unlike its module
    with st.container(horizontal=True, vertical_alignment="center"):
        caption = (
            "A Flax script that trains the model in this layout, and prints the sharding of every array and "
            f"the losses. It needs {needs}."
        )
        st.caption(plain(caption), width="stretch")
        settings = {"mime": "text/x-python", "type": "secondary"}
        downloads.draw("Download", text, file_name, "code_download", **settings)
    # The container scrolls by keyboard, because it has the copy button, which takes the focus.
    with st.container(height=HEIGHT_PX, border=False):
        st.code(text, language="python", wrap_lines=True)
