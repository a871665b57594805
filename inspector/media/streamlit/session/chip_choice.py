"""The chip of the session. Every panel that models a chip reads it here."""

from typing import Any

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.machines import targets
from inspector.machines.hardware import CHIPS, Chip, Kind
from inspector.media.streamlit.page.plain_text import plain

KEY = "chip"
NONE = "none"  # in the state of the widget


def chosen_chip() -> Chip | None:
    """Return the chip that was chosen for Snapshots without one; None if none was."""
    return CHIPS.get(st.session_state.get(KEY, NONE))


def platforms() -> tuple[Kind, ...]:
    """Return the kind of machine for which layouts without a chip are partitioned, if a chip was chosen."""
    chip = chosen_chip()
    return () if chip is None else (chip.kind,)


def put(name: str | None) -> None:
    """Choose a chip by its name, or none."""
    st.session_state[KEY] = name if name in CHIPS else NONE


def draw(snapshot: Snapshot, **settings: Any) -> Chip | None:
    """Draw the list of chips and return the chosen one; a Snapshot of a chip has that chip.

    `settings` are those of `st.selectbox`.
    """
    target, chip = targets.compiled_for(snapshot), targets.chip_of(snapshot)
    if chip is not None:
        if target is None:
            st.markdown(f"On **{plain(chip.title)}**")
        else:
            st.markdown(f"Compiled for **{plain(chip.title)}**  \n:small[{plain(target.sentence)}]")
        return chip
    return select("Chip", **settings)


def select(label: str, **settings: Any) -> Chip | None:
    """Draw the list of chips for Snapshots without one. `settings` are those of `st.selectbox`."""
    keep()
    st.selectbox(
        label,
        [NONE, *CHIPS],
        format_func=lambda name: CHIPS[name].title if name in CHIPS else "No chip",
        key=KEY,
        help="Memory and time of layouts without a chip are modelled on this one. Nothing runs on it.",
        **settings,
    )
    return chosen_chip()


def keep() -> None:
    """Keep the choice while its widget is not drawn."""
    put(st.session_state.get(KEY))
