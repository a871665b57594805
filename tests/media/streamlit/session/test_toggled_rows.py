"""Open and closed subtrees of a tree of arrays."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def _page() -> None:
    import streamlit as st

    from inspector import layout as layouts
    from inspector.jobs import inspection
    from inspector.media.streamlit.session.selection import ToggledRows
    from inspector.records.snapshot import Array

    def arrays(**fields: str) -> tuple[Array, ...]:
        return inspection.shared().plan(layouts.parse(fields).unwrap()).arrays

    small, large = arrays(layers="1"), arrays(layers="2")
    ToggledRows("tree", small).pick("params")
    st.session_state["small"] = set(ToggledRows("tree", small).keys())
    st.session_state["large"] = set(ToggledRows("tree", large).keys())
    st.session_state["other"] = set(ToggledRows("other", small).keys())
    ToggledRows("tree", large).pick("params")
    ToggledRows("tree", small).pick("params")
    st.session_state["again"] = set(ToggledRows("tree", small).keys())
    ToggledRows("tree", small).pick(small[0].path)
    ToggledRows("tree", small).pick(["params"])
    st.session_state["kept"] = [set(ToggledRows("tree", kind).keys()) for kind in (small, large)]


def test_a_row_is_toggled_in_the_tree_of_its_arrays_only() -> None:
    page = AppTest.from_function(_page, default_timeout=60).run()
    assert not page.exception
    state = page.session_state
    assert (state["small"], state["large"], state["other"]) == ({"params"}, set(), set())
    assert state["again"] == set()
    assert state["kept"] == [set(), {"params"}]
