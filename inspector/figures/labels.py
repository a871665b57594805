"""Text for figures: escaping, cutting, and the width that it takes.

Names that come from files or models are text, never markup. Escape everything that goes into a figure.
"""

import functools
import html
import textwrap
import unicodedata

from inspector.text.printable import printable

# The fonts of saved pictures: at most as wide as Arial, in which `arial_px` measures, if one is installed.
FONTS = "Source Sans Pro, Arial, Liberation Sans, DejaVu Sans Condensed, Open Sans, sans-serif"
# Average width of a character in ems: that of Open Sans, Plotly's font. Streamlit's Source Sans is
# narrower, so text that fits by this estimate fits in both.
_EM_PER_CHARACTER = 0.57
# Widths of characters in ems, rounded up from those of Arial. Source Sans is a tenth narrower.
_NARROW, _WIDE = frozenset(" !'(),-./:;I[]\\`fijlrt|·\u00a0"), frozenset("mwMW%@→…")


def escape(text: str) -> str:
    """Return the text so that Plotly draws it literally: no tags, entities, formulas or control codes."""
    return html.escape(printable(text), quote=False).replace("$", "&#36;")


def short_path(path: str, characters: int) -> str:
    """Cut the front of a path to at most `characters`, at a `/` if one is near."""
    if len(path) <= characters:
        return path
    kept = path[len(path) - characters + 1 :]
    slash = kept.find("/")
    return "…" + (kept[slash:] if 0 <= slash < len(kept) // 2 else kept)


def middle_cut(path: str, characters: int) -> str:
    """Cut the middle of a path to at most `characters`; layers differ in the front, leaves at the end."""
    if len(path) <= characters:
        return path
    tail = max((characters - 1) * 2 // 5, 0)
    return path[: max(characters - 1 - tail, 0)] + "…" + path[len(path) - tail :]


def cut(text: str, characters: int) -> str:
    """Cut the end of a text to at most `characters`."""
    return text if len(text) <= characters else text[: max(characters - 1, 0)] + "…"


def wrapped(text: str, characters: int, most_lines: int) -> list[str]:
    """Wrap a text to lines of at most `characters`; what exceeds `most_lines` is cut."""
    lines = textwrap.wrap(text, characters, break_on_hyphens=False) or [""]
    kept = lines[:most_lines]
    if len(lines) > most_lines:
        kept[-1] = cut(kept[-1] + "…", characters)
    return kept


def width_px(text: str, size_px: float) -> float:
    """Estimate the width of a text that is not escaped; of several lines, the widest."""
    return max(map(len, text.split("\n"))) * size_px * _EM_PER_CHARACTER


def arial_px(text: str, size_px: float) -> float:
    """Return the width of one line in Arial, by its characters: narrower than `width_px` for most texts."""
    return size_px * sum(map(_em, text))


def wrapped_px(text: str, room_px: float, size_px: float) -> list[str]:
    """Wrap a text at its spaces to lines of this width in Arial; a longer word is broken."""
    lines = [""]
    for word in text.split():
        if lines[-1] and arial_px(f"{lines[-1]} {word}", size_px) > room_px:
            lines.append("")
        text = f" {word}" if lines[-1] else word
        for character in [text] if arial_px(text, size_px) <= room_px else text:
            if lines[-1] and arial_px(lines[-1] + character, size_px) > room_px:
                lines.append("")
            lines[-1] += character
    return lines


@functools.lru_cache(4096)
def _em(character: str) -> float:
    if character in _NARROW:
        return 0.3
    if character in _WIDE:
        return 0.9
    if not character.isascii() and unicodedata.east_asian_width(character) in "WF":
        return 1.0
    return 0.7 if character.isupper() else 0.56


def height_px(text: str, size_px: float) -> float:
    """Estimate the height of a text of one or more lines."""
    return (text.count("\n") + 1) * size_px * 1.3


def fitting(room_px: float, size_px: float) -> int:
    """Return the number of characters that fit into this width."""
    return int(room_px / (size_px * _EM_PER_CHARACTER))


def lines(text: str) -> str:
    """Escape a text and turn its line ends into those of Plotly."""
    return "<br>".join(escape(line) for line in text.split("\n"))
