"""*Copy as code* shows the script of the layout."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from inspector import layout as layouts
from inspector.layout_script import script
from tests.views.scripted_page import PATIENCE

SCRIPT = """
from inspector import layout as layouts
from inspector.views import code_panel
code_panel.show(None, layouts.parse({"mesh": "4x2"}).unwrap())
"""


def test_the_script_is_shown_to_be_copied() -> None:
    page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE).run()
    assert not page.exception
    assert page.code[0].value == script(layouts.parse({"mesh": "4x2"}).unwrap()).strip()
    assert page.code[0].language == "python"
    (button,) = page.get("download_button")
    assert button.proto.label == "Download"
