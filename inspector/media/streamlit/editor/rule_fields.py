"""Fields of rules in the browser: they take effect while the user types, and a new one has the focus."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

import streamlit as st

from inspector.media.streamlit.page import page_files


def draw(logical_axes: Iterable[str], mesh_axes: Iterable[str], new: str | None) -> None:
    """Draw the invisible component.

    Args:
      logical_axes: the names that are complete in the first field of a rule.
      mesh_axes: the names that are complete in its second field, alone or joined.
      new: the key of the field that gets the focus, or None.
    """
    focus = None if new is None else re.sub(r"[^\w-]", "-", new)
    data = {"names": [*logical_axes], "axes": [*mesh_axes], "focus": focus}
    _component()(data=data, key="rule_fields", width=1, height=1)


@functools.cache
def _component() -> Callable[..., Any]:
    return st.components.v2.component(
        "rule_fields", html="<span></span>", js=page_files.text("rule_fields.js")
    )
