"""Style sheets and scripts of this package."""

import functools
from collections.abc import Callable
from importlib import resources
from typing import Any

import streamlit as st


@functools.cache
def text(name: str) -> str:
    """Return the text of a file next to this module."""
    return resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def style(name: str) -> str:
    """Return a style sheet as an HTML element."""
    return f"<style>{text(name)}</style>"


@functools.cache
def component(name: str) -> Callable[..., Any]:
    """Return the invisible component with the script `NAME.js`."""
    return st.components.v2.component(name, html="<span></span>", js=text(f"{name}.js"))
