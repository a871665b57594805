"""Describe the request of a job, for the list of jobs and the audit log."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from inspector.core.formatting import mesh_sizes_text
from inspector.layout import Layout, from_json
from inspector.service.engine import Subject

_DIGEST_CHARACTERS = 16  # of SHA-256


def subject_of(payload: Mapping[str, Any]) -> Subject:
    """Return the subject of a payload: its layout, its first layout, or a digest of the whole."""
    layouts = [payload["layout"]] if "layout" in payload else payload.get("layouts") or []
    plain = layouts[0][1] if layouts and isinstance(layouts[0], list) else next(iter(layouts), None)
    if plain is None:
        return Subject(layout=_digest(payload))
    layout = from_json(plain)
    title = layout_title(layout)
    if len(layouts) > 1:
        title += f" and {len(layouts) - 1} more"
        return Subject(title, layout.target, _digest(layouts))
    return Subject(title, layout.target, digest(layout))


def layout_title(layout: Layout) -> str:
    """Return the model and the mesh of a layout."""
    return f"{layout.model}, {mesh_sizes_text(layout.axis_names, layout.mesh_shape)}"


def digest(layout: Layout) -> str:
    """Return the beginning of the SHA-256 of a layout's JSON with sorted keys."""
    return _digest(layout.to_json())


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
