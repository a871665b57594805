"""Text fields of the sidebar in the browser: they take effect while typed, a new rule has the focus."""

import re
from collections.abc import Mapping, Sequence

from inspector import layout as layouts
from inspector.media.streamlit.page import page_files
from inspector.model import ModelEntry


def draw(
    entry: ModelEntry,
    axes: Sequence[str],
    most: int,
    devices: int | None,
    specs: Mapping[str, Sequence[str]],
    new: str | None,
) -> None:
    """Draw the invisible component.

    Args:
      axes: the names of the mesh axes.
      most: the largest number of devices of a mesh.
      devices: the number of devices of the target, all of which a mesh has; None if it has no such number.
      specs: the dimensions of each field with a PartitionSpec, by its key.
      new: the key of the field that gets the focus, or None.
    """
    data = {
        "names": [*entry.logical_axes],
        "axes": [*axes],
        "mostAxes": layouts.MOST_AXES,
        "mostDevices": most,
        "devices": devices,
        "dimensions": {_class(key): len(dimensions) for key, dimensions in specs.items()},
        "focus": None if new is None else _class(new),
    }
    page_files.component("typed_fields")(data=data, key="typed_fields", width=1, height=1)


def _class(key: str) -> str:
    """Return the key of a field as it is in the class of the element."""
    return re.sub(r"[^\w-]", "-", key, flags=re.ASCII)
