"""The rule ledger: every rule that was tried on an array, and whether all arrays follow the rules."""

from collections.abc import Sequence

import streamlit as st

from inspector.compiled.causes import dependents, rules_behind
from inspector.core.errors import InvalidInput
from inspector.core.rules import Rule, written
from inspector.core.rules.entries import ledger_of
from inspector.core.rules.written import recorded
from inspector.core.snapshot import Array, Snapshot
from inspector.layout import Layout
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import selection
from inspector.model.built_in.catalogue import semantics
from inspector.sections import causes
from inspector.sections import rules as ledger_section

_GIVEN, _NEXT = "ledger_rules", "ledger_next"
_EXAMPLE = "batch=data, embed=fsdp+tensor, layer=   or   [['embed', ['fsdp', 'tensor']], …]"


def show(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw one array rule by rule, then all arrays and whether they follow the rules."""
    named = [array for array in snapshot.arrays if array.logical_axes is not None]
    if layout is not None and not layout.entry.has_rules:
        st.info("This model names mesh axes itself, so it has no rules.", icon=":material/edit:")
        return
    if not named:
        st.info(
            "The reasons for these shardings are unknown: the Snapshot contains neither logical axes nor "
            "rules.",
            icon=":material/help:",
        )
        return
    rules = recorded(snapshot)
    if rules is None:
        rules = _ask_for_rules()
        if rules is None:
            return
    reading = semantics(snapshot)
    array = _choose(snapshot, named)
    ledger = ledger_of(array, snapshot.mesh_of(array), rules, reading)
    if ledger is None:
        st.info("This array has no logical axes, so no rule applies.", icon=":material/block:")
    else:
        render.show(ledger_section.of_array(array, ledger, rules, reading))
    render.show(filter(None, [causes.of_array(array)]))
    _show_all(snapshot, rules)
    _show_dependents(snapshot)


def _show_dependents(snapshot: Snapshot) -> None:
    known = rules_behind(snapshot)
    if not known:
        return
    rule = st.pills("What depends on a rule", known, format_func=plain, key="ledger_rule")
    if rule is not None:
        render.show([causes.of_rule(dependents(snapshot, rule))])


def _choose(snapshot: Snapshot, named: Sequence[Array]) -> Array:
    selection.select(st.session_state.pop(_NEXT, None))
    array = selection.selected(snapshot)
    paths = [candidate.path for candidate in named]
    if array.path not in paths:
        paths.insert(0, array.path)
    selection.draw(paths)
    return array


def _ask_for_rules() -> tuple[Rule, ...] | None:
    """Draw a field for rules; return None if it is empty or invalid."""
    st.info(
        "This Snapshot contains logical axes but no rules. Enter rules to see whether the shardings follow "
        "from them.",
        icon=":material/help:",
    )
    text = st.text_area(
        "Rules, in order",
        key=_GIVEN,
        placeholder=_EXAMPLE,
        height=100,
        max_chars=written.MOST_CHARACTERS,
        persist_state="session",
    )
    if not text.strip():
        return None
    try:
        return written.parse(text)
    except InvalidInput as error:
        st.error(plain(str(error)), icon=":material/error:")
        return None


def _show_all(snapshot: Snapshot, rules: Sequence[Rule]) -> None:
    known = ledger_section.ledgers(snapshot, rules)

    def pick(row: int | None) -> None:
        if row is None:
            return
        path = known[row][0].path
        if path != st.session_state.get("ledger_selected"):
            # The choice above is drawn already, so it can only change in the next run.
            st.session_state["ledger_selected"] = path
            st.session_state[_NEXT] = path
            st.rerun()

    render.show([ledger_section.overall(known, semantics(snapshot))], {"ledger_table": pick})
