"""What matters first: the layout in one line, its bytes, and whether it is planned or run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from inspector import layout as layouts
from inspector.core import snapshot
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout, presets
from inspector.media.streamlit import (
    chip_choice,
    keep_button,
    page_width,
    pin_button,
    report_button,
    screenshot_mode,
    state_figures,
)
from inspector.media.streamlit.plain_text import plain

SOURCE_BADGES = {
    "plan": (":material/architecture:", "Planned: nothing compiled", "blue"),
    "cpu": (":material/memory:", "Run: read from live arrays", "green"),
    "tpu": (":material/developer_board:", "Compiled: not run", "violet"),
    "gpu": (":material/developer_board:", "Compiled: not run", "violet"),
}


def show(found: Snapshot, layout: Layout, draw_run: Callable[[], None]) -> None:
    """The layout and how it is known beside the run controls; what can be done with it; its figures."""
    screenshot_mode.hide_controls()
    text, controls = _places()
    with text:
        mesh = " × ".join(f"{axis.name}\N{NO-BREAK SPACE}{axis.size}" for axis in found.mesh.axes)
        machine = f" of {layout.machine.chip.title}" if layout.machine else ""
        st.markdown(f"### {plain(layout.entry.title)} on {plain(mesh + machine)}")
        icon, label, colour = SOURCE_BADGES[found.source.kind]
        st.badge(label, icon=icon, color=colour)
    with controls, screenshot_mode.controls("run"):
        draw_run()
    # Across the page, and not within the column, where they do not stand in one line.
    with screenshot_mode.controls("actions", horizontal=True, gap="small"):
        st.download_button(
            "Snapshot",
            data=lambda: snapshot.dumps(found),
            file_name=f"{layout.model}-{layouts.print_mesh(layout.mesh_shape)}.json",
            mime="application/json",
            key="download_snapshot",
            icon=":material/download:",
            type="tertiary",
            on_click="ignore",
            help="All figures of this page as Snapshot JSON, as `inspect` on the command line.",
        )
        pin_button.show(found, _suggested_name(layout), key="pin")
        keep_button.show(found, _suggested_name(layout), key="keep")
        report_button.show(
            [(layout.entry.title, found)], chip_choice.chosen_chip(), key="layout_report"
        )
        screenshot_mode.draw_button()
    state_figures.show(found, found.mesh.size)
    screenshot_mode.write_provenance([("", found)])


def _places() -> tuple[Any, Any]:
    """Where the heading stands and where a run is: beside it, below it on a narrow page."""
    if page_width.content_px() < page_width.NARROW_PX:
        return st.container(), st.container()
    text, controls = st.columns([3, 2], vertical_alignment="top")
    return text, controls


def _suggested_name(layout: Layout) -> str:
    """What a pin of this layout is called at first: its preset, or its model, and the mesh."""
    preset = presets.matching(layout)
    return f"{preset.name if preset else layout.entry.name} {layouts.print_mesh(layout.mesh_shape)}"
