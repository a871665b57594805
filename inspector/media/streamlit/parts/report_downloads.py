"""The buttons that download a report: HTML, Markdown, or one picture."""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from inspector.machines.hardware import Chip
from inspector.media import report
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import downloads, picture_buttons
from inspector.media.streamlit.session import screenshot_mode
from inspector.records.snapshot import Snapshot

_FORMS = {
    ".html": ("HTML", "text/html", "One file of 5 MB with interactive figures; opens offline."),
    ".md": ("Markdown", "text/markdown", "A short summary for a pull request."),
}


def show(
    pins: Sequence[tuple[str, Snapshot]],
    chip: Chip | None = None,
    *,
    key: str = "report",
    baseline: int = 0,
) -> None:
    """Draw the buttons. Memory and time are modelled on `chip`; `baseline` is the index of a pin."""
    if not pins:
        return
    pins = [pins[baseline], *pins[:baseline], *pins[baseline + 1 :]]
    st.caption("Report" + (f" (baseline: {plain(pins[0][0])})" if pins[1:] else ""))
    with st.container(horizontal=True, gap="small"):
        for suffix, (label, mime, meaning) in _FORMS.items():
            downloads.draw(
                label,
                partial(report.content, pins, suffix, chip),
                f"sharding-report{suffix}",
                f"{key}{suffix}",
                mime=mime,
                type="secondary",
                help=f"{meaning} Takes a few seconds.",
            )
    make = partial(report.picture, pins, chip, screenshot_mode.WIDTH_PX)
    picture_buttons.draw(make, f"{key}:picture", "sharding-comparison")
