"""Text from a URL, a file or a field, shown as text: Streamlit reads Markdown wherever it shows text."""

from __future__ import annotations

import re

# Streamlit makes links of bare addresses even where their characters are escaped; an invisible word
# joiner inside them prevents it. Names of icons and of its logo become pictures in the same way.
_ADDRESS = re.compile(
    r"(https?:(?=//)|www(?=\.)|(?<=\w)@(?=\w)|:(?=material/|streamlit:))", re.IGNORECASE
)
_WORD_JOINER = "\u2060"
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+.!|<>$:~-])")


def plain(text: str) -> str:
    """The text with everything escaped that Markdown, LaTeX or Streamlit's directives would read,
    and no address made a link."""
    unlinked = _ADDRESS.sub(rf"\1{_WORD_JOINER}", text.replace("\n", " "))
    return _MARKDOWN.sub(r"\\\1", unlinked)
