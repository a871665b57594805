"""The page *Accuracy of predictions*: the runs on the chip of its URL, to which intervals lead."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from inspector.compare.measured import accuracy
from tests.media.streamlit.scripted_page import PATIENCE

SCRIPT = """
from inspector.media.streamlit.pages import accuracy_page
accuracy_page.show()
"""
CHIPS = {row.chip for row in accuracy.shipped().rows if row.error is not None}


def opened(**query: str) -> AppTest:
    page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE)
    page.query_params.update(query)
    page.run()
    assert not page.exception, [exception.value for exception in page.exception]
    return page


def chips(page: AppTest) -> set[str]:
    runs = next(dataframe.value for dataframe in page.dataframe if "Schedule alone" in dataframe.value)
    return set(runs["Chip"])


def test_a_link_shows_the_runs_of_its_chip() -> None:
    page = opened(chip="v5e")
    assert chips(page) == {"v5e"} and not page.warning
    pills = page.button_group[0]
    pills.set_value(pills.options[0]).run()
    assert "chip" not in page.query_params
    assert chips(page) >= CHIPS and len(CHIPS) > 1
    page.button_group[0].set_value("TPU v5p").run()
    assert page.query_params["chip"] in ("v5p", ["v5p"]) and chips(page) == {"v5p"}


@pytest.mark.parametrize("text", ["<b>", "v9", ""])
def test_an_unknown_chip_is_named(text: str) -> None:
    page = opened(chip=text)
    assert "must be one of" in page.warning[0].value and "<b>" not in page.warning[0].value
    assert chips(page) >= CHIPS
