"""The question the other way round: what a device holds, and what is lost with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from inspector.core import device_holdings
from inspector.core.device_holdings import Holdings, Piece
from inspector.core.formatting import bytes_text, counted, devices_text, ranges_text
from inspector.core.snapshot import Mesh, Snapshot
from inspector.core.totals import STATE_GROUPS
from inspector.figures.copies_map import copies_map
from inspector.figures.holding_bars import holding_bars
from inspector.layout import Layout
from inspector.media.streamlit import (
    chart,
    not_known,
    page_width,
    selection,
    table,
)
from inspector.media.streamlit.plain_text import plain

ONE, PROCESS, SEVERAL = "One device", "One process", "Several devices"
STATE, EVERYTHING = "Train state", "All arrays"

_WHICH, _DEVICES, _PROCESS = "device_which", "device_devices", "device_process"
_DEVICE, _GROUPS, _SELECTED = "device_device", "device_groups", "device_selected"
_MOST_RANGES = 2  # index ranges in one cell of the table


def show(found: Snapshot, _: Layout | None) -> None:
    """Choose devices; what would be lost first, then all that they hold."""
    mesh = found.mesh
    if mesh is None or not_known.no_arrays(found):
        not_known.no_mesh(found)
        return
    devices = _choose(found, mesh)
    if not devices:
        st.info("Choose at least one device.", icon=":material/touch_app:")
        return
    groups = _choose_groups(found)
    held = device_holdings.holdings(found, devices, groups)
    _show_verdict(held)
    left, right = page_width.halves()
    width_px = page_width.half_px()
    with left:
        bars = holding_bars(held, width_px=width_px)
        if bars is not None:
            chart.draw(bars, "holding_bars", alt="What is held, by group")
    with right:
        copies = device_holdings.copies_of(found, devices, groups)
        figure = copies_map(mesh, copies, devices, held.bytes or 0, width_px=width_px)
        if figure is not None:
            chart.show(figure, "copies_map", alt="Who else holds it", on_pick=_pick)
            st.caption("Click a device to ask about it.")
    _show_table(held)
    if held.unknown:
        st.caption(
            f"Not counted: {counted(len(held.unknown), 'array')} whose placement is not known, such as "
            f"{plain(held.unknown[0])}."
        )


def columns(pieces: Sequence[Piece]) -> dict[str, list[Any]]:
    """An entry an array; sizes as numbers, so that they sort."""
    return {
        "Path": [piece.path for piece in pieces],
        "Index": [_index_text(piece) for piece in pieces],
        "Bytes": table.numbers([piece.bytes for piece in pieces]),
        "Only here": table.numbers([piece.alone for piece in pieces]),
        "Copies elsewhere": [piece.elsewhere for piece in pieces],
        "Also on": [
            devices_text(piece.holders) if piece.holders else "nowhere" for piece in pieces
        ],
        "Type": [piece.dtype for piece in pieces],
    }


def verdict(held: Holdings) -> str:
    """What is lost if all of these devices die, in a sentence."""
    one = len(held.devices) == 1
    who = f"device {held.devices[0]}" if one else f"devices {devices_text(held.devices)}"
    dies = "dies" if one else "die together"
    if held.alone is None:
        return f"How much is lost if {who} {dies} is unknown: the bytes of an array are not known."
    if not held.alone:
        return f"Nothing is lost if {who} {dies}: other devices hold a copy of all {bytes_text(held.bytes)}."
    lost = held.lost
    return (
        f"If {who} {dies}, {bytes_text(held.alone)} of {counted(len(lost), 'array')} are lost: no other "
        f"device holds them. The largest is {lost[0].path}."
    )


def _choose(found: Snapshot, mesh: Mesh) -> tuple[int, ...]:
    processes = sorted(set(mesh.processes or ()))
    ways = [ONE, *([PROCESS] if len(processes) > 1 else []), SEVERAL]
    if st.session_state.get(_WHICH) not in ways:
        st.session_state[_WHICH] = ONE
    left, right = _places()
    with left:
        which = st.segmented_control(
            "Ask about", ways, key=_WHICH, required=True, label_visibility="collapsed"
        )
    with right:
        if which == PROCESS:
            if st.session_state.get(_PROCESS) not in processes:
                st.session_state[_PROCESS] = processes[0]
            process = st.selectbox("Process", processes, key=_PROCESS)
            return device_holdings.devices_of_process(found, process)
        if which == SEVERAL:
            st.session_state[_DEVICES] = [
                device for device in st.session_state.get(_DEVICES, ()) if device in mesh.devices
            ] or [mesh.devices[0]]
            return tuple(st.multiselect("Devices", mesh.devices, key=_DEVICES))
        if st.session_state.get(_DEVICE) not in mesh.devices:
            st.session_state[_DEVICE] = mesh.devices[0]
        return (st.selectbox("Device", mesh.devices, key=_DEVICE),)


def _places() -> tuple[Any, Any]:
    """Where it is chosen what to ask about, and which: one under the other on a narrow page."""
    if page_width.content_px() < page_width.NARROW_PX:
        return st.container(), st.container()
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    return left, right


def _choose_groups(found: Snapshot) -> tuple[str, ...] | None:
    """The groups that count: the train state, which is what is lost, unless all are asked for."""
    there = {array.group for array in found.arrays}
    if not there - set(STATE_GROUPS) or not there & set(STATE_GROUPS):
        return None
    st.session_state.setdefault(_GROUPS, STATE)
    chosen = st.segmented_control(
        "Of", [STATE, EVERYTHING], key=_GROUPS, required=True, label_visibility="collapsed"
    )
    return STATE_GROUPS if chosen == STATE else None


def _show_verdict(held: Holdings) -> None:
    said = plain(verdict(held))
    if held.alone is None:
        st.info(said, icon=":material/help:")
    elif held.alone:
        st.warning(said, icon=":material/heart_broken:")
    else:
        st.success(said, icon=":material/content_copy:")


def _show_table(held: Holdings) -> None:
    pieces = sorted(held.pieces, key=lambda piece: (-(piece.alone or 0), -(piece.bytes or 0)))
    if not pieces:
        st.info("It holds nothing.", icon=":material/block:")
        return
    number = st.column_config.NumberColumn(format="localized")
    shown = columns(pieces)
    event = table.show(
        shown,
        "device_table",
        height=min(38 + 35 * len(pieces), 420),
        on_select="rerun",
        selection_mode="single-row",
        column_config=table.of_numbers(shown, {"Bytes": number, "Only here": number}),
    )
    if event.selection.rows:
        path = pieces[event.selection.rows[0]].path
        if path != st.session_state.get(_SELECTED):
            st.session_state[_SELECTED] = path
            selection.select(path)
        st.caption(f"{plain(path)} is the array of the shard map now.")
    else:
        st.caption("What nobody else holds comes first. Select a row to see its shard map.")


def _pick(device: int | None) -> None:
    if device is not None:
        st.session_state[_WHICH], st.session_state[_DEVICE] = ONE, device


def _index_text(piece: Piece) -> str:
    texts = [ranges_text(index) for index in piece.index[:_MOST_RANGES]]
    more = len(piece.index) - len(texts)
    return ", ".join(texts) + (f" and {counted(more, 'more piece')}" if more else "")
