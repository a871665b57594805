"""The train state of a run: requested and compiled shardings, loss, live arrays, and boxed values."""

from __future__ import annotations

from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.media.streamlit import program_choice, render
from inspector.sections import train_state


def show(snapshot: Snapshot, _: Layout | None) -> None:
    """Draw requested and compiled shardings, then loss, live arrays and boxes."""
    render.show([train_state.verdict(snapshot)])
    names = [program.name for program in snapshot.programs if program.shardings]
    if names:
        name = program_choice.choose(names, "asked_program")
        render.show([train_state.shardings(snapshot, name), train_state.training(snapshot)])
    render.show(train_state.boxes(snapshot))
