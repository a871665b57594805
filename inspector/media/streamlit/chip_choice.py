"""The chip of the session. Every panel that models a chip reads it here."""

from __future__ import annotations

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.machines import targets
from inspector.machines.hardware import CHIPS, Chip
from inspector.media.streamlit.plain_text import plain

KEY = "chip"
DEFAULT = "v5p"


def chosen_chip() -> Chip:
    """Return the chosen chip, or the default one."""
    return CHIPS.get(st.session_state.get(KEY, DEFAULT), CHIPS[DEFAULT])


def draw(snapshot: Snapshot) -> Chip:
    """Draw the list of chips and return the chosen one; a Snapshot of a chip has that chip."""
    target, chip = targets.compiled_for(snapshot), targets.chip_of(snapshot)
    if chip is not None:
        if target is None:
            st.markdown(f"On **{plain(chip.title)}**")
        else:
            st.markdown(f"Compiled for **{plain(chip.title)}**  \n:small[{plain(target.sentence)}]")
        return chip
    st.session_state[KEY] = chosen_chip().name
    st.selectbox(
        "Chip",
        list(CHIPS),
        format_func=lambda name: CHIPS[name].title,
        key=KEY,
        help="Memory and time are modelled on this chip. Nothing runs on it.",
    )
    return chosen_chip()
