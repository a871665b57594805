"""The layout in a file: a layout by itself, or that of a Snapshot."""

from __future__ import annotations

from inspector import layout as layouts
from inspector.core import snapshot, strict_json
from inspector.core.errors import InvalidInput
from inspector.layout import Layout


def read(path: str) -> Layout:
    """Read the layout.

    Raises:
      InvalidInput: the file cannot be read, or there is no layout in it.
    """
    plain = strict_json.read(path)
    if isinstance(plain, dict) and plain.get("format") == snapshot.FORMAT:
        plain = plain.get("layout")
        if plain is None:
            raise InvalidInput(f"{path} is a Snapshot without a layout")
    return layouts.from_json(plain, path)
