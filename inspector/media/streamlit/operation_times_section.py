"""Where the time of a train step went on the emulated devices, by JAX's own profiler."""

from __future__ import annotations

import streamlit as st

from inspector.core.formatting import counted, seconds_text
from inspector.core.snapshot import Snapshot
from inspector.figures.operation_times import operation_times
from inspector.media.streamlit import chart, page_width


def show(found: Snapshot) -> None:
    """A bar a kind of operation for each program that was watched."""
    watched = [program for program in found.programs if program.trace is not None]
    if not watched:
        # Only what runs can be watched.
        if found.source.kind != "cpu":
            return
        st.caption(
            "To see which kinds of operations a step's time goes to, switch on *Also profile train "
            "steps* under *Training and measuring* and run again."
        )
        return
    st.markdown("##### Where it goes here")
    for program in watched:
        trace = program.trace
        figure = operation_times(trace, found.mesh.size, width_px=page_width.content_px())
        if figure is not None:
            chart.draw(
                figure, f"operation_times:{program.name}", alt="Where the profiler saw the time go"
            )
        st.caption(
            f"JAX's profiler watched {counted(trace.steps, 'more step')} of `{program.name}`, "
            f"{seconds_text(trace.seconds / trace.steps)} each: emulated devices on this machine's own "
            "cores."
        )
