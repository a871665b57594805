"""Escape text for Streamlit, which renders Markdown in every text."""

import re

from inspector.text.printable import EMOJI_NAME, one_line

# Streamlit makes links of bare addresses even where their characters are escaped; an invisible word
# joiner inside them prevents it. Names of emoji (`:tada:`), of icons and of its logo become pictures in the
# same way. No emoji is called like a chip, so the text of a target (`tpu:v5e:4x4`) can be copied from a page.
_ADDRESS = re.compile(
    rf"(https?:(?=//)|www(?=\.)|(?<=\w)@(?=\w)|:(?=material/|streamlit:|{EMOJI_NAME}:))",
    re.IGNORECASE,
)
_WORD_JOINER = "\u2060"
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+.!|<>$:~-])")


def plain(text: str) -> str:
    """Return text from a URL, file or field so that Streamlit shows it unchanged.

    Markdown, LaTeX, directives of Streamlit, addresses and names of emoji are escaped. Characters that move,
    hide or reorder others are replaced.
    """
    unlinked = _ADDRESS.sub(rf"\1{_WORD_JOINER}", one_line(text))
    return _MARKDOWN.sub(r"\\\1", unlinked)
