"""The Variants page: its verdict names exactly the different leaves."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from tests.media.streamlit.scripted_page import PATIENCE


def variants_of(query: str) -> AppTest:
    """Open the Variants page with this layout."""
    script = f"""
import streamlit as st
from inspector import layout as layouts
from inspector.media.streamlit.pages import variants_page
from inspector.media.streamlit.session import current_layout
if "last_layout" not in st.session_state:
    current_layout.put(layouts.parse(dict(pair.split("=", 1) for pair in {query!r}.split("&"))).unwrap())
variants_page.show()
"""
    return AppTest.from_string(script, default_timeout=PATIENCE).run()


def test_equal_leaves_are_counted() -> None:
    page = variants_of("depth=64&layers=2")
    assert not page.exception
    assert [alert.value for alert in page.success] == ["All 16 leaves have the same sharding, as planned."]


def test_the_trees_list_all_counted_leaves() -> None:
    page = variants_of("depth=64&layers=2")
    for tree in page.dataframe:
        listed = [int(shape.partition(" of ")[0]) if " of " in shape else 1 for shape in tree.value["Shape"]]
        assert sum(listed) == 16


def test_different_leaves_are_counted_and_listed() -> None:
    page = variants_of("depth=64&layers=2&model=mlp&specs=W2=None.model")
    assert page.warning[0].value == "6 of 16 leaves have different shardings, as planned."
    different = page.dataframe[0].value
    assert set(different["Logical axes"]) == {"P('model', None)"}
    assert set(different["Device axes"]) == {"P(None, 'model')"}


def test_the_layer_axis_of_a_scan_is_named() -> None:
    page = variants_of("depth=64&layers=2&rules=layer=data,hidden=model")
    page.button_group(key="pair").set_value("Loop · scan").run()
    assert "layer, sharded over data" in page.info[0].value
