"""Time: modelled on a chip, measured on emulated devices, and where the profiler saw it go."""

from __future__ import annotations

from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.media.streamlit import (
    not_known,
    operation_times_section,
    step_model_section,
    timings_section,
)


def show(found: Snapshot, _: Layout | None) -> None:
    """The model first, for it is of the machine that the layout is meant for."""
    if not_known.no_programs(
        found,
        "A plan has no program that could be modelled or timed. Build and run the layout: then its "
        "step is modelled on the chip you choose, and measured on emulated devices.",
        "how long a step takes can neither be modelled nor was it measured",
    ):
        return
    if found.mesh is None:
        not_known.show(
            "A step cannot be modelled on a chip: the mesh is not in "
            f"{not_known.origin(found) or 'this Snapshot'}, so over which links its collectives run is "
            "unknown."
        )
    else:
        step_model_section.show(found)
    timings_section.show(found)
    if not_known.origin(found) is None:
        operation_times_section.show(found)
