"""The four figures that head a page: devices, the train state once and on each device, its copies."""

from __future__ import annotations

import streamlit as st

from inspector.core.formatting import bytes_text, elements_text, times_text
from inspector.core.snapshot import Snapshot
from inspector.core.totals import in_elements, state_totals

_LEAST_PX = 90  # `96.0 MiB` and `Per device` with its question mark; four stand on a page 800 wide


def show(found: Snapshot, devices: int | None) -> None:
    """One row of them.

    Args:
      devices: how many the Snapshot is of; None where it does not say.
    """
    elements = in_elements(found)  # known also of a file that names no types
    totals = state_totals(elements or found)
    once, held = bytes_text(totals.bytes), bytes_text(totals.per_device)
    labels, unit = ("Train state", "Per device"), "Bytes"
    if elements is not None:
        once, held = (
            elements_text(count).partition(" element")[0]
            for count in (totals.bytes, totals.per_device)
        )
        labels, unit = ("Elements", "Elements a device"), "Elements"
    row = st.grid(4, min_column_width=_LEAST_PX)
    row.metric("Devices", "unknown" if devices is None else f"{devices:,}")
    row.metric(labels[0], once, help="Parameters, optimizer state and step, once.")
    row.metric(labels[1], held, help="Train state that each device holds.")
    ends = (
        ""
        if devices is None
        else f": 1 is no replication, {devices}, the number of devices, is full replication"
    )
    row.metric(
        "Copies",
        "unknown" if totals.copies is None else f"{times_text(totals.copies)}×",
        help=f"{unit} of train state on all devices over those of one train state{ends}.",
    )
