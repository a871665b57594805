"""All that a Snapshot shows, a tab each: of a layout made here, or of what somebody's job left behind."""

from __future__ import annotations

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.figures import provenance
from inspector.layout import Layout
from inspector.media.streamlit import (
    array_table_panel,
    chart,
    code_panel,
    collectives_panel,
    device_panel,
    findings_panel,
    ledger_panel,
    memory_panel,
    overview_panel,
    shard_map_panel,
    time_panel,
    train_state_panel,
    tree_panel,
)

PANELS = {
    "Shard map": shard_map_panel.show,
    "Findings": findings_panel.show,
    "Rules": ledger_panel.show,
    "Overview": overview_panel.show,
    "PartitionSpec tree": tree_panel.show,
    "Arrays": array_table_panel.show,
    "Collectives": collectives_panel.show,
    "Train state": train_state_panel.show,
    "Memory": memory_panel.show,
    "Time": time_panel.show,
    "Devices": device_panel.show,
    "Code": code_panel.show,
}

FIRST = next(iter(PANELS))


def prepare(found: Snapshot, key: str = "panel") -> None:
    """Make what the open panel shows first, before anything of the page is sent."""
    if st.session_state.get(key, FIRST) == FIRST:
        shard_map_panel.prepare(found)


def show(found: Snapshot, layout: Layout | None, key: str = "panel") -> None:
    """The panel that is open. `layout` is None where nobody knows what made the Snapshot.

    key: of the tabs; each page has its own, so that one does not open the other's panel.
    """
    tabs = st.tabs(list(PANELS), key=key, on_change="rerun")
    for tab, draw in zip(tabs, PANELS.values(), strict=True):
        if tab.open:
            with tab, chart.of(lambda: [provenance.line(found)]):
                draw(found, layout)
