"""Sharding Inspector: shows where every shard of a JAX model is placed, why, and its cost.

In your own job, use `from inspector import capture, capture_compiled`. In a script or notebook, use
`inspector.inspect` and `inspector.show`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspector.media.notebook import show
    from inspector.recording.capture import capture, capture_compiled
    from inspector.recording.inspected import inspect

__all__ = ["capture", "capture_compiled", "inspect", "show"]
_MODULES = {
    "capture": "inspector.recording.capture",
    "capture_compiled": "inspector.recording.capture",
    "inspect": "inspector.recording.inspected",
    "show": "inspector.media.notebook",
}
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Imported when they are used, because they import JAX, and nothing else in this process may.
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
