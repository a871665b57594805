"""Text from files on a person's terminal."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text with everything escaped that would leave its line or move the cursor."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
