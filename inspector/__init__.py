"""Sharding Inspector: shows where every shard of a JAX model is placed, why, and its cost.

In your own job, use `from inspector import capture, capture_compiled`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspector.producers.capture import capture, capture_compiled

__all__ = ["capture", "capture_compiled"]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    # Imported here, because `capture` imports JAX and nothing else in this process may.
    if name in __all__:
        from inspector.producers import capture

        return getattr(capture, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
