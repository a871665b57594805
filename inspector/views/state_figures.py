"""The four figures that head a page: devices, the train state once and on each device, its copies."""

from __future__ import annotations

import streamlit as st

from inspector.snapshot import Snapshot
from inspector.totals import state_totals
from inspector.wording import bytes_text, times_text

_LEAST_PX = 90  # `96.0 MiB` and `Per device` with its question mark; four stand on a page 800 wide


def show(found: Snapshot, devices: int | None) -> None:
    """One row of them.

    Args:
      devices: how many the Snapshot is of; None where it does not say.
    """
    totals = state_totals(found)
    row = st.grid(4, min_column_width=_LEAST_PX)
    row.metric("Devices", "unknown" if devices is None else f"{devices:,}")
    row.metric(
        "Train state", bytes_text(totals.bytes), help="Parameters, optimizer state and step, once."
    )
    row.metric(
        "Per device", bytes_text(totals.per_device), help="Train state that each device holds."
    )
    ends = (
        ""
        if devices is None
        else f": 1 is no replication, {devices}, the number of devices, is full replication"
    )
    row.metric(
        "Copies",
        "unknown" if totals.copies is None else f"{times_text(totals.copies)}×",
        help=f"Bytes of train state on all devices over bytes of one train state{ends}.",
    )
