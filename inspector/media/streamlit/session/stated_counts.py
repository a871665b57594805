"""Trip counts and branch shares that the user of a page states, because they depend on data."""

import streamlit as st

from inspector.compiled.assumed import MOST_TRIPS, Assumed, with_assumed
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import planning
from inspector.records.snapshot import OpenChoice, Snapshot

_STATED, _OPEN = "stated_counts", "open_choices"  # number by line; open choices by program
_MOST_FIELDS = 6


def applied(snapshot: Snapshot) -> Snapshot:
    """Return the Snapshot with the counts that were stated on this page, and remember its open entries."""
    st.session_state[_OPEN] = {
        program.name: program.open_choices for program in snapshot.programs if program.open_choices
    }
    stated: dict[str, float] = st.session_state.get(_STATED, {})
    known = {choice.label: choice.kind for program in snapshot.programs for choice in program.open_choices}
    trips = {name: int(stated[name]) for name in known if known[name] == "loop" and name in stated}
    shares = {name: stated[name] for name in known if known[name] != "loop" and name in stated}
    if not trips and not shares:
        return snapshot
    stated_here = (*sorted(trips.items()), *sorted(shares.items()))
    return planning.snapshots.of(
        stated_here, (snapshot,), lambda: with_assumed([snapshot], Assumed(trips, shares))[0]
    )


def draw(program: str) -> None:
    """Draw a field for each loop and branch of a program that depends on data; nothing without any."""
    opened: dict[str, tuple[OpenChoice, ...]] = st.session_state.get(_OPEN, {})
    choices = {choice.label: choice for choice in opened.get(program, ())}
    if not choices:
        return
    stated: dict[str, float] = st.session_state.setdefault(_STATED, {})
    st.caption("How often these run depends on data. State it, or see a lower bound.")
    with st.container(horizontal=True):
        for label, choice in list(choices.items())[:_MOST_FIELDS]:
            is_loop = choice.kind == "loop"
            key = f"stated:{label}"
            st.session_state.setdefault(key, stated.get(label))
            st.number_input(
                plain(f"Iterations, {label}" if is_loop else f"Share of the branch, {label}"),
                min_value=0 if is_loop else 0.0,
                max_value=MOST_TRIPS if is_loop else 1.0,
                step=1 if is_loop else 0.1,
                placeholder="unknown",
                key=key,
                on_change=_state,
                args=(label, key),
                width=220,
            )


def _state(label: str, key: str) -> None:
    value = st.session_state.get(key)
    stated = dict(st.session_state.get(_STATED, {}))
    if value is None:
        stated.pop(label, None)
    else:
        stated[label] = value
    st.session_state[_STATED] = stated
