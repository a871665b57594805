"""What a reviewer should be told about the layout, ranked, and a button that makes what mends it."""

from __future__ import annotations

import hashlib

import streamlit as st

from inspector import layout as layouts
from inspector.checks import audit
from inspector.checks.audit import Change
from inspector.compare import board
from inspector.core import record
from inspector.core.formatting import bytes_text, counted
from inspector.core.snapshot import Finding, Level, Snapshot
from inspector.layout import Layout
from inspector.media.streamlit import pins, selection, session
from inspector.media.streamlit.plain_text import plain

_COLOURS: dict[Level, str] = {"error": "red", "warning": "orange", "note": "blue"}
_ICONS: dict[Level, str] = {
    "error": ":material/error:",
    "warning": ":material/warning:",
    "note": ":material/info:",
}
_MOST_SHOWN = 30
_CHANGES = "findings_changes"
_PANEL, _SHARD_MAP = "panel", "Shard map"


def show(found: Snapshot, layout: Layout | None) -> None:
    """Errors first, then by the bytes that mending them saves; what was checked where there is none."""
    if found.mesh is None:
        st.info("This Snapshot has no mesh, so nothing can be checked.", icon=":material/help:")
        return
    findings = audit.together(audit.audited(found).findings)
    _show_summary(findings)
    for number, finding in enumerate(findings[:_MOST_SHOWN]):
        _show_finding(number, finding, found, layout)
    if len(findings) > _MOST_SHOWN:
        st.caption(f"And {counted(len(findings) - _MOST_SHOWN, 'more finding')}, in the Snapshot.")
    with st.expander("What was checked"):
        st.markdown("\n".join(f"- {plain(question)}" for question in audit.questions()))
        st.caption(
            "Arrays that together waste less than 1% of the train state on a device are not told. "
            "Identical layers are one finding."
        )


def _show_summary(findings: tuple[Finding, ...]) -> None:
    serious = [finding for finding in findings if finding.level != "note"]
    if not serious:
        st.success(
            "Nothing is wrong with this layout as far as it can be checked."
            + (" What is worth knowing stands below." if findings else ""),
            icon=":material/check:",
        )
        return
    counts = [
        counted(number, level)
        for level in ("error", "warning", "note")
        if (number := sum(finding.level == level for finding in findings))
    ]
    st.markdown(
        f"**{', '.join(counts)}.** Errors first, then what costs most bytes on each device."
    )


def _show_finding(number: int, finding: Finding, found: Snapshot, layout: Layout | None) -> None:
    change = None if layout is None else _change(found, finding, layout)
    with st.container(border=True, key=f"finding:{number}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.badge(
                finding.level.capitalize(),
                icon=_ICONS[finding.level],
                color=_COLOURS[finding.level],
            )
            st.markdown(f"**{plain(finding.code.replace('-', ' ').capitalize())}**")
            if finding.bytes:
                st.caption(f"up to {bytes_text(finding.bytes)} less on each device if mended")
        st.markdown(plain(finding.message))
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            if any(array.path == finding.array for array in found.arrays):
                st.button(
                    plain(finding.array or ""),
                    key=f"finding:{number}:array",
                    icon=":material/grid_on:",
                    type="tertiary",
                    help="See its shard map.",
                    on_click=_open,
                    args=(finding.array,),
                )
            if change is not None:
                st.button(
                    "Make this layout",
                    key=f"finding:{number}:make",
                    icon=":material/build:",
                    help="Pins this layout to the board and opens the changed one, to compare them.",
                    on_click=_make,
                    args=(found, layout, change),
                )
        if change is not None:
            st.caption(f"Smallest change that mends it: {plain(change.words)} {_saves(change)}")
        elif "remedy" in finding.extra:
            st.caption(plain(str(finding.extra["remedy"])))


def _saves(change: Change) -> str:
    if change.saves is None:
        return "What it saves is not known, because the layout does not fit now."
    if not change.saves:
        return "The train state takes as much of each device as before."
    return (
        f"It saves {bytes_text(change.saves)} of train state on each device, planned, not measured."
    )


def _change(found: Snapshot, finding: Finding, layout: Layout) -> Change | None:
    """The smallest change, looked for once a layout, finding and set of shapes."""
    text = f"{layout.key()}\n{record.encode(finding)}\n{len(found.arrays)} {found.source.kind}"
    key = hashlib.sha256(text.encode()).hexdigest()
    known: dict[str, Change | None] = st.session_state.setdefault(_CHANGES, {})
    if key not in known:
        if len(known) > 200:
            known.clear()
        known[key] = audit.smallest_change(found, finding, layout)
    return known[key]


def _open(path: str | None) -> None:
    selection.select(path)
    st.session_state[_PANEL] = _SHARD_MAP


def _make(found: Snapshot, layout: Layout, change: Change) -> None:
    """Pin what is, unless it is on the board already, and go on with what mends it."""
    on_board = pins.board()
    name = f"{layout.entry.title}, {layouts.print_mesh(layout.mesh_shape)}"
    if not any(pin.snapshot.layout == found.layout for pin in on_board.pins):
        free = board.free_name(name, on_board.names)
        if pins.change(lambda one: one.pinned(free, found)):
            st.toast(f"{plain(free)} is on the board, to compare with.", icon=":material/keep:")
        else:
            st.toast(plain(pins.take_problem() or ""), icon=":material/error:")
    session.put(change.layout)
