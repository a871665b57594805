"""The board of one browser session: what is pinned, and the URL that says so.

The session holds the pins in full. The Board page writes them to its URL as far as layouts go; a URL that
differs from what was last written (a shared link, the back button) is planned and taken over.
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
from inspector.media.streamlit import chip_choice, screenshot_mode, waiting
from inspector.service import inspection
from inspector.service.inspection import Inspection

_BOARD, _WRITTEN = "board", "board_query"
_PROBLEMS, _NOTES, _REFUSED = "board_link_problems", "board_link_notes", "board_refused"

_WAS_WORDS = {"cpu": "run", "tpu": "compiled", "gpu": "compiled"}


def board() -> Board:
    """The pins of this session, with the chip that it asks about."""
    found: Board = st.session_state.get(_BOARD, Board())
    return replace(found, chip=chip_choice.chosen_chip().name)


def put(changed: Board) -> None:
    """Keep this board; what was wrong with the link that it came from is of no interest any more."""
    st.session_state[_BOARD] = changed
    for key in (_PROBLEMS, _NOTES, _REFUSED):
        st.session_state.pop(key, None)


def change(make: Callable[[Board], Board]) -> bool:
    """Change the board in a widget's callback; whether it went well. If not, the page says why."""
    try:
        put(make(board()))
    except InvalidInput as refused:
        st.session_state[_REFUSED] = str(refused)
        return False
    return True


def take_problem() -> str | None:
    """Return why the last change failed, once."""
    return st.session_state.pop(_REFUSED, None)


def problems() -> tuple[str, ...]:
    """What in the opened link could not be used, a sentence each."""
    return st.session_state.get(_PROBLEMS, ())


def notes() -> tuple[str, ...]:
    """What the opened link could not say, a sentence each."""
    return st.session_state.get(_NOTES, ())


def read_link() -> None:
    """Take over the URL's pins, planning those that are not on the board; before any widget is drawn.

    It waits for the plans. A URL without pins, such as a page switch leaves it, changes no pin.
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
        service = inspection.shared()
        found = []
        for pin in linked.pins:
            try:
                found.append(Pin(pin.name, _snapshot(service, pin, before)))
            except InvalidInput as refused:
                wrong.append(f"{pin.name} cannot be planned: {refused}")
        made = _taken_over(before, found, linked.baseline, wrong)
    put(made)
    st.session_state[_PROBLEMS] = tuple(wrong)
    st.session_state[_NOTES] = _notes(linked.pins, made)
    st.session_state[_WRITTEN] = query


def write_link() -> None:
    """Write the board to the URL, where it is not that already."""
    query = board_link.to_query(board())
    if _query() != query:
        st.query_params.from_dict(query | screenshot_mode.query())
    st.session_state[_WRITTEN] = query


def _query() -> dict[str, list[str]]:
    """The URL's parameters, without those that say how the page is drawn."""
    return {
        key: st.query_params.get_all(key)
        for key in st.query_params
        if key != screenshot_mode.PARAMETER
    }


def _snapshot(service: Inspection, pin: LinkedPin, before: Board) -> Snapshot:
    """What the board has of this very layout, else its plan.

    Raises:
      InvalidInput: the model cannot be traced at these sizes.
    """
    for known in before.pins:
        if known.name == pin.name and board_link.layout_of(known.snapshot) == pin.layout:
            return known.snapshot
    state = service.known_state(pin.layout)
    if state is None:
        state = waiting.wait_for(
            service.start_state(pin.layout),
            f"Planning {pin.name}: reading the model's shapes with JAX …",
        )
    return plan(pin.layout, state)


def _taken_over(before: Board, found: list[Pin], baseline: str | None, wrong: list[str]) -> Board:
    """The linked pins, and after them those of before that no link can say."""
    made = replace(before, pins=tuple(found), baseline=0)
    for name in board_link.not_in_link(before):
        kept = before.pins[before.names.index(name)]
        try:
            made = made.pinned(name, kept.snapshot)
        except InvalidInput as refused:
            wrong.append(f"{name}, which is in no link, is off the board: {refused}")
    if baseline is None:
        return made
    if baseline not in made.names:
        wrong.append(f"baseline is {baseline!r}, but no layout of the link is called so")
        return made
    return made.compared_to(made.names.index(baseline))


def _notes(linked: tuple[LinkedPin, ...], made: Board) -> tuple[str, ...]:
    kinds = {pin.name: pin.snapshot.source.kind for pin in made.pins}
    return tuple(
        f"{pin.name} was {_WAS_WORDS[pin.was]} by whoever made the link; a link has its layout only, so "
        "it stands here as planned. The board's file has the figures."
        for pin in linked
        if pin.was is not None and kinds.get(pin.name) == "plan"
    )
