"""What macOS leaves in folders and archives beside the files that somebody meant."""

from __future__ import annotations

from collections.abc import Sequence

_FOLDER = "__MACOSX"
_FILE = ".DS_Store"
_PREFIX = "._"  # of a file that has the attributes of another, whose name follows


def is_litter(parts: Sequence[str]) -> bool:
    """Whether the last of a path's parts is such a file or folder, or any is such a folder."""
    last = parts[-1] if parts else ""
    return _FOLDER in parts or last == _FILE or last.startswith(_PREFIX)
