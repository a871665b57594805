"""What a callback changes is changed as a whole, although a click can arrive in the middle."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.media.streamlit.scripted_page import PATIENCE

pytestmark = pytest.mark.usefixtures("without_programs")

CLICK = """
import streamlit as st
from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx

def click_arrives():
    get_script_run_ctx().script_requests.request_rerun(RerunData())
"""
TWO_CHANGES = f"""{CLICK}
from inspector.media.streamlit.streamlit_internals import uninterrupted

def change(name):
    st.session_state[name + " 1"] = True
    click_arrives()
    st.session_state[name + " 2"] = True

@uninterrupted()
def change_both():
    with uninterrupted():
        change("whole")
    click_arrives()
    st.session_state["after"] = True

st.button("Part", on_click=change, args=("part",))
st.button("Whole", on_click=change_both)
st.session_state["runs"] = st.session_state.get("runs", 0) + 1
"""
MODEL = f"""{CLICK}
from inspector import layout as layouts
from inspector.media.streamlit.session import current_layout, kept_field

if "last_layout" not in st.session_state:
    current_layout.put(layouts.parse({{"model": "logical_mlp"}}).unwrap())

def change():
    click_arrives()
    current_layout.change_model()

kept_field.draw(
    st.selectbox, "Model", ["logical_mlp", "moe", "transformer"], key="field:model", on_change=change
)
layout = current_layout.parsed().unwrap()
st.text("default" if layout == layouts.parse({{"model": layout.model}}).unwrap() else "mixed")
st.text(layout.model)
"""


def test_a_click_in_the_middle_waits() -> None:
    page = AppTest.from_string(TWO_CHANGES, default_timeout=PATIENCE).run()
    page.button[0].click().run()
    assert "part 1" in page.session_state and "part 2" not in page.session_state  # Streamlit's own way
    runs = page.session_state["runs"]
    page.button[1].click().run()
    assert all(key in page.session_state for key in ("whole 1", "whole 2", "after"))
    assert page.session_state["runs"] > runs
    page.button[0].click().run()  # the state is interrupted again as before
    assert "part 2" not in page.session_state


@pytest.mark.parametrize("model", ["moe", "transformer"])
def test_a_click_while_the_model_changes(model: str) -> None:
    page = AppTest.from_string(MODEL, default_timeout=PATIENCE).run()
    page.selectbox[0].select(model).run()
    assert [text.value for text in page.text] == ["default", model]
