"""PNG and SVG of a figure: drawn when they are clicked, with what they are of written on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import plotly.graph_objects as go
import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.figures import picture_file, stamp
from inspector.media.printable import file_name
from inspector.media.streamlit.menu import menu
from inspector.media.streamlit.plain_text import plain

_REFUSED_KEY = "picture_refused"  # why the last picture of this session was not drawn


def show(
    figures: Mapping[str, tuple[go.Figure, str]],
    lines: Callable[[], Sequence[str]],
    key: str = "pictures",
) -> None:
    """A small menu under figures; what is in it is made when it is opened.

    Args:
      figures: by key, each with its words, which name the file, too.
      lines: gives what is written on each picture.
      key: of the menu.
    """
    with (
        st.container(horizontal=True, horizontal_alignment="right"),
        menu(
            "Pictures",
            ":material/image:",
            key,
            help="Each of these figures as PNG or SVG, with what it is of, versions and date on it.",
        ) as drawer,
    ):
        if not drawer.open:
            return
        for drawn_key, (figure, words) in figures.items():
            if len(figures) > 1:
                st.caption(plain(words))
            draw(partial(_stamped, figure, lines), f"picture:{drawn_key}", words)


def _stamped(figure: go.Figure, lines: Callable[[], Sequence[str]]) -> go.Figure:
    return stamp.stamped_with(figure, lines())


def draw(make: Callable[[], go.Figure], key: str, name: str) -> None:
    """A button each for PNG and SVG of a figure that already says what it is of.

    Args:
      make: gives the figure, when one of them is clicked.
    """
    missing = picture_file.why_none()
    if missing is not None:
        st.caption(plain(missing[:1].upper() + missing[1:] + "."))
        return
    # What is made runs beside the page's script, which can only be told in what both have.
    refused: dict[str, str] = st.session_state.setdefault(_REFUSED_KEY, {})
    dark = st.context.theme.type == "dark"
    with st.container(horizontal=True, gap="small"):
        for form, mime in picture_file.FORMATS.items():
            st.download_button(
                form.upper(),
                data=_making(make, form, dark, refused, key),
                file_name=f"{file_name(name)}.{form}",
                mime=mime,
                key=f"{key}:{form}",
                icon=":material/download:",
                on_click="ignore",
                help="Takes a few seconds: a browser on this machine draws it, and nothing is fetched.",
            )
    if key in refused:
        st.caption(f":material/error: The last one failed: {plain(refused[key])}.")


def _making(
    make: Callable[[], go.Figure], form: str, dark: bool, refused: dict[str, str], key: str
) -> Callable[[], bytes]:
    def made() -> bytes:
        refused.pop(key, None)
        try:
            return picture_file.picture(make(), form, dark=dark)
        except InvalidInput as refusal:
            refused[key] = str(refusal)
            raise

    return made
