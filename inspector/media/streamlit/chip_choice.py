"""Which accelerator chip the session asks about; every panel that models one reads it here."""

from __future__ import annotations

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.machines import targets
from inspector.machines.hardware import CHIPS, Chip

KEY = "chip"
DEFAULT = "v5p"


def chosen_chip() -> Chip:
    """The chip that was chosen, or the default one."""
    return CHIPS.get(st.session_state.get(KEY, DEFAULT), CHIPS[DEFAULT])


def draw(found: Snapshot) -> Chip:
    """Draw the list of chips, and give the chosen one; that of its target where it was compiled for one."""
    target = targets.compiled_for(found)
    if target is not None:
        st.markdown(f"Compiled for **{target.chip.title}**  \n:small[{target.sentence}]")
        return target.chip
    st.session_state[KEY] = chosen_chip().name
    st.selectbox(
        "Chip",
        list(CHIPS),
        format_func=lambda name: CHIPS[name].title,
        key=KEY,
        help="The accelerator that memory and time are compared with. Nothing runs on it.",
    )
    return chosen_chip()
