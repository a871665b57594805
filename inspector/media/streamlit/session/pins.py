"""The board of a browser session, and its URL.

The session has the pinned Snapshots. The URL of the Board page has only their layouts, or the name of a
Board in the library. If the URL differs from the last one written (a link, the back button), that Board is
opened, or the layouts are pinned: as they were run or compiled if this server knows that, else as planned.
"""

import contextlib
import hashlib
import urllib.parse
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from inspector.compare import board as boards
from inspector.compare.board import MOST_PINS, Board, LinkedPin, Pin
from inspector.jobs.engine import Requester
from inspector.jobs.inspection import Inspection
from inspector.jobs.library import NameUnknown
from inspector.layout import Layout, layout_of
from inspector.media.streamlit.page import page_files
from inspector.media.streamlit.session import chip_choice, planning, user, view_link
from inspector.media.streamlit.streamlit_internals import uninterrupted
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput, shown

KEPT = "board"  # the URL parameter with the name of a Board in the library
TABS_KEY = view_link.BOARD_TABS_KEY
MOST_CHARACTERS = 32_768  # of the text that the browser keeps; a pin takes about 200

_BOARD, _KEPT = "board", "kept_board"
_PROBLEMS, _WAS, _REFUSED = "board_link_problems", "board_link_was", "board_refused"
_KEY, _TEXT, _SENT = "kept_pins", "pins_as_text", "pins_to_restore"
_PARAMETERS = ("pin", "baseline")  # that the browser keeps

_WAS_WORDS = {"cpu": "run", "local": "run", "tpu": "compiled", "gpu": "compiled"}


def board() -> Board:
    """Return the board of this session with the selected chip."""
    pinned: Board = st.session_state.get(_BOARD, Board())
    chip = chip_choice.chosen_chip()
    return replace(pinned, chip=None if chip is None else chip.name)


@uninterrupted()
def put(changed: Board) -> None:
    """Replace the board, and drop the messages about the last link."""
    st.session_state[_BOARD] = changed
    for key in (_PROBLEMS, _WAS, _REFUSED):
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


def replace_plan(layout: Layout, run: Snapshot) -> None:
    """Replace the plans of this layout on the board by its run or compile."""
    pinned = board()
    replaced = tuple(
        replace(pin, snapshot=run)
        if pin.snapshot.source.kind == "plan" and layout_of(pin.snapshot) == layout
        else pin
        for pin in pinned.pins
    )
    complete(replace(pinned, pins=replaced))


def take_problem() -> str | None:
    """Return why the last change failed, once."""
    problem: str | None = st.session_state.pop(_REFUSED, None)
    return problem


def problems() -> tuple[str, ...]:
    """Return the problems of the opened link, one sentence each."""
    return tuple(st.session_state.get(_PROBLEMS, ()))


def notes() -> tuple[str, ...]:
    """Return which layouts of the opened link are only planned here, one sentence each."""
    kinds = {pin.name: pin.snapshot.source.kind for pin in board().pins}
    return tuple(
        f"{name} was {_WAS_WORDS[was]} before. This server does not have the result, so this is the plan."
        for name, was in st.session_state.get(_WAS, ())
        if kinds.get(name) == "plan"
    )


def read_link(tabs: Collection[str]) -> None:
    """Open the board, the tab and the array of the URL, before any widget is drawn; wait for the plans.

    A URL without a board, such as after a page switch, does not change it. `tabs` are those of the page.
    """
    view, query = view_link.of_url()
    if view_link.is_written(TABS_KEY) or not (view or query):
        return
    wrong = [*view_link.read(view, tabs, TABS_KEY).values()]
    if not query or query == _link():
        st.session_state[_PROBLEMS] = tuple(wrong)
    elif KEPT in query:
        _open_kept(query, wrong)
    else:
        _read_pins(query, wrong)


def _open_kept(query: dict[str, list[str]], wrong: list[str]) -> None:
    """Open a Board of the library. The link names it, and has nothing else of it."""
    name = query[KEPT][-1]
    wrong += [f"{shown(key)} is ignored, because {KEPT} is given" for key in query if key != KEPT]
    try:
        open_kept(name, user.library().board(name))
    except NameUnknown as error:
        wrong.append(
            f"{error}. A short link opens on the server where the comparison was saved. There, Download "
            "writes a file that Open reads here"
        )
    except InvalidInput as error:
        wrong.append(str(error))
    st.session_state[_PROBLEMS] = tuple(wrong)


@uninterrupted()
def open_kept(name: str, kept: Board) -> None:
    """Replace the board by one of the library, whose name is its link."""
    put(kept)
    chip_choice.put(kept.chip)
    st.session_state[_KEPT] = (name, _identity(kept))


def _identity(pinned: Board) -> tuple[Any, ...]:
    """Return what identifies a Board. Programs are not part of it, because plans get them later."""
    pins = tuple((pin.name, pin.snapshot.source, pin.snapshot.layout) for pin in pinned.pins)
    return (pins, pinned.baseline, pinned.chip)


def _read_pins(query: dict[str, list[str]], wrong: list[str]) -> None:
    linked = boards.parse_link(query)
    opened = board()
    wrong += linked.problems
    if linked.chip is not None:
        chip_choice.put(linked.chip)
    if linked.pins:
        opened = _merged(opened, _planned(linked.pins, opened, wrong), linked.baseline, wrong)
    with uninterrupted():
        put(opened)
        st.session_state[_PROBLEMS] = tuple(wrong)
        _note_results(linked.pins)


