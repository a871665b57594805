"""The board, or one Snapshot, as a file for a review: HTML, Markdown, and the whole board as a picture."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
import streamlit as st

from inspector.checks import audit
from inspector.core.snapshot import Snapshot
from inspector.machines.hardware import Chip
from inspector.media import report
from inspector.media.streamlit import picture_buttons
from inspector.media.streamlit.menu import menu
from inspector.media.streamlit.plain_text import plain

_FORMS = {
    ".html": ("HTML", "text/html", "Opens offline with figures to zoom into and hover over; 5 MB."),
    ".md": ("Markdown", "text/markdown", "For a pull request: short, the difference first."),
}


def show(
    pins: Sequence[tuple[str, Snapshot]],
    chip: Chip | None = None,
    *,
    key: str = "report",
    baseline: int = 0,
) -> None:
    """A menu with the files; each is made when it is clicked.

    Args:
      pins: names and Snapshots, one or several.
      chip: what memory and time are modelled on.
      baseline: the place of the one that the others are held against.
    """
    pins = [*pins[baseline : baseline + 1], *pins[:baseline], *pins[baseline + 1 :]]
    with menu(
        "Report",
        ":material/description:",
        f"{key}:menu",
        help="One file for a reviewer: HTML, Markdown, or a picture.",
    ) as drawer:
        if not drawer.open or not pins:
            return
        names = ", ".join(name for name, _ in pins)
        st.caption(
            f"Of {plain(names)}" + (f"; {plain(pins[0][0])} is the baseline." if pins[1:] else ".")
        )
        with st.container(horizontal=True, gap="small"):
            for suffix, (label, mime, meaning) in _FORMS.items():
                st.download_button(
                    label,
                    data=lambda suffix=suffix: report.content(pins, suffix, chip),
                    file_name=f"sharding-report{suffix}",
                    mime=mime,
                    key=f"{key}{suffix}",
                    icon=":material/download:",
                    on_click="ignore",
                    help=f"{meaning} Takes a few seconds.",
                )
        st.caption("The whole as a picture")
        picture_buttons.draw(lambda: _board_picture(pins, chip), f"{key}:picture", "sharding-board")


def _board_picture(pins: Sequence[tuple[str, Snapshot]], chip: Chip | None) -> go.Figure:
    # Not on top: the pages start without what only a report needs.
    from inspector.media.report.board_picture import board_picture

    return board_picture([(name, audit.audited(found)) for name, found in pins], chip)
