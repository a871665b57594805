"""The chip and the program that the session has chosen."""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import streamlit as st

from inspector.machines import targets
from inspector.machines.hardware import CHIPS, Chip, Kind
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import kept_field, selection
from inspector.prediction.step_program import STEPS
from inspector.records.snapshot import Snapshot
from inspector.text.printable import one_line
from inspector.text.program_names import title

FIRST = "train_step"
# The key of the choice on each tab with a choice.
KEYS = {
    "Communication": "collectives_program",
    "Improve": "effects_program",
    "Arrays": "asked_program",
    "Time": "modelled_program",
}
ARRAYS_VIEW = "Train state"  # the view of the tab *Arrays* that has the choice
_LINKED = "linked_program"
_pending: ContextVar[tuple[str, ...]] = ContextVar("pending", default=())
_MAX_SIDE_BY_SIDE = 6
_MAX_CHARACTERS = 24  # of a name in a row of names


def link(name: str | None) -> None:
    """Choose the program of a link as soon as it is in a Snapshot. None forgets the one of the last link."""
    st.session_state[_LINKED] = name


def chosen(tab: str | None) -> str | None:
    """Return the program that is chosen on a tab, or that a link chooses; None for a tab without programs."""
    view = st.session_state.get(selection.VIEW_KEY)
    if tab not in KEYS or (tab == "Arrays" and view != ARRAYS_VIEW):
        return None
    return st.session_state.get(_LINKED) or st.session_state.get(KEYS[tab])


@contextlib.contextmanager
def with_pending(names: Sequence[str]) -> Iterator[None]:
    """Also offer these programs in the `with` block; one that the Snapshot lacks is partitioned if chosen."""
    before = _pending.set(tuple(names))
    try:
        yield
    finally:
        _pending.reset(before)


def choose(names: Sequence[str], key: str) -> str:
    """Draw the choice and return the chosen name, one of `names`. There must be at least one program."""
    if st.session_state.get(_LINKED) in names:
        st.session_state[key] = st.session_state.pop(_LINKED)
    if st.session_state.get(key) not in names:
        st.session_state[key] = next((name for name in STEPS if name in names), names[0])
    names = tuple(dict.fromkeys((*_pending.get(), *names)))
    if len(names) > _MAX_SIDE_BY_SIDE or any(len(name) > _MAX_CHARACTERS for name in names):
        # A list reads no Markdown.
        draw, label = partial(kept_field.draw, st.selectbox), one_line
    else:
        draw, label = partial(kept_field.draw, st.segmented_control, required=True), plain
    chosen: str = draw(
        "Program",
        names,
        format_func=lambda name: label(title(name)),
        key=key,
        label_visibility="collapsed",
        on_change=link,
        args=(None,),
    )
    return chosen


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
