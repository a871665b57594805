"""The rule ledger: every rule that was tried on an array, taken or passed over and why, in Linen and nnx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted, logical_text, spec_text
from inspector.core.rules import Rule, written
from inspector.core.rules.entries import Entry, Ledger, ledger_of
from inspector.core.rules.recorded import recorded, semantics
from inspector.core.rules.sentences import rule_words
from inspector.core.snapshot import Array, Mesh, Snapshot
from inspector.layout import Layout
from inspector.media.streamlit import selection, table
from inspector.media.streamlit.plain_text import plain
from inspector.model import RulesSemantics

_GIVEN, _NEXT = "ledger_rules", "ledger_next"
READERS: dict[RulesSemantics, str] = {"linen": "Linen", "nnx": "nnx"}
_EXAMPLE = "batch=data, embed=fsdp+tensor, layer=   or   [['embed', ['fsdp', 'tensor']], …]"


def show(found: Snapshot, layout: Layout | None) -> None:
    """One array rule by rule, then all arrays and whether they follow from the rules."""
    named = [array for array in found.arrays if array.logical_axes is not None]
    if layout is not None and not layout.entry.has_rules:
        st.info(
            "This model names mesh axes itself, at each parameter and activation, so no rule decides.",
            icon=":material/edit:",
        )
        return
    if not named:
        st.info(
            "Why these arrays lie where they do is unknown: the Snapshot has neither their logical axes nor "
            "rules, as a checkpoint or a dump of shardings has not.",
            icon=":material/help:",
        )
        return
    rules = recorded(found)
    if rules is None:
        rules = _ask_for_rules()
        if rules is None:
            return
    reading = semantics(found)
    array = _choose(found, named)
    ledger = ledger_of(array, found.mesh, rules, reading)
    if ledger is None:
        st.info(
            "This array has no logical axes, so no rule was tried on it.", icon=":material/block:"
        )
    else:
        _show_outcome(array, ledger, reading)
        st.markdown(rows_text(ledger.entries, rules))
        st.caption(
            "Rules that name no dimension of this array are left out. Linen takes a rule if its dimension "
            "is not settled yet and all of its mesh axes are free; nnx looks names up, and the last rule "
            "wins."
        )
    _show_all(named, found.mesh, rules, reading)


def rows_text(entries: Sequence[Entry], rules: Sequence[Rule]) -> str:
    """The entries as a table in Markdown, whose long cells wrap; every name in it is escaped."""
    lines = ["| Rule | Dimension | Linen | nnx |", "|---|---|---|---|"]
    for entry in entries:
        rule = (
            "–"
            if entry.rule is None
            else plain(rule_words(entry.rule, rules).removeprefix("rule "))
        )
        name = f" {plain(entry.logical_axis)}" if entry.logical_axis else ""
        cells = (
            rule,
            f"{entry.dimension}{name}",
            _marked(entry.taken_by_linen, entry.linen),
            _marked(entry.taken_by_nnx, entry.nnx),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def columns(arrays: Sequence[Array], ledgers: Sequence[Ledger]) -> dict[str, list[Any]]:
    """An entry an array: what it is, what each reading of the rules makes of it, and whether it follows."""
    return {
        "Path": [array.path for array in arrays],
        "Logical axes": [logical_text(array.logical_axes) for array in arrays],
        "Found": [spec_text(array.spec) for array in arrays],
        "Linen": ["refused" if one.linen is None else spec_text(one.linen) for one in ledgers],
        "Follows": [_yes_no(one.follows) for one in ledgers],
        "nnx": [
            spec_text(one.nnx) + (", which JAX refuses" if one.nnx_refusals else "")
            for one in ledgers
        ],
    }


def _choose(found: Snapshot, named: Sequence[Array]) -> Array:
    selection.select(st.session_state.pop(_NEXT, None))
    array = selection.selected(found)
    paths = [one.path for one in named]
    if array.path not in paths:
        paths.insert(0, array.path)
    st.selectbox("Array", paths, key=selection.KEY, label_visibility="collapsed")
    return array


def _ask_for_rules() -> tuple[Rule, ...] | None:
    """Rules that a person gives for a Snapshot that has none; None, and a sentence, until then."""
    st.info(
        "By which rules these arrays were laid out is unknown: the Snapshot has logical axes, but no rules. "
        "Give the rules, and see whether the shardings follow from them.",
        icon=":material/help:",
    )
    st.session_state.setdefault(f"{_GIVEN}:kept", "")
    text = st.text_area(
        "Rules, in order",
        value=st.session_state[f"{_GIVEN}:kept"],
        key=_GIVEN,
        placeholder=_EXAMPLE,
        height=100,
        max_chars=written.MOST_CHARACTERS,
    )
    st.session_state[f"{_GIVEN}:kept"] = text
    if not text.strip():
        return None
    try:
        return written.parse(text)
    except InvalidInput as refused:
        st.error(plain(str(refused)), icon=":material/error:")
        return None


def _show_outcome(array: Array, ledger: Ledger, reading: RulesSemantics) -> None:
    linen = f"refused, {ledger.linen_refusal}" if ledger.linen is None else spec_text(ledger.linen)
    st.markdown(
        f"{plain(logical_text(array.logical_axes))} · found **{plain(spec_text(array.spec))}** · Linen: "
        f"**{plain(linen)}** · nnx: **{plain(spec_text(ledger.nnx))}**"
    )
    if ledger.follows is False:
        st.warning(
            f"The array does not lie as {READERS[reading]} reads these rules"
            + (
                ": the compiler chose otherwise."
                if array.group in ("activation", "gradient")
                else "."
            ),
            icon=":material/difference:",
        )
    if any(not entry.agreed for entry in ledger.entries):
        refused = "; ".join(ledger.nnx_refusals)
        st.info(
            "Linen and nnx read these rules differently"
            + (f". In nnx {plain(refused)}." if refused else "."),
            icon=":material/compare_arrows:",
        )


def _show_all(
    named: Sequence[Array],
    mesh: Mesh | None,
    rules: Sequence[Rule],
    reading: RulesSemantics,
) -> None:
    pairs = [(array, ledger_of(array, mesh, rules, reading)) for array in named]
    reader = READERS[reading]
    known = [(array, ledger) for array, ledger in pairs if ledger is not None]
    asked = [(array, ledger) for array, ledger in known if ledger.follows is not None]
    follow = sum(bool(ledger.follows) for _, ledger in asked)
    st.markdown("##### All arrays")
    if asked and follow == len(asked):
        st.success(
            f"All {counted(len(asked), 'array')} with logical axes lie as {reader} reads these rules.",
            icon=":material/check:",
        )
    elif asked:
        st.warning(
            f"{follow} of {counted(len(asked), 'array')} with logical axes lie as {reader} reads these "
            "rules.",
            icon=":material/difference:",
        )
    ordered = sorted(known, key=lambda one: one[1].follows is not False)
    event = table.show(
        columns([array for array, _ in ordered], [ledger for _, ledger in ordered]),
        "ledger_table",
        height=min(38 + 35 * len(ordered), 350),
        on_select="rerun",
        selection_mode="single-row",
    )
    if event.selection.rows:
        path = ordered[event.selection.rows[0]][0].path
        if path != st.session_state.get("ledger_selected"):
            # The choice above is drawn already, so that it can change only in the next run.
            st.session_state["ledger_selected"] = path
            st.session_state[_NEXT] = path
            st.rerun()


def _marked(taken: bool, words: str) -> str:
    return f"**{plain(words)}**" if taken else plain(words)


def _yes_no(follows: bool | None) -> str:
    return "unknown" if follows is None else "yes" if follows else "no"
