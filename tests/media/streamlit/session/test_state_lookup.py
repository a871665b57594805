"""Widgets look their values up in the state of the session, which is not copied."""

from __future__ import annotations

from typing import Any
from unittest import mock

import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from inspector.answers import whole_model as sections
from inspector.audit import checks
from inspector.layout import plan as plans
from inspector.media.streamlit import streamlit_internals
from inspector.media.streamlit.session import planning
from inspector.sharding.once import NewestResults
from tests.media.streamlit.scripted_page import PATIENCE

pytestmark = pytest.mark.usefixtures("without_programs")

FIELDS = """
import streamlit as st
for number, widget in enumerate((st.text_input, st.number_input, st.text_area)):
    st.session_state.setdefault(f"empty:{number}", None)
    st.session_state.setdefault(f"full:{number}", 3 if widget is st.number_input else "text")
    widget("Empty", key=f"empty:{number}")
    widget("Full", key=f"full:{number}")
st.session_state.setdefault("list", None)
st.selectbox("Empty", ["a", "b"], key="list")
st.text(sorted(st.session_state) == sorted(st.session_state.to_dict()))
"""


def values(script: str) -> list[Any]:
    page = AppTest.from_string(script, default_timeout=PATIENCE).run()
    assert not page.exception
    elements = (*page.text_input, *page.number_input, *page.text_area, *page.selectbox)
    return [*(element.value for element in elements), *(text.value for text in page.text)]


def test_fields_have_the_values_that_streamlit_gives_them() -> None:
    install = (
        "from inspector.media.streamlit import streamlit_internals\nstreamlit_internals.look_values_up()\n"
    )
    own = streamlit_internals.SessionState.filtered_state
    try:
        streamlit_internals.SessionState.filtered_state = property(streamlit_internals._copied)
        expected = values(FIELDS)
        assert values(install + FIELDS) == expected == [None, "text", None, 3, None, "text", None, "True"]
    finally:
        streamlit_internals.SessionState.filtered_state = own


def test_a_run_without_a_change_copies_plans_audits_and_draws_nothing(page: Any) -> None:
    with (
        mock.patch.object(sections, "draw", wraps=sections.draw) as drawn,
        mock.patch.object(go.Figure, "to_json", autospec=True, side_effect=go.Figure.to_json) as encoded,
        mock.patch.object(streamlit_internals, "_copied", side_effect=AssertionError("copied")),
        mock.patch.object(planning, "snapshots", NewestResults(8)),  # other tests have filled it
        mock.patch.object(planning, "plan", wraps=plans.plan) as planned,
        mock.patch.object(checks, "audit", wraps=checks.audit) as audited,
    ):
        page.test.run()
        planned.reset_mock()
        audited.reset_mock()
        drawn.reset_mock()
        encoded.reset_mock()
        page.test.run()
        page._check()
        assert (planned.call_count, audited.call_count) == (0, 0)
        assert (drawn.call_count, encoded.call_count) == (0, 0)
        page.type(page.rule_key(1, "axes"), "data")
        assert (planned.call_count, audited.call_count) == (1, 1)
        assert drawn.call_count == 1
        page.type(page.rule_key(1, "axes"), "model")  # as before
        assert (planned.call_count, audited.call_count) == (1, 1)
