"""Numbers and names as short text, the same in every picture.

What comes from a file or a model is text, never markup: `escape` everything that goes into a figure.
"""

from __future__ import annotations

import unicodedata

# Average advance of a character in ems. Streamlit's Source Sans is narrower, Plotly's Open Sans this
# wide, so that a text that is found to fit does fit in both.
_EM_PER_CHARACTER = 0.57

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})


def escape(text: str) -> str:
    """Text as Plotly draws it literally: no tags, entities, formulas or control characters."""
    if not text.isprintable():
        text = "".join("\N{REPLACEMENT CHARACTER}" if _is_control(one) else one for one in text)
    return text.translate(_MARKUP)


def short_path(path: str, characters: int) -> str:
    """A path with its front cut off, at a `/` where one is near, to at most `characters`."""
    if len(path) <= characters:
        return path
    kept = path[len(path) - characters + 1 :]
    slash = kept.find("/")
    return "…" + (kept[slash:] if 0 <= slash < len(kept) // 2 else kept)


def middle_cut(path: str, characters: int) -> str:
    """A path with its middle cut out to at most `characters`: both ends tell layers and leaves apart."""
    if len(path) <= characters:
        return path
    tail = max((characters - 1) * 2 // 5, 0)
    return path[: max(characters - 1 - tail, 0)] + "…" + path[len(path) - tail :]


def cut(text: str, characters: int) -> str:
    """A text with its end cut off to at most `characters`."""
    return text if len(text) <= characters else text[: max(characters - 1, 0)] + "…"


def width_px(text: str, size_px: float) -> float:
    """About how wide a line of text is drawn; of several lines the widest. `text` is not escaped."""
    return max(map(len, text.split("\n"))) * size_px * _EM_PER_CHARACTER


def height_px(text: str, size_px: float) -> float:
    """About how high a text of one or more lines is drawn."""
    return (text.count("\n") + 1) * size_px * 1.3


def lines(text: str) -> str:
    """Escaped text whose line ends become Plotly's."""
    return "<br>".join(escape(line) for line in text.split("\n"))


def _is_control(one: str) -> bool:
    return unicodedata.category(one) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
