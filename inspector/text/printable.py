"""Text from files, made safe to display: no character in it moves, hides or reorders others."""

import re
import unicodedata

_SPACE = re.compile(r"\s+")
# The name of an emoji between its colons, as GitHub and Streamlit read it. The names of chips (v5e, h100,
# tpu7x, gb200) are none.
EMOJI_NAME = r"(?!(?:tpu|gb|[abhv])\d\w*:)[\w+-]+"
_UNPRINTABLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def printable(text: str) -> str:
    """Return the text with U+FFFD for each control or formatting character, line ends included.

    Spaces of other widths and no-break spaces become plain spaces.
    """
    if text.isprintable():
        return text
    return "".join(map(_printable, text))


def _printable(character: str) -> str:
    category = unicodedata.category(character)
    return " " if category == "Zs" else "\N{REPLACEMENT CHARACTER}" if category in _UNPRINTABLE else character


def one_line(text: str) -> str:
    """Return the printable text on one line: runs of white space become one space."""
    spaced = _SPACE.sub(" ", text)
    return spaced if spaced.isprintable() else printable(spaced)


def file_name(text: str) -> str:
    """Return a file name of letters, digits and dashes, without a suffix."""
    kept = "".join(
        character if character.isascii() and character.isalnum() else "-" for character in text.lower()
    )
    return "-".join(part for part in kept.split("-") if part)[:60] or "figure"
