"""The searched space, as fields of the Search page and as its URL.

A link can come from anyone. Its layout is read as that of the Layout page, and nothing is searched before a
click.
"""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from inspector import layout as layouts
from inspector.compare.search.result import OBJECTIVES
from inspector.core.errors import InvalidInput, require_one_of, shown
from inspector.layout import Layout
from inspector.machines import hardware
from inspector.media.streamlit.session import back_button, chip_choice, current_layout, view_link
from inspector.media.streamlit.streamlit_internals import uninterrupted
from inspector.service.search.run import DEFAULT_BUDGET

MOST_BUDGET = 200  # compiles of one search from a page
MEASURED = "Emulated devices"  # in the list of chips
OBJECTIVE, BUDGET, LOCKS, VARY = "search_objective", "search_budget", "search_locks", "search_vary"
CHIP = "search_chip"
WEIGHTS, LIMITS = "search_weights", "search_limits"
_DEFAULTS: dict[str, Any] = {
    OBJECTIVE: OBJECTIVES[0],
    BUDGET: DEFAULT_BUDGET,
    LOCKS: "",
    VARY: "",
    CHIP: MEASURED,
    WEIGHTS: "",
    LIMITS: "",
}
_KEY, _PROBLEMS = "search", "search_link_problems"
_MOST_CHARACTERS = 2_000  # of a field with text


def read() -> tuple[str, ...]:
    """Set the layout and the fields to those of the URL, before any is drawn. Return its faults.

    A URL without a search, such as after a page switch, changes nothing.
    """
    state = st.session_state
    for key, default in _DEFAULTS.items():
        state.setdefault(key, default)
    _, query = view_link.of_url()
    if not query:
        state[_PROBLEMS] = ()
    elif not view_link.is_written(_KEY) or back_button.pressed():
        put({name: texts[-1] for name, texts in query.items()})
    known: tuple[str, ...] = state.setdefault(_PROBLEMS, ())
    return known


@uninterrupted()
def put(query: Mapping[str, str]) -> None:
    """Set the layout and the fields to those of URL parameters, and keep their faults."""
    state, fields, problems = st.session_state, dict(query), []
    for key, default in _DEFAULTS.items():
        state[key] = default
        if (text := fields.pop(_parameter(key), None)) is not None:
            try:
                state[key] = _value(key, text)
            except InvalidInput as error:
                problems.append(str(error))
    parsed = layouts.parse_leniently(current_layout.of_parameters(fields))
    current_layout.put(parsed.unwrap())
    state[_PROBLEMS] = (*parsed.problems.values(), *problems)


def write(layout: Layout) -> None:
    """Write the layout and the fields to the URL, if they changed."""
    view_link.write({}, {name: [text] for name, text in parameters(layout).items()}, _KEY)


def parameters(layout: Layout) -> dict[str, str]:
    """Return the URL parameters of the layout and the fields."""
    state = st.session_state
    query = current_layout.to_parameters(layouts.to_query(layout))
    for key, default in _DEFAULTS.items():
        # The objective is always there, so that no URL of a search is empty.
        is_default = state[key] == default and key != OBJECTIVE
        if not is_default and (key != CHIP or layout.machine is None):
            query[_parameter(key)] = layouts.print_size(state[key])
    return query


def _parameter(key: str) -> str:
    """Return the URL parameter of a field. Sizes of models have no hyphens."""
    return chip_choice.KEY if key == CHIP else key.replace("_", "-")


def _value(key: str, text: str) -> Any:
    name = _parameter(key)
    if key == OBJECTIVE:
        require_one_of(name, text, OBJECTIVES)
        return text
    if key == CHIP:
        return hardware.chip(text).name
    if key == BUDGET:
        digits = text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_BUDGET))
        if not digits or int(text) > MOST_BUDGET:
            raise InvalidInput(f"{name} is {shown(text)}, but must be a number from 0 to {MOST_BUDGET}")
        return int(text)
    if len(text) > _MOST_CHARACTERS:
        raise InvalidInput(f"{name} has {len(text):,} characters, at most {_MOST_CHARACTERS:,}")
    return text
