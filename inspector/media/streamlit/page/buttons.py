"""Buttons with an icon that call a function."""

from collections.abc import Callable
from typing import Any

import streamlit as st


def draw(label: str, key: str, icon: str, act: Callable[..., Any], *arguments: Any, **settings: Any) -> None:
    """Draw a button that calls `act` with the arguments before the next run of the page.

    Args:
      icon: its name among the Material Symbols.
      settings: those of `st.button`.
    """
    icon = f":material/{icon}:"
    st.button(label, key=key, icon=icon, on_click=act, args=arguments, **settings)
