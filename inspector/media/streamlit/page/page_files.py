"""Style sheets and scripts of this package."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def text(name: str) -> str:
    """Return the text of a file next to this module."""
    return resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def style(name: str) -> str:
    """Return a style sheet as an HTML element."""
    return f"<style>{text(name)}</style>"
