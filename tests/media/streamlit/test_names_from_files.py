"""Names in files cannot move, hide or reorder text on a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.media import hostile

BAD = "\u202eevil\x1b[31m\u2028\u200f"
SCRIPT = """
import streamlit as st
from inspector.core import snapshot
from inspector.media.streamlit import snapshot_panels, summary_panel
found = snapshot.read(st.session_state.path)
if st.session_state.name == "summary":
    summary_panel.show_opened("a", found)
else:
    snapshot_panels.PANELS[st.session_state.name](found, None)
"""


def displayed(node: Any) -> Iterator[str]:
    """Yield every text that the browser shows of an element and of those inside it."""
    proto = getattr(node, "proto", None)
    if node.type == "plotly_chart":
        spec = json.loads(proto.spec)
        for trace in spec["data"]:
            for hidden in ("customdata", "ids", "parents"):  # for clicks, and to join a tree
                trace.pop(hidden, None)
        yield json.dumps(spec, ensure_ascii=False)
    elif node.type == "dataframe":
        yield node.value.to_csv()
    if proto is not None:
        for field, value in proto.ListFields():
            if field.name not in ("id", "spec"):
                yield from [value] if isinstance(value, str) else []
                if field.name == "options":
                    yield from map(str, value)
    for child in getattr(node, "children", {}).values():
        yield from displayed(child)


@pytest.mark.parametrize("name", ["Shard map", "Arrays", "Collectives", "Memory", "summary"])
def test_pages(shown: Any, name: str) -> None:
    page = shown(hostile.snapshot(BAD), name=name)
    texts = list(displayed(page._tree))
    assert any("evil" in text for text in texts)
    for text in texts:
        assert not set(BAD) & set("\u202e\x1b\u2028\u200f") & set(text), ascii(text)[:200]
