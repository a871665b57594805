"""The style of Streamlit's own elements where its theme settings cannot change it.

Most of it gives colors a contrast of WCAG 2 AA. Contrasts are those that axe-core measures. `light-dark`
follows the theme that Streamlit shows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import streamlit as st

_SENT = "style_sent"  # in the session, whether a run has sent the style
_STYLE = """<style>
/* Streamlit 1.67 often keeps the sidebar of the Layout page, without its content, on the page that follows:
   when the script ends, it looks for content before it removes that of the page before. */
[data-testid="stSidebar"]:has(
  [data-testid="stSidebarUserContent"] > div > [data-testid="stVerticalBlock"]:empty
) { display: none; }
/* Captions are at 60% of the text color: 3.9 on white. */
[data-testid="stCaptionContainer"] { opacity: 0.8 !important; }
/* Keywords, strings and comments of code: 3.8, 3.0 and 3.6 on the ground of code. */
.token:is(.keyword, .tag, .function, .class-name, .selector) {
  color: light-dark(#0b5cad, #6cb4ff) !important;
}
.token:is(.string, .char, .builtin, .attr-value, .regex) {
  color: light-dark(#106b2e, #6fd68d) !important;
}
.token:is(.comment, .prolog, .doctype, .cdata, .punctuation) {
  color: light-dark(#5b6069, #a3a8b4) !important;
}
.token:is(.number, .boolean, .constant, .symbol, .property) {
  color: light-dark(#8a3a00, #ffb27a) !important;
}
/* Texts of figures in the light theme: 3.8. Plotly writes their color into each text, and changes it with the
   theme; a color in the figure would stay. */
[data-testid="stPlotlyChart"] text[style*="fill: rgb(128, 132, 149)"] { fill: #4b4e58 !important; }
/* White on the primary color of the dark theme: 2.5. Menus and dialogs are outside of the element with
   the theme's color scheme, so they have no primary buttons. */
[data-testid="stBaseButton-primary"]:not(:disabled) { color: light-dark(#ffffff, #0b1420) !important; }
</style>"""


_WORDMARK = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 24" width="200" height="24">'
    '<path fill="#77AADD" d="M1 3h8v8H1z"/><path fill="#EE8866" d="M10 3h8v8h-8z"/>'
    '<path fill="#EEDD88" d="M1 12h8v8H1z"/><path fill="#FFAABB" d="M10 12h8v8h-8z"/>'
    '<text x="26" y="17" font-family="sans-serif" font-size="14" font-weight="600" fill="{}">'
    "Sharding Inspector</text></svg>"
)


def wordmark() -> str:
    """Return the name of the product as SVG, in the text color of the theme."""
    return _WORDMARK.format("#fafafa" if st.context.theme.type == "dark" else "#31333f")


@contextlib.contextmanager
def around_page() -> Iterator[None]:
    """Add the style to the page that the `with` block draws. It takes no room.

    Each element before a figure delays the figure. The browser keeps the style of the last run until this one
    ends, so only the first run of a session sends it before the page.
    """
    if not st.session_state.get(_SENT):
        st.session_state[_SENT] = True
        st.html(_STYLE)
        yield
        return
    try:
        yield
    finally:
        st.html(_STYLE)
