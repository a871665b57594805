"""The picture of the whole model. A click on an array opens its shard map, one on a move its collective."""

from typing import Any

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.core.step_program import step_program
from inspector.machines.evidence import for_chip
from inspector.media.streamlit.panels import collectives_panel
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import chip_choice, selection
from inspector.sections import whole_model

_DEVICE, _COLLECTIVE = "picture_device", "picture_collective"


def show(snapshot: Snapshot) -> None:
    """Draw the picture, and the collective that was opened in it."""
    device = st.session_state.get(_DEVICE)
    chip = chip_choice.chosen_chip()
    snapshot = for_chip(snapshot, chip)
    blocks = render.kept(
        (chip and chip.name, device),
        (snapshot,),
        lambda: whole_model.blocks(snapshot, chip, device, titled=False),
    )
    render.show(blocks, {whole_model.KEY: _pick})
    program = step_program(snapshot)
    name = st.session_state.get(_COLLECTIVE)
    every = () if program is None else program.collectives or ()
    opened = next((collective for collective in every if collective.name == name), None)
    if program is not None and opened is not None:
        collectives_panel.show_one(snapshot, program, opened)


def _pick(part: dict[str, Any]) -> None:
    position, collective = part.get("position"), part.get("collective")
    if isinstance(position, int):
        st.session_state[_DEVICE] = position
    elif isinstance(collective, str):
        again = st.session_state.get(_COLLECTIVE) == collective
        st.session_state[_COLLECTIVE] = None if again else collective
    elif isinstance(part.get("path"), str):
        selection.open_map(part["path"])
