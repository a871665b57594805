"""A job that returns the mesh records of targets without a compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

JOBS = {"place": f"{__name__}:place"}


def place(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    from inspector.compiling import compile_layout
    from inspector.machines import targets
    from inspector.records import typed_json

    return {
        "meshes": [
            typed_json.encode(
                compile_layout.mesh_on(
                    targets.parse(target), tuple(sizes), ("data", "model")[: len(sizes)], order
                )[1]
            )
            for target, sizes, order in payload["wanted"]
        ]
    }
