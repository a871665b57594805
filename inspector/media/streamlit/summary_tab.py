"""The tab *Summary*: the verdict, the shard map of one array, and the best improvements."""

from __future__ import annotations

from inspector.assessment import assess
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.media.streamlit import chip_choice, findings_panel, render, shard_map_panel
from inspector.sections import assessed


def show(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw the verdict in one line, then the map, the improvements, and the details of the array."""
    render.show([assessed.verdict(assess(snapshot, chip_choice.chosen_chip()))])
    shard_map_panel.show(snapshot, layout, lambda: findings_panel.show_best(snapshot, layout))
