"""The fields of the time panel for loops that depend on data: a stated count replaces the lower bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from streamlit.testing.v1 import AppTest

from inspector.records import snapshot as snapshots
from tests.compiled import test_assumed
from tests.figures import samples
from tests.media.streamlit.scripted_page import PATIENCE

SCRIPT = """
import streamlit as st
from inspector.records import snapshot
from inspector.media.streamlit.panels import program_panels, summary_panel
from inspector.media.streamlit.session import chip_choice, stated_counts
chip_choice.put("v5e")
shown = stated_counts.applied(snapshot.read(st.session_state["path"]))
summary_panel.show_opened("run", shown)
program_panels.show_time(shown, None)
"""


def test_a_stated_trip_count_replaces_the_lower_bound(tmp_path: Path) -> None:
    program = test_assumed.compiled(test_assumed.until, test_assumed.LIMIT)
    program = replace(program, platform="tpu")  # a program for CPUs gives no bound for a chip
    snapshot = replace(samples.snapshot(test_assumed.RECORD, ()), programs=(program,))
    path = tmp_path / "run.json"
    snapshots.write(snapshot, path)
    page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE)
    page.session_state["path"] = str(path)
    page.run()
    assert not page.exception
    shown = " ".join(element.value for element in page.markdown)
    assert "A lower bound" in shown
    (field,) = page.number_input
    field.set_value(100).run()
    assert not page.exception
    shown = " ".join(element.value for element in page.markdown)
    assert "A lower bound" not in shown and page.number_input[0].value == 100
