"""Pictures of a Snapshot: data in, a Plotly figure or text out; one picture a file."""

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspector.figures import (
        bars,
        block_grid,
        block_map,
        chip_panels,
        device_grid,
        labels,
        memory_timeline,
        mesh_map,
        pipeline_schedule,
        spec_tree,
        stamp,
        timeline,
        timings,
        tree_rows,
        verdict_bars,
        whole_model,
    )
else:

    def __getattr__(name: str) -> Any:
        # Imported when it is used (PEP 562): a terminal draws nothing.
        if importlib.util.find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{__name__}.{name}")
