"""The buttons that download a report: HTML, Markdown, or one picture."""

from collections.abc import Sequence
from functools import partial

import plotly.graph_objects as go
import streamlit as st

from inspector.answers import glance, provenance
from inspector.compare.compared import compared
from inspector.compare.verdict import headline
from inspector.figures import stamp
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
    picture_buttons.draw(lambda: _picture(pins, chip), f"{key}:picture", "sharding-comparison")


def _picture(pins: Sequence[tuple[str, Snapshot]], chip: Chip | None) -> go.Figure:
    """Return the layouts at a glance, as wide as a slide, with their verdict and their provenance."""
    figure = glance.figure(glance.of(pins, chip), screenshot_mode.WIDTH_PX)
    verdict = [headline(compared(pins, chip)).replace("`", "")] if len(pins) > 1 else []
    return stamp.stamped_with(figure, [*verdict, *provenance.lines(pins)])
