"""Download buttons: a figure as PNG and SVG, a Snapshot, or another file; and the menu *Share* with them.

A click does not rerun the page.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

import plotly.graph_objects as go
import streamlit as st

from inspector.figures import stamp
from inspector.machines.hardware import Chip
from inspector.media import picture_file, report
from inspector.media.streamlit.page import buttons
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import screenshot_mode
from inspector.media.streamlit.streamlit_internals import DeltaGenerator
from inspector.records import snapshot as snapshots
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput
from inspector.text.formatting import capitalized
from inspector.text.printable import file_name

_PROBLEMS = "picture_problems"  # by key of the picture: why the last download failed


def draw_dialog(
    figures: Mapping[str, tuple[go.Figure, str]],
    lines: Callable[[], Sequence[str]],
    key: str = "pictures",
) -> None:
    """Draw the button that opens a dialog with PNG and SVG of each figure.

    `figures` has each figure by key with its description, which is also the file name. `lines` returns the
    lines of provenance on each picture.
    """
    with st.container(horizontal=True, horizontal_alignment="right"):
        buttons.draw_with_dialog(
            "Pictures",
            "image",
            "Download pictures",
            lambda: _show_buttons(figures, lines),
            key,
            key=key,
            help="Download these figures as PNG or SVG, with their provenance.",
        )


def _show_buttons(figures: Mapping[str, tuple[go.Figure, str]], lines: Callable[[], Sequence[str]]) -> None:
    for key, (figure, description) in figures.items():
        st.caption(plain(description))
        draw_picture(partial(_stamped, figure, lines), f"picture:{key}", description)


def _stamped(figure: go.Figure, lines: Callable[[], Sequence[str]]) -> go.Figure:
    return stamp.stamped_with(figure, lines())


def draw_picture(make: Callable[[], go.Figure], key: str, name: str) -> None:
    """Draw a PNG and an SVG button. `make` returns the figure when one of them is clicked."""
    missing = picture_file.why_none()
    if missing is not None:
        st.caption(plain(f"{capitalized(missing)}."))
        return
    # The picture is made outside the script run, so both share this dictionary.
    problems: dict[str, str] = st.session_state.setdefault(_PROBLEMS, {})
    dark = st.context.theme.type == "dark"
    with st.container(horizontal=True, gap="small"):
        for form, mime in picture_file.FORMATS.items():
            draw_file(
                form.upper(),
                partial(_picture, make, form, dark, problems, key),
                f"{file_name(name)}.{form}",
                f"{key}:{form}",
                mime=mime,
                type="secondary",
                help="Rendered by the browser of this machine in a few seconds.",
            )
    if key in problems:
        st.caption(f":material/error: The last picture failed: {plain(problems[key])}.")


def _picture(
    make: Callable[[], go.Figure], form: str, dark: bool, problems: dict[str, str], key: str
) -> bytes:
    problems.pop(key, None)
    try:
        return picture_file.picture(make(), form, dark=dark)
    except InvalidInput as error:
        problems[key] = str(error)
        raise


def draw_file(label: str, data: str | Callable[[], Any], file_name: str, key: str, **settings: Any) -> None:
    """Draw a button for one file, which is JSON unless `mime` says otherwise."""
    defaults = {"mime": "application/json", "type": "tertiary", "icon": ":material/download:"}
    st.download_button(label, data, file_name, key=key, on_click="ignore", **(defaults | settings))


def draw_snapshot(snapshot: Snapshot, file_name: str, key: str, help: str) -> None:
    """Draw the button for a Snapshot."""
    draw_file("Snapshot", lambda: snapshots.dumps(snapshot), file_name, key, help=help)


def show_menu(name: str, snapshot: Snapshot, file_name: str, chip: Chip | None) -> Callable[[], None]:
    """Draw the menu. Return what draws the link in it, once the URL of the page is written."""
    with share_popover("share"):
        place = st.empty()
        screenshot_mode.draw_button()
        show_reports([(name, snapshot)], chip, key="layout_report")
        draw_snapshot(
            snapshot,
            file_name,
            "download_snapshot",
            "The data of this page as Snapshot JSON, the same as `inspect` writes.",
        )
    return lambda: _draw_link(place)


def share_popover(key: str) -> DeltaGenerator:
    """Return the place of the menu. It closes when a dialog opens, and in the screenshot mode."""
    key = f"{key}:{screenshot_mode.entered()}:{buttons.open_dialog()}"
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
    """Draw those of reports. Memory and time are modelled on `chip`; `baseline` is the index of a pin."""
    if not pins:
        return
    pins = [pins[baseline], *pins[:baseline], *pins[baseline + 1 :]]
    st.caption("Report" + (f" (baseline: {plain(pins[0][0])})" if pins[1:] else ""))
    with st.container(horizontal=True, gap="small"):
        for suffix, (label, mime, meaning) in _FORMS.items():
            draw_file(
                label,
                partial(report.content, pins, suffix, chip),
                f"sharding-report{suffix}",
                f"{key}{suffix}",
                mime=mime,
                type="secondary",
                help=f"{meaning} Takes a few seconds.",
            )
    make = partial(report.picture, pins, chip, screenshot_mode.WIDTH_PX)
    draw_picture(make, f"{key}:picture", "sharding-comparison")
