"""Time: modelled on a chip, measured on emulated devices, and where the profiler saw it go."""

from __future__ import annotations

import streamlit as st

from inspector.layout import Layout
from inspector.snapshot import Snapshot
from inspector.views import operation_times_section, step_model_section, timings_section


def show(found: Snapshot, _: Layout) -> None:
    """The model first, for it is of the machine that the layout is meant for."""
    if not found.programs:
        st.info(
            "A plan has no program that could be modelled or timed. Build and run the layout: then its "
            "step is modelled on the chip you choose, and measured on emulated devices.",
            icon=":material/timer_off:",
        )
        return
    step_model_section.show(found)
    timings_section.show(found)
    operation_times_section.show(found)
