"""Which figures of a page its menus offer as pictures."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def offered(page: AppTest) -> list[str]:
    """The keys of the figures that can be saved as PNG and as SVG, with the menus that are open."""
    keys = [one.key for one in page.get("download_button") if one.key.startswith("picture:")]
    assert [key.rsplit(":", 1)[1] for key in keys] == ["png", "svg"] * (len(keys) // 2)
    return [key.removeprefix("picture:").removesuffix(":png") for key in keys[::2]]


def drawn(page: AppTest) -> list[str]:
    """The keys of the figures on the page."""
    return [one.key for one in page.get("plotly_chart")]
