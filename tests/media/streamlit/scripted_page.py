"""A session of the page without a browser: user actions and drawn elements."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from typing import Any
from unittest import mock

from streamlit.testing.v1 import AppTest, local_script_runner

from inspector.media.streamlit.panels import arrays_panels, snapshot_panels
from inspector.media.streamlit.session import selection
from tests.media.streamlit.drawn_figures import figures
from tests.paths import ROOT

SCRIPT = ROOT / "inspector" / "media" / "streamlit" / "pages" / "entry.py"
# Every tab, and the tab *Arrays* with each of its views: the states `panel` and `arrays_view`.
PLACES = [
    (tab, view)
    for tab in snapshot_panels.PANELS
    for view in (arrays_panels.VIEWS if tab == "Arrays" else ["Table"])
]
PATIENCE = 120.0  # seconds until a script that does not end fails the test


def _key_of(widget_key: str) -> str:
    """Return the key of the field that a widget of `kept_field` shows."""
    return re.sub(r"\.\d+$", "", widget_key)


class LonePage:
    """One session of one page, without a browser and without the rest of the app."""

    def __init__(self, test: AppTest, **state: Any) -> None:
        self.test = test
        for key, value in state.items():
            test.session_state[key] = value
        self.run()

    def run(self) -> None:
        self.test.run()
        assert not self.test.exception, [error.value for error in self.test.exception]


class ScriptedPage:
    """One session of the page, without a browser."""

    def __init__(self, **query: str) -> None:
        self.test = AppTest.from_file(SCRIPT, default_timeout=PATIENCE)
        self.test.query_params.update(query)
        self.test.run()
        self._check()

    def type(self, key: str, text: str) -> None:
        """Fill a text field."""
        self._do(widget_of(self.test.text_input, key).set_value(text))

    def set(self, key: str, number: float) -> None:
        """Set a number field."""
        self._do(widget_of(self.test.number_input, key).set_value(number))

    def choose(self, key: str, value: str) -> None:
        """Choose an option of a list."""
        self._do(widget_of(self.test.selectbox, key).set_value(value))

    def switch(self, key: str, on: bool) -> None:
        self._do(widget_of(self.test.toggle, key).set_value(on))

    def press(self, key: str) -> None:
        """Click a button."""
        self._do(self.test.button(key=key).click())

    def act_on_rule(self, position: int, action: str) -> None:
        """Choose from the menu of a rule, counted from 0."""
        menu = self.test.menu_button(key=self.rule_key(position, "menu"))
        self._do(menu.click(action))

    def open(self, drawer: str) -> None:
        """Open an expander or a popover."""
        self.test.session_state[drawer] = True
        self._do(self.test)

    def open_panel(self, name: str, view: str | None = None) -> None:
        """Open a tab of the Layout page, and a view of the tab *Arrays*."""
        self.test.session_state["panel"] = name
        if view is not None:
            self.test.session_state[selection.VIEW_KEY] = view
        self._do(self.test)

    def choose_preset(self, name: str) -> None:
        self._do(widget_of([*self.test.button_group, *self.test.selectbox], "preset").set_value(name))

    def preset(self) -> str | None:
        """Return the selected preset."""
        return widget_of([*self.test.button_group, *self.test.selectbox], "preset").value

    def choose_several(self, key: str, values: list[str]) -> None:
        """Choose options of pills."""
        self._do(widget_of(self.test.button_group, key).set_value(values))

    def value(self, key: str) -> Any:
        """Return the value of the widget with this key."""
        for element in self._sidebar():
            if element.key and _key_of(element.key) == key:
                return element.value
        raise KeyError(f"{key} is not in the sidebar")

    def field_keys(self) -> list[str]:
        """Return the keys of the sidebar's widgets, from top to bottom."""
        return [_key_of(element.key) for element in self._sidebar() if element.key]

    def rules(self) -> list[tuple[str, str]]:
        """Return logical axis and mesh axes of each rule."""
        texts = [self.value(key) for key in self.field_keys() if re.match(r"rule:\d+:(name|axes)$", key)]
        return list(zip(texts[::2], texts[1::2], strict=True))

    def rule_key(self, position: int, what: str) -> str:
        """Return the key of a rule's field (`name`, `axes`) or `menu`."""
        names = [key for key in self.field_keys() if re.match(r"rule:\d+:name$", key)]
        number = names[position].split(":")[1]
        return f"rule_menu:{number}" if what == "menu" else f"rule:{number}:{what}"

    def problems(self) -> list[str]:
        """Return all problems in the sidebar."""
        return [sentence for element in self._sidebar() if (sentence := _problem(element))]

    def problems_beside(self, *keys: str) -> list[str]:
        """Return the problems between these fields, which share a line, and the next field."""
        found: list[str] = []
        reached = False
        for element in self._sidebar():
            if element.key and _key_of(element.key) in keys:
                reached, found = True, []
            elif reached and (sentence := _problem(element)):
                found.append(sentence)
            elif reached and element.key and element.type != "menu_button":
                break  # the menu belongs to the rule
        return found

    def heading(self) -> str:
        return next(text.value for text in self.test.main.markdown if text.value.startswith("###"))

    def warnings(self) -> list[str]:
        return [_plain(warning.value) for warning in self.test.warning]

    def errors(self) -> list[str]:
        return [_plain(error.value) for error in self.test.error]

    def query(self) -> dict[str, str]:
        """Return the fields of the URL."""
        return {name: "".join(value) for name, value in self.test.query_params.items()}

    def block_map(self) -> list[list[str]]:
        """Return the texts in the cells of the block map, row by row, of the tab *Arrays*."""
        if not any(figure.key == "block_map" for figure in figures(self.test)):
            self.open_panel("Arrays")
        chart = next(figure for figure in figures(self.test) if figure.key == "block_map")
        return json.loads(chart.spec)["data"][0]["text"]

    def _do(self, changed: Any) -> None:
        changed.run()
        self._check()

    def _check(self) -> None:
        assert not self.test.exception, [error.value for error in self.test.exception]

    def _sidebar(self) -> list[Any]:
        return [element for element in self.test.sidebar if hasattr(element, "value")]


def go_back(test: AppTest) -> None:
    """Run the page as the browser's back button does; the test sets the query parameters before."""
    backwards = functools.partial(local_script_runner.RerunData, is_history_navigation=True)
    with mock.patch.object(local_script_runner, "RerunData", backwards):
        test.run()


def widget_of(elements: Iterable[Any], key: str) -> Any:
    """Return the widget that shows this field."""
    return next(element for element in elements if _key_of(element.key or "") == key)


def _problem(element: Any) -> str | None:
    if element.type != "markdown" or not element.value.startswith(":red["):
        return None
    return _plain(re.sub(r"^:red\[:material/error: :small\[(.*)\]\]$", r"\1", element.value))


def _plain(markdown: str) -> str:
    return re.sub(r"\\(.)", r"\1", markdown)
