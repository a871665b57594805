"""How long lowering, compiling and every measured step took on this machine."""

from __future__ import annotations

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.figures import timings
from inspector.media.streamlit import chart, page_width
from inspector.media.streamlit.plain_text import plain


def show(found: Snapshot) -> None:
    """The stages of each program, and beside them the distribution of its steps."""
    where = timings.where(found)
    stages = timings.phases(found.programs, where, width_px=page_width.half_px())
    if stages is None:
        return
    st.markdown("##### Measured here")
    if where == timings.EMULATED:
        st.caption(
            "On emulated devices: how this machine runs them all on its own few cores, not how fast an "
            "accelerator would be. Compare layouts by it, and only on one machine."
        )
    else:
        st.caption(
            f"How long the compiler of {plain(found.source.target or 'that machine')} took on this "
            "machine. Nothing was run, so no step was measured."
        )
    left, right = page_width.halves()
    with left:
        chart.draw(stages, "timing_stages", alt="Seconds of each stage")
    steps = timings.steps(found.programs, width_px=page_width.half_px())
    if steps is not None:
        with right:
            chart.draw(steps, "timing_steps", alt="Seconds of each measured step")
    for program in found.programs:
        measured = program.seconds.timeit if program.seconds is not None else None
        if measured is not None:
            st.markdown(
                f"`{program.name}` by repeated loops, as `%%timeit` prints it: "
                f"**{timings.timeit_text(measured)}**"
            )
