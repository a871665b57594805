"""Time: a step modelled on a chip, measured on this machine, and by kind of operation."""

from __future__ import annotations

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.media.streamlit import chip_choice, page_width, program_choice, render
from inspector.sections import time, unknown


def show(snapshot: Snapshot, _: Layout | None) -> None:
    """Draw the modelled step first, because it describes the machine that the layout is for."""
    missing = unknown.no_programs(snapshot, "step times are")
    if missing is not None:
        render.show([missing])
        return
    no_mesh = unknown.no_mesh(snapshot)
    if no_mesh is not None:
        render.show([no_mesh])
    else:
        _show_modelled(snapshot)
    render.show(time.measured(snapshot))
    profiled = time.by_operation(snapshot)
    render.show(profiled)
    if not profiled and snapshot.source.kind == "cpu":
        st.caption(
            "To see the time by kind of operation, enable *Also profile train steps* under *Training and "
            "measuring* and run again."
        )


def _show_modelled(snapshot: Snapshot) -> None:
    st.markdown("##### Modelled on a chip")
    chosen, program = page_width.beside([2, 3])
    with chosen:
        chip = chip_choice.draw(snapshot)
    with program:
        names = [one.name for one in snapshot.programs]
        name = program_choice.choose(names, "modelled_program")
    models = time.models_of(snapshot, chip)
    render.show(time.modelled_step(snapshot, models[name], models.values()))
