"""Screenshot mode: the page without its controls, as wide as a slide, with what it is of written on it.

It is on while the URL says `screenshot=1`, so that a link opens the page ready to be photographed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.media.streamlit import page_width
from inspector.media.streamlit.plain_text import plain
from inspector.sections import provenance

PARAMETER = "screenshot"
WIDTH_PX = 1440  # a slide of 16:10, at one pixel a pixel
SIDE_PX = 40  # left and right of the content
# Of a page 1440 wide the content is 1290 wide; a text found to fit in this fits in a page somewhat narrower.
WITHOUT_SIDEBAR_PX = 1140

# What a person works with and a reader of the picture does not need, by Streamlit's test ids.
_CONTROLS = (
    *("stSidebar", "stHeader", "stToolbar", "stStatusWidget", "stExpandSidebarButton"),
    *("stButton", "stDownloadButton", "stLinkButton", "stPageLink", "stPopover", "stPopoverButton"),
    *("stSelectbox", "stMultiSelect", "stTextInput", "stNumberInput", "stSlider", "stCheckbox"),
    *("stButtonGroup", "stSegmentedControl", "stPills", "stRadio", "stFileUploader", "stToast"),
    *("stHeaderActionElements", "stTooltipIcon"),
)
_HIDDEN = "controls_of_"
_LEAVE = "leave_screenshot_mode"

# Constants only: nothing that comes from a file or a person is ever put into it.
_STYLE = f"""<style>
{", ".join(f'[data-testid="{name}"]' for name in _CONTROLS)} {{ display: none !important; }}
[class*="st-key-{_HIDDEN}"] {{ display: none !important; }}
html {{ font-size: 14px; }}
[data-testid="stExpander"]:has(details:not([open])) {{ display: none !important; }}
.stTabs [role="tablist"] {{ display: none !important; }}
[data-testid="stMainBlockContainer"] {{
  width: {WIDTH_PX}px; min-width: {WIDTH_PX}px; max-width: {WIDTH_PX}px;
  padding: 1.2rem {SIDE_PX}px 1rem;
}}
[data-testid="stMain"] {{ align-items: flex-start; }}
/* The page itself is as high as its content, and scrolls: what photographs a whole page cuts nothing off. */
html, body, #root, [data-testid="stApp"], [data-testid="stAppViewContainer"], [data-testid="stMain"] {{
  position: static; height: auto !important; min-height: 0; overflow: visible !important;
}}
/* The way out shows for a moment, then while the pointer or the keyboard is on it: it is on no picture. */
.st-key-{_LEAVE} {{ position: fixed; top: 0.4rem; right: 0.6rem; width: auto; z-index: 999; }}
.st-key-{_LEAVE} [data-testid="stButton"] {{
  display: block !important; opacity: 0; animation: fade_{_LEAVE} 4s;
}}
@keyframes fade_{_LEAVE} {{ from, 75% {{ opacity: 0.7; }} to {{ opacity: 0; }} }}
.st-key-{_LEAVE} [data-testid="stButton"]:hover,
.st-key-{_LEAVE} [data-testid="stButton"]:focus-within {{ opacity: 1 !important; }}
@media print {{ .st-key-{_LEAVE} {{ display: none; }} }}
</style>"""


def on() -> bool:
    """Whether this page is drawn for a picture."""
    return st.query_params.get(PARAMETER) == "1"


def query() -> dict[str, str]:
    """What the mode has in the URL."""
    return {PARAMETER: "1"} if on() else {}


def without(fields: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a URL that are not the mode's."""
    return {key: value for key, value in fields.items() if key != PARAMETER}


def problem() -> str | None:
    """What is wrong with the mode in the URL, in a sentence; None if nothing is."""
    value = st.query_params.get(PARAMETER)
    return None if value in (None, "1") else f"screenshot is {value!r}, but can only be 1"


def draw_button() -> None:
    """The button that turns the mode on."""
    st.button(
        "Screenshot",
        key="enter_screenshot_mode",
        icon=":material/photo_camera:",
        type="tertiary",
        on_click=_enter,
        help=f"Hide all controls, fix the width at {WIDTH_PX} pixels, and write on the page what it is "
        "of. ✕ at the top right leads back.",
    )


def controls(name: str, **settings: Any) -> Any:
    """A container, as `st.container`, that goes with all its room while the mode is on.

    What is drawn in it keeps its state, which a widget that is left out would lose.
    """
    return st.container(key=f"{_HIDDEN}{name}", **settings)


def content_px(narrow_px: int) -> int:
    """The width of a page's content without the sidebar, as far as it is known.

    Args:
      narrow_px: what `page_width.content_px` says.
    """
    if on():
        return WIDTH_PX - 2 * SIDE_PX
    return narrow_px if narrow_px < page_width.USUAL_PX else WITHOUT_SIDEBAR_PX


def hide_controls() -> None:
    """Draw the rest of the page without its controls, with a small way out; nothing if the mode is off."""
    if not on():
        return
    st.html(_STYLE)
    st.button(
        "Leave screenshot mode",
        key=_LEAVE,
        icon=":material/close:",
        type="tertiary",
        on_click=_leave,
        shortcut="Esc",
    )


def write_provenance(pins: Sequence[tuple[str, Snapshot]]) -> None:
    """The line on the picture that says what it is of; nothing if the mode is off.

    Args:
      pins: a name, empty where there is but one layout, and what was found of it.
    """
    if not on():
        return
    said = [provenance.line(pins[0][1])] if len(pins) == 1 else provenance.lines(pins)
    st.caption("  \n".join(f":small[{plain(one)}]" for one in said))


def _enter() -> None:
    st.query_params[PARAMETER] = "1"


def _leave() -> None:
    st.query_params.pop(PARAMETER, None)
