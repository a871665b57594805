"""The figures of a page, and the figures that its Pictures dialogs offer for download."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from tests.media.streamlit.drawn_figures import figures


def offered(page: AppTest, *buttons: str) -> list[str]:
    """Return the keys of the figures that the dialogs of these buttons offer as PNG and SVG."""
    figures = []
    for button in buttons or ("pictures",):
        page.button(key=button).click().run()
        keys = [one.key for one in page.get("download_button") if one.key.startswith("picture:")]
        assert [key.rsplit(":", 1)[1] for key in keys] == ["png", "svg"] * (len(keys) // 2)
        figures += [key.removeprefix("picture:").removesuffix(":png") for key in keys[::2]]
    return figures


def drawn(page: AppTest) -> list[str]:
    """Return the keys of the figures on the page."""
    return [figure.key for figure in figures(page)]
