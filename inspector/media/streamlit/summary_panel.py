"""The head of the Layout page: model and mesh, source, actions, and the size of the train state."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from inspector import layout as layouts
from inspector.core.formatting import mesh_text
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout, presets
from inspector.media.streamlit import (
    chip_choice,
    downloads,
    keep_button,
    page_width,
    pin_button,
    render,
    report_button,
    screenshot_mode,
)
from inspector.media.streamlit.plain_text import plain
from inspector.sections import summary

SOURCE_BADGES = {
    "plan": (":material/architecture:", "Planned, not compiled", "blue"),
    "cpu": (":material/memory:", "Run on emulated devices", "green"),
    "tpu": (":material/developer_board:", "Compiled, not run", "violet"),
    "gpu": (":material/developer_board:", "Compiled, not run", "violet"),
}


def show(snapshot: Snapshot, layout: Layout, draw_run: Callable[[], None]) -> None:
    """Draw the heading and the run controls, then the actions, then four facts."""
    screenshot_mode.hide_controls()
    text, controls = page_width.beside([3, 2], align="top")
    with text:
        mesh = mesh_text(snapshot.mesh)
        machine = f" of {layout.machine.chip.title}" if layout.machine else ""
        st.markdown(f"### {plain(layout.entry.title)} on {plain(mesh + machine)}")
        icon, label, color = SOURCE_BADGES[snapshot.source.kind]
        st.badge(label, icon=icon, color=color)
    with controls, screenshot_mode.controls("run"):
        draw_run()
    # Across the page, because the column is too narrow for one line of buttons.
    with screenshot_mode.controls("actions", horizontal=True, gap="small"):
        downloads.of_snapshot(
            snapshot,
            f"{layout.model}-{layouts.print_mesh(layout.mesh_shape)}.json",
            "download_snapshot",
            "The data of this page as Snapshot JSON, the same as `inspect` writes.",
        )
        pin_button.show(snapshot, _suggested_name(layout), key="pin")
        keep_button.show(snapshot, _suggested_name(layout), key="keep")
        report_button.show(
            [(layout.entry.title, snapshot)], chip_choice.chosen_chip(), key="layout_report"
        )
        screenshot_mode.draw_button()
    render.show([summary.totals(snapshot)])
    screenshot_mode.write_provenance([("", snapshot)])


def _suggested_name(layout: Layout) -> str:
    """Return the suggested name of a pin: the preset or the model, and the mesh."""
    preset = presets.matching(layout)
    return f"{preset.name if preset else layout.entry.name} {layouts.print_mesh(layout.mesh_shape)}"
