"""The board of a browser session, and its URL.

The session has the pinned Snapshots. The URL of the Board page has only their layouts. If the URL differs
from what was written last (a link, the back button), its layouts are planned and pinned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from inspector.compare import board_link
from inspector.compare.board import Board, Pin
from inspector.compare.board_link import LinkedPin
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.layout.plan import plan
from inspector.media.streamlit import chip_choice, screenshot_mode, user, waiting
from inspector.service.inspection import Inspection

_BOARD, _WRITTEN = "board", "board_query"
_PROBLEMS, _NOTES, _REFUSED = "board_link_problems", "board_link_notes", "board_refused"

_WAS_WORDS = {"cpu": "run", "local": "run", "tpu": "compiled", "gpu": "compiled"}


def board() -> Board:
    """Return the board of this session with the selected chip."""
    pinned: Board = st.session_state.get(_BOARD, Board())
    return replace(pinned, chip=chip_choice.chosen_chip().name)


def put(changed: Board) -> None:
    """Replace the board, and drop the messages about the last link."""
    st.session_state[_BOARD] = changed
    for key in (_PROBLEMS, _NOTES, _REFUSED):
        st.session_state.pop(key, None)


def complete(changed: Board) -> None:
    """Replace the Snapshots of the board by those of this one, which say more about the same layouts."""
    st.session_state[_BOARD] = changed


def change(make: Callable[[Board], Board]) -> bool:
    """Change the board in a callback. Return whether that worked; if not, `take_problem` returns why."""
    try:
        put(make(board()))
    except InvalidInput as error:
        st.session_state[_REFUSED] = str(error)
        return False
    return True


def take_problem() -> str | None:
    """Return why the last change failed, once."""
    return st.session_state.pop(_REFUSED, None)


def problems() -> tuple[str, ...]:
    """Return the problems of the opened link, one sentence each."""
    return st.session_state.get(_PROBLEMS, ())


def notes() -> tuple[str, ...]:
    """Return what the opened link does not contain, one sentence each."""
    return st.session_state.get(_NOTES, ())


def read_link() -> None:
    """Pin the layouts of the URL, before any widget is drawn, and wait for their plans.

    A URL without pins, such as after a page switch, changes nothing.
    """
    query = _query()
    if query == st.session_state.get(_WRITTEN) or not query:
        return
    linked = board_link.parse(query)
    before, wrong = board(), list(linked.problems)
    if linked.chip is not None:
        st.session_state[chip_choice.KEY] = linked.chip
    made = before
    if linked.pins:
        service = user.service()
        linked_pins = []
        for pin in linked.pins:
            try:
                linked_pins.append(Pin(pin.name, _snapshot(service, pin, before)))
            except InvalidInput as error:
                wrong.append(f"{pin.name} cannot be planned: {error}")
        made = _merged(before, linked_pins, linked.baseline, wrong)
    put(made)
    st.session_state[_PROBLEMS] = tuple(wrong)
    st.session_state[_NOTES] = _notes(linked.pins, made)
    st.session_state[_WRITTEN] = query


def write_link() -> None:
    """Write the board to the URL, if it changed."""
    query = board_link.to_query(board())
    if _query() != query:
        st.query_params.from_dict(query | screenshot_mode.query())
    st.session_state[_WRITTEN] = query


def _query() -> dict[str, list[str]]:
    """Return the URL parameters without that of screenshot mode."""
    return {
        key: st.query_params.get_all(key)
        for key in st.query_params
        if key != screenshot_mode.PARAMETER
    }


def _snapshot(service: Inspection, pin: LinkedPin, before: Board) -> Snapshot:
    """Return the Snapshot of this layout on the board, else its plan.

    Raises:
      InvalidInput: the model cannot be traced with these sizes.
    """
    for known in before.pins:
        if known.name == pin.name and board_link.layout_of(known.snapshot) == pin.layout:
            return known.snapshot
    state = service.known_state(pin.layout)
    if state is None:
        state = waiting.wait_for(
            service.start_state(pin.layout),
            f"Planning {pin.name}: tracing the model with JAX …",
        )
    return plan(pin.layout, state)


def _merged(before: Board, linked: list[Pin], baseline: str | None, wrong: list[str]) -> Board:
    """Return the linked pins, then the earlier pins that no link can contain."""
    made = replace(before, pins=tuple(linked), baseline=0)
    for name in board_link.not_in_link(before):
        kept = before.pins[before.names.index(name)]
        try:
            made = made.pinned(name, kept.snapshot)
        except InvalidInput as error:
            wrong.append(f"{name} was removed from the board: {error}")
    if baseline is None:
        return made
    if baseline not in made.names:
        wrong.append(f"baseline is {baseline!r}, but the link has no layout with this name")
        return made
    return made.compared_to(made.names.index(baseline))


def _notes(linked: tuple[LinkedPin, ...], made: Board) -> tuple[str, ...]:
    kinds = {pin.name: pin.snapshot.source.kind for pin in made.pins}
    return tuple(
        f"{pin.name} was {_WAS_WORDS[pin.was]} when the link was made. A link contains only the layout, so "
        "this is its plan. The file of the board contains the measurements."
        for pin in linked
        if pin.was is not None and kinds.get(pin.name) == "plan"
    )
