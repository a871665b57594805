"""Memory of one device: whether the layout fits the chosen chip, and what could be saved."""

from __future__ import annotations

from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.machines.prediction.memory import duplication_by_array
from inspector.media.streamlit import chip_choice, page_width, render, table
from inspector.sections import memory


def show(snapshot: Snapshot, _: Layout | None) -> None:
    """Draw the verdict and the choice of the chip, then the parts, then replicated data."""
    verdict, choice = page_width.beside([3, 1])
    with choice:
        chip = chip_choice.draw(snapshot)
    with verdict:
        render.show([memory.verdict(snapshot, chip)])
    render.show(memory.programs(snapshot, chip))
    paths = [one.name for one in duplication_by_array(snapshot)]
    pick = table.array_picker(
        paths, "memory_selected", "Most duplicated bytes first. Select a row to see its shard map."
    )
    render.show(memory.duplication(snapshot), {"duplication_by_array": pick})
