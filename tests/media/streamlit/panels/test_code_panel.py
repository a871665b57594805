"""The dialog *Code* shows the script of the layout."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from inspector import layout as layouts
from inspector.layout.script import script
from inspector.model import ModelEntry
from inspector.model.built_in import catalogue
from tests.media.streamlit.scripted_page import PATIENCE

SCRIPT = """
from inspector import layout as layouts
from inspector.media.streamlit.panels import summary_panel
summary_panel.show_code(layouts.parse({"mesh": "4x2"}).unwrap())
"""


def test_the_script_is_shown() -> None:
    page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE).run()
    assert not page.exception
    assert page.code[0].value == script(layouts.parse({"mesh": "4x2"}).unwrap()).strip()
    assert page.code[0].language == "python"
    (button,) = page.get("download_button")
    assert button.proto.label == "Download"


@pytest.mark.parametrize("module", ["theirs.of_them", "theirs.class"])
def test_a_custom_model_has_a_script_or_a_reason(module: str, monkeypatch) -> None:
    name = f"{module}:build"
    entry = ModelEntry(name, name, name, (), {"a": "a dimension"}, (), {}, own=True)
    monkeypatch.setitem(catalogue.CATALOGUE, name, entry)
    page = AppTest.from_string(
        SCRIPT.replace('{"mesh": "4x2"}', f'{{"mesh": "4x2", "model": "{name}"}}'),
        default_timeout=PATIENCE,
    ).run()
    assert not page.exception
    if module.endswith("class"):
        assert "'class' is not one" in page.info[0].value
        assert not page.code and not page.get("download_button")
        return
    assert "from theirs.of_them import build" in page.code[0].value
    caption = page.caption[0].value.replace("\\", "")
    assert "theirs.of_them" in caption and "Optax" not in caption
