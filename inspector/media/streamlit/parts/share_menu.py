"""The menu *Share*: the link of the page, its pictures and its files."""

from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import urlencode

import streamlit as st

from inspector.machines.hardware import Chip
from inspector.media import report
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import downloads, open_dialog
from inspector.media.streamlit.session import screenshot_mode
from inspector.media.streamlit.streamlit_internals import DeltaGenerator
from inspector.records.snapshot import Snapshot


def show(name: str, snapshot: Snapshot, file_name: str, chip: Chip | None) -> Callable[[], None]:
    """Draw the menu. Return what draws the link in it, once the URL of the page is written."""
    with popover("share"):
        place = st.empty()
        screenshot_mode.draw_button()
        show_reports([(name, snapshot)], chip, key="layout_report")
        downloads.draw_snapshot(
            snapshot,
            file_name,
            "download_snapshot",
            "The data of this page as Snapshot JSON, the same as `inspect` writes.",
        )
    return lambda: _draw_link(place)


def popover(key: str) -> DeltaGenerator:
    """Return the place of the menu. It closes when a dialog opens, and in the screenshot mode."""
    key = f"{key}:{screenshot_mode.entered()}:{open_dialog.name()}"
    return st.popover("Share", icon=":material/share:", type="tertiary", key=key)


def _draw_link(place: DeltaGenerator) -> None:
    """Draw the URL of the page with the button that copies it."""
    query = urlencode(screenshot_mode.without(st.query_params.to_dict()), safe=",")
    url = st.context.url or ""
    with place.container(gap="xxsmall"):
        st.caption("Link to this page")
        st.code(f"{url}?{query}" if query else url, language=None, wrap_lines=True)


_FORMS = {
    ".html": ("HTML", "text/html", "One file of 5 MB with interactive figures; opens offline."),
    ".md": ("Markdown", "text/markdown", "A short summary for a pull request."),
}


def show_reports(
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
            downloads.draw_file(
                label,
                partial(report.content, pins, suffix, chip),
                f"sharding-report{suffix}",
                f"{key}{suffix}",
                mime=mime,
                type="secondary",
                help=f"{meaning} Takes a few seconds.",
            )
    make = partial(report.picture, pins, chip, screenshot_mode.WIDTH_PX)
    downloads.draw_picture(make, f"{key}:picture", "sharding-comparison")
