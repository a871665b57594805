"""A small menu that is drawn only while it is open: what nobody sees makes every change of a page slower."""

from __future__ import annotations

from typing import Any

import streamlit as st


def menu(label: str, icon: str, key: str, help: str | None = None) -> Any:
    """The container of its content, to be filled only if its `open` is true."""
    return st.popover(label, icon=icon, type="tertiary", key=key, on_change="rerun", help=help)
