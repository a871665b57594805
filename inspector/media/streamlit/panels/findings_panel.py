"""The findings of the audit, ranked, with a button that applies the fix of each."""

from __future__ import annotations

import hashlib

import streamlit as st

from inspector import layout as layouts
from inspector.checks import audit
from inspector.checks.audit import Change
from inspector.compare import board
from inspector.core import typed_json
from inspector.core.snapshot import Finding, Snapshot
from inspector.layout import Layout
from inspector.media.streamlit.page import page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import current_layout, pins, selection
from inspector.sections import assessed
from inspector.sections import effects as effects_section
from inspector.sections import findings as section
from inspector.sections.section import more_text

_MAX_SHOWN = 30
_MAX_CHANGES = 200  # that a session keeps
_CHANGES = "findings_changes"
_PANEL, _FIRST = "panel", "Summary"
MOST_IMPROVEMENTS = 3


def show(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw errors, then what can be fixed by the bytes that this saves, then the list of checks."""
    if snapshot.mesh is None:
        st.info("Nothing can be checked, because the mesh is unknown.", icon=":material/help:")
        return
    findings = audit.ranked(snapshot)
    render.show([section.summary(findings, snapshot), *section.not_checked(snapshot)])
    shown = [
        (finding, None if layout is None else _change(snapshot, finding, layout))
        for finding in findings[:_MAX_SHOWN]
    ]
    shown.sort(key=lambda pair: (pair[0].level != "error", pair[1] is None))
    for number, (finding, change) in enumerate(shown):
        _show_finding(number, finding, change, snapshot, layout)
    if len(findings) > _MAX_SHOWN:
        st.caption(more_text(len(findings) - _MAX_SHOWN, "finding"))
    render.show([section.checked()])


def _show_finding(
    number: int,
    finding: Finding,
    change: Change | None,
    snapshot: Snapshot,
    layout: Layout | None,
) -> None:
    kind = section.KINDS[finding.level]
    with st.container(border=True, key=f"finding:{number}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.badge(finding.level.capitalize(), icon=render.ICONS[kind], color=render.COLORS[kind])
            st.markdown(f"**{plain(section.title(finding))}**")
            if finding.bytes:
                st.caption(section.saving(finding))
        st.markdown(plain(finding.message))
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            if any(array.path == finding.array for array in snapshot.arrays):
                st.button(
                    plain(finding.array or ""),
                    key=f"finding:{number}:array",
                    icon=":material/grid_on:",
                    type="tertiary",
                    help="Open its shard map.",
                    on_click=_open,
                    args=(finding.array,),
                )
            if change is not None:
                _draw_fix(f"finding:{number}:make", snapshot, finding, layout)
        if change is not None:
            st.caption(render.markdown(section.fix(change)))
        elif finding.remedy is not None:
            st.caption(plain(finding.remedy))


def show_best(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw the best improvements in one line each: errors, then fixes by bytes, then known effects.

    A fix is searched when its button is clicked, so that the page stays as fast as a planned layout.
    """
    if snapshot.mesh is None:
        return
    fixable = [
        finding
        for finding in audit.ranked(snapshot)
        if layout is not None and audit.may_fix(finding, layout)
    ]
    effects = effects_section.improvements(snapshot)[:MOST_IMPROVEMENTS]
    if not fixable and not effects:
        return
    st.markdown("##### Improvements")
    for number, finding in enumerate(fixable[:MOST_IMPROVEMENTS]):
        show_in_line(f"improvement:{number}", finding, snapshot, layout)
    for sentence in effects[: max(0, MOST_IMPROVEMENTS - len(fixable))]:
        st.markdown(render.markdown(sentence))


def show_urgent(snapshot: Snapshot, layout: Layout, rejected: str | None) -> None:
    """Draw why JAX rejects the layout, and the rules with a name that the model does not have."""
    findings = audit.ranked(snapshot)
    fixable = [one for one in findings if one.level == "error" and audit.may_fix(one, layout)]
    if rejected is not None:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.error(plain(assessed.rejection(rejected)), icon=render.ICONS["error"])
            if fixable:
                _draw_fix("fix_rejected", snapshot, fixable[0], layout)
    for number, finding in enumerate(findings):
        if finding.unknown_name is not None:
            show_in_line(f"fix_name:{number}", finding, snapshot, layout)


def show_in_line(key: str, finding: Finding, snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw a finding and the button that fixes it."""
    kind = section.KINDS[finding.level]
    left, right = page_width.beside([5, 1])
    saving = section.saving(finding)
    left.markdown(
        f":{render.COLORS[kind]}[{render.ICONS[kind]}] **{plain(section.title(finding))}**"
        f"{f' · {saving}' if saving else ''}  \n{plain(finding.message)} "
        f"{plain(finding.remedy or '')}"
    )
    with right:
        _draw_fix(key, snapshot, finding, layout)


def _draw_fix(key: str, snapshot: Snapshot, finding: Finding, layout: Layout | None) -> None:
    st.button(
        "Apply fix",
        key=key,
        icon=":material/build:",
        on_click=_apply,
        args=(snapshot, layout, finding),
    )


def _change(snapshot: Snapshot, finding: Finding, layout: Layout) -> Change | None:
    """Return the smallest change, searched once per layout, finding and set of shapes."""
    text = f"{layout.key()}\n{typed_json.encode(finding)}\n{len(snapshot.arrays)} {snapshot.source.kind}"
    key = hashlib.sha256(text.encode()).hexdigest()
    known: dict[str, Change | None] = st.session_state.setdefault(_CHANGES, {})
    if key not in known:
        if len(known) > _MAX_CHANGES:
            known.clear()
        known[key] = audit.smallest_change(snapshot, finding, layout)
    return known[key]


def _open(path: str | None) -> None:
    selection.select(path)
    st.session_state[_PANEL] = _FIRST


def _apply(snapshot: Snapshot, layout: Layout, finding: Finding) -> None:
    """Pin the current layout, unless it is on the board already, and open the changed one."""
    change = _change(snapshot, finding, layout)
    if change is None:
        st.toast("No change of one rule fixes this finding.", icon=":material/info:")
        return
    on_board = pins.board()
    name = f"{layout.entry.title}, {layouts.print_mesh(layout.mesh_shape)}"
    if not any(pin.snapshot.layout == snapshot.layout for pin in on_board.pins):
        free = board.free_name(name, on_board.names)
        if pins.change(lambda one: one.pinned(free, snapshot)):
            st.toast(f"{plain(free)} is pinned for the comparison.", icon=":material/keep:")
        else:
            st.toast(plain(pins.take_problem() or ""), icon=":material/error:")
    current_layout.put(change.layout)