def _planned(linked: Sequence[LinkedPin], before: Board, wrong: list[str]) -> list[Pin]:
    """Return the pins of a link with the best Snapshots that this server has. Wait for the plans."""
    service, planned = user.service(), []
    for pin in linked:
        try:
            planned.append(Pin(pin.name, _snapshot(service, pin, before)))
        except InvalidInput as error:
            wrong.append(f"{pin.name} cannot be planned: {error}")
    return planned


def _note_results(linked: Sequence[LinkedPin]) -> None:
    """Remember which pins had a result, for `notes`."""
    st.session_state[_WAS] = tuple((pin.name, pin.was) for pin in linked if pin.was)


def restore(query: dict[str, list[str]]) -> None:
    """Put the layouts of an earlier session before those of the board. Invalid ones are left out.

    Problems of the opened link stay.
    """
    linked = boards.parse_link(query)
    before, wrong = board(), problems()
    restored = _merged(Board(), _planned(linked.pins, before, []), linked.baseline, [])
    for pin in before.pins:
        with contextlib.suppress(InvalidInput):  # the board is full
            restored = restored.pinned(boards.free_name(pin.name, restored.names), pin.snapshot)
    if restored.pins:
        with uninterrupted():
            put(restored)
            st.session_state[_PROBLEMS] = wrong
            _note_results(linked.pins)


def write_link(tabs: Collection[str]) -> None:
    """Write the board, the open tab and the array to the URL, if they changed."""
    pinned = board().pins
    lead = pinned[board().baseline].snapshot if pinned else None
    view_link.write(view_link.query(tabs, TABS_KEY, lead), _link(), TABS_KEY)


def kept_name() -> str | None:
    """Return the name of the board in the library, if it was not changed since."""
    name, kept = st.session_state.get(_KEPT, (None, None))
    return name if kept == _identity(board()) else None


def _link() -> dict[str, list[str]]:
    """Return the URL parameters of the board: its name in the library, or its layouts."""
    name = kept_name()
    return boards.to_query(board()) if name is None else {KEPT: [name]}


def _snapshot(service: Inspection, pin: LinkedPin, before: Board) -> Snapshot:
    """Return the Snapshot of this layout: from the board, a known run or compile, else its plan.

    Raises:
      InvalidInput: the model cannot be traced with these sizes.
    """
    for known in before.pins:
        if known.name == pin.name and layout_of(known.snapshot) == pin.layout:
            return known.snapshot
    if (finished := planning.run_of(service, pin.layout)) is not None:
        return finished
    return planning.traced(service, pin.layout, f"Planning {pin.name}: tracing the model with JAX …")


def _merged(before: Board, linked: list[Pin], baseline: str | None, wrong: list[str]) -> Board:
    """Return the linked pins, then the earlier pins that no link can contain."""
    merged = replace(before, pins=tuple(linked), baseline=0)
    for name in boards.not_in_link(before):
        kept = before.pins[before.names.index(name)]
        try:
            merged = merged.pinned(name, kept.snapshot)
        except InvalidInput as error:
            wrong.append(f"{name} was removed from the comparison: {error}")
    if baseline in merged.names:
        return merged.compared_to(merged.names.index(baseline))
    if baseline is not None:
        wrong.append(f"baseline is {baseline!r}, but the link has no layout with this name")
    return merged


def draw_kept() -> None:
    """Draw the invisible component, at the end of a page, and restore the pins that it has sent.

    The browser keeps the text of a link to the board, without figures, as it was when the pins of any tab
    changed last, so that a reload and other tabs have them. A session that begins without pins gets the text,
    and reads it as a link that anyone could have written.
    """
    state = st.session_state
    if query := state.get(_SENT):
        restore(query)
        del state[_SENT]  # not before, because a click stops the wait for plans
        st.rerun()
    requester = user.current()
    data = {"key": _browser_key(requester), "text": _browser_text(), "session": requester.session_digest}
    page_files.component("kept_pins")(data=data, key=_KEY, width=1, height=1, on_kept_change=_receive)


def _browser_text() -> str | None:
    """Return the text that the browser keeps: nothing if empty, the present one if None."""
    state, now = st.session_state, replace(board(), chip=None)
    kept: tuple[Board, str | None] = state.get(_TEXT, (Board(), None))
    before, text = kept
    if now != before:  # the text of eight pins takes 13 ms
        text = urllib.parse.urlencode(boards.to_query(now), doseq=True)
        text = text if len(text) <= MOST_CHARACTERS else ""
        state[_TEXT] = (now, text)
    return text


def _receive() -> None:
    """Read the pins in the browser, unless the session has pins or its URL names a board."""
    text = st.session_state[_KEY].get("kept")
    named = {"pin", KEPT} & st.query_params.keys()
    if _TEXT in st.session_state or named or (query := _parsed(text)) is None:
        return
    st.session_state[_SENT] = query


def _parsed(text: Any) -> dict[str, list[str]] | None:
    """Return the URL parameters in a text of the browser; None if `draw` could not send it."""
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS or not text.isascii():
        return None
    try:
        query = urllib.parse.parse_qs(text, max_num_fields=MOST_PINS + len(_PARAMETERS))
    except ValueError:
        return None
    return {name: query[name] for name in _PARAMETERS if name in query} or None


def _browser_key(requester: Requester) -> str:
    """Return the name of the entry in the browser. A signed-in user does not get that of another."""
    if not requester.signed_in:
        return "pins"
    return f"pins-{hashlib.sha256(requester.owner.encode()).hexdigest()[:32]}"
