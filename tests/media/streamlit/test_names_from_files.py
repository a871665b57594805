"""Names in files cannot move, hide or reorder text on a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from inspector.machines.hardware import CHIPS
from inspector.media.markdown import plain as github_text
from inspector.media.streamlit.page.plain_text import plain as page_text
from tests.media import hostile
from tests.media.streamlit.drawn_figures import figure_of

BAD = "\u202eevil\x1b[31m\u2028\u200f"
# What Streamlit makes something else of: emoji, icons, colors, formulas, code, links, HTML, emphasis.
MARKUP = ":tada: :material/home: :red[r] $x$ `c` [l](http://e.example/) <b>h</b> *i* ~~d~~ :streamlit: # "
READ = re.compile(r":[\w+-]+:|:material/|:streamlit|:red\[|\$x\$|\]\(|<b>|\*i\*|~~d|https?://|\be\.example")
SCRIPT = """
import streamlit as st
from inspector.records import snapshot
from inspector.media.streamlit.panels import snapshot_panels, summary_panel
found = snapshot.read(st.session_state.path)
if st.session_state.name == "summary":
    summary_panel.show_opened("a", found)
else:
    tab, _, view = st.session_state.name.partition(", ")
    st.session_state["arrays_view"] = view or "Table"
    snapshot_panels.PANELS[tab](found, None)
"""


def displayed(node: Any) -> Iterator[str]:
    """Yield every text that the browser shows of an element and of those inside it."""
    proto = getattr(node, "proto", None)
    figure = figure_of(node)
    if figure is not None:
        spec = json.loads(figure.spec)
        for trace in spec["data"]:
            for hidden in ("customdata", "ids", "parents"):  # for clicks, and to join a tree
                trace.pop(hidden, None)
        yield json.dumps(spec, ensure_ascii=False)
        yield figure.alt
    elif node.type == "dataframe":
        yield node.value.to_csv()
    if proto is not None:
        for field, value in proto.ListFields():
            if field.name != "id" and node.type != "bidi_component":
                yield from [value] if isinstance(value, str) else []
                if field.name == "options":
                    yield from map(str, value)
    for child in getattr(node, "children", {}).values():
        yield from displayed(child)


def markdown_of(node: Any) -> Iterator[str]:
    """Yield every text that the browser reads as Markdown, without what is escaped and without code."""
    proto = getattr(node, "proto", None)
    if proto is not None and node.type != "bidi_component":
        for field, value in proto.ListFields():
            if field.name in ("body", "label", "help", "delta", "text") and isinstance(value, str):
                yield re.sub(r"`[^`]*`", "", re.sub(r"\\.", "", value))
            if field.name == "options" and node.type == "button_group":
                yield from (re.sub(r"\\.", "", option.content) for option in value)
    for child in getattr(node, "children", {}).values():
        yield from markdown_of(child)


@pytest.mark.parametrize("name", ["Communication", "Memory", "Arrays, Rules", "summary"])
def test_markup_in_names_is_text(shown: Any, name: str) -> None:
    page = shown(hostile.snapshot(f"evil{MARKUP}"), name=name)
    texts = list(markdown_of(page._tree))
    assert any("evil" in text for text in texts)
    for text in texts:
        # The icons of a heading or a notice are our own.
        own = re.sub(r"^(:\w+\[)?:material/\w+: ", "", text)
        assert "evil" not in text or not READ.search(own), text[:300]


@pytest.mark.parametrize("name", ["Summary", "Arrays", "Communication", "Memory", "summary"])
def test_pages(shown: Any, name: str) -> None:
    page = shown(hostile.snapshot(BAD), name=name)
    texts = list(displayed(page._tree))
    assert any("evil" in text for text in texts)
    for text in texts:
        assert not set(BAD) & set("\u202e\x1b\u2028\u200f") & set(text), ascii(text)[:200]


@pytest.mark.parametrize("chip", CHIPS)
def test_a_target_is_copied_from_a_page_as_it_is_typed(chip):
    target = f"tpu:{chip}:4x4*2"
    assert re.sub(r"\\(.)", r"\1", page_text(target)) == target
    assert github_text(target).replace("\\", "") == target
