"""Screenshot mode: the page without controls, as wide as a slide, with its provenance.

The URL parameter `screenshot=1` turns it on, so a link can open a page in this mode.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from inspector.answers import subject
from inspector.media.streamlit.page import buttons, page_files, page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.records.snapshot import Snapshot

PARAMETER = "screenshot"
WIDTH_PX = 1440  # a slide of 16:10
SIDE_PX = 40  # left and right of the content
# A page 1440 pixels wide has 1290 pixels for its content. The margin allows for narrower pages.
WITHOUT_SIDEBAR_PX = 1140

_HIDDEN = "controls_of_"
_LEAVE = "leave_screenshot_mode"
_ENTERED = "screenshot_mode_entered"


def on() -> bool:
    """Return whether the mode is on."""
    return st.query_params.get(PARAMETER) == "1"


def query() -> dict[str, str]:
    """Return the URL parameters of the mode."""
    return {PARAMETER: "1"} if on() else {}


def without(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the URL parameters without those of the mode."""
    return {key: value for key, value in fields.items() if key != PARAMETER}


def problem() -> str | None:
    """Return why the URL parameter is invalid, or None."""
    value = st.query_params.get(PARAMETER)
    return None if value in (None, "1") else f"screenshot is {value!r}, but must be 1"


def draw_button() -> None:
    """Draw the button that turns the mode on."""
    buttons.draw(
        "Screenshot",
        "enter_screenshot_mode",
        "photo_camera",
        _enter,
        type="tertiary",
        help=f"Hide all controls and make the page {WIDTH_PX} pixels wide for a slide. Leave with Esc.",
    )


def controls(name: str, **settings: Any) -> Any:
    """Return a container that is hidden while the mode is on. Its widgets keep their state."""
    return st.container(key=f"{_HIDDEN}{name}", **settings)


def content_px() -> int:
    """Return the width of the content of a page without a sidebar."""
    if on():
        return WIDTH_PX - 2 * SIDE_PX
    narrow_px = page_width.content_px()
    return narrow_px if narrow_px < page_width.USUAL_PX else WITHOUT_SIDEBAR_PX


def hide_controls() -> None:
    """Hide the controls of the page and draw the exit button, if the mode is on."""
    if on():
        st.html(page_files.style("screenshot_mode.css"))
        buttons.draw(
            "Leave screenshot mode",
            _LEAVE,
            "close",
            lambda: st.query_params.pop(PARAMETER, None),
            type="tertiary",
            shortcut="Esc",
        )


def write_provenance(pins: Sequence[tuple[str, Snapshot]]) -> None:
    """Draw the provenance of the page, if the mode is on."""
    if on():
        lines = [subject.source_line(pins[0][1])] if len(pins) == 1 else subject.source_lines(pins)
        st.caption("  \n".join(f":small[{plain(line)}]" for line in lines))


def entered() -> int:
    """Return how often the session turned the mode on. A menu with this number in its key then is closed."""
    return int(st.session_state.get(_ENTERED, 0))


def _enter() -> None:
    st.session_state[_ENTERED] = entered() + 1
    st.query_params[PARAMETER] = "1"
