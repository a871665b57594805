"""Clicks on a page that has not yet applied the server's last answer, and clicks that arrive together.

Before the answer, the browser sends the previous value of every field that the server has changed in the
meantime.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl

import pytest
from playwright.sync_api import WebSocketRoute, expect

from inspector import layout as layouts
from tests.browser.dashboard import Dashboard

LATE_MS = 1_500  # from an answer of the server until the browser gets it


class LateAnswers:
    """The connection of a tab, which can hold back the answers of the server and the clicks of the page."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.held: list[bytes | str] | None = None
        self.clicks: list[bytes | str] | None = None
        self._page: WebSocketRoute | None = None
        dashboard.page.route_web_socket("**/_stcore/stream", self._connect)

    def _connect(self, page: WebSocketRoute) -> None:
        self._page = page
        self._server = page.connect_to_server()
        self._server.on_message(self._answer)
        page.on_message(self._click)

    def _answer(self, message: bytes | str) -> None:
        assert self._page is not None
        if self.held is None:
            self._page.send(message)
        else:
            self.held.append(message)

    def _click(self, message: bytes | str) -> None:
        if self.clicks is None:
            self._server.send(message)
        else:
            self.clicks.append(message)

    def release_clicks(self) -> None:
        clicks, self.clicks = self.clicks or [], None
        for message in clicks:
            self._server.send(message)

    def hold(self) -> None:
        self.held = []

    def release(self) -> None:
        assert self._page is not None
        held, self.held = self.held or [], None
        for message in held:
            self._page.send(message)


@pytest.fixture
def late(open_tab: Callable, server) -> tuple[Dashboard, LateAnswers]:
    dashboard = Dashboard(open_tab(), server.url)
    return dashboard, LateAnswers(dashboard)


def _change_rule(dashboard: Dashboard) -> None:
    field = dashboard.field("Mesh axes of rule 2")
    field.fill("")
    field.press("Enter")


def _choose_preset(dashboard: Dashboard) -> None:
    dashboard.kept("preset").get_by_text("FSDP", exact=True).click()


def _choose_model(dashboard: Dashboard) -> None:
    dashboard.page.get_by_role("combobox", name="Model").click()
    dashboard.page.get_by_role("option", name="Mixture of experts").first.click()


def test_a_button_before_the_answer_keeps_the_change(late):
    dashboard, answers = late
    dashboard.open("?depth=64")
    share = dashboard.page.get_by_role("button", name="Share")
    expect(share).to_be_visible()  # the page reports its width, which can stop a run before its last elements
    answers.hold()
    _change_rule(dashboard)
    dashboard.page.wait_for_timeout(LATE_MS)
    share.click()
    dashboard.page.get_by_role("button", name="Screenshot").click()
    dashboard.page.wait_for_timeout(LATE_MS)
    answers.release()
    expect(dashboard.keyed("leave_screenshot_mode")).to_have_count(1)
    dashboard.expect_query("rules=batch.data~hidden.&depth=64&screenshot=1")


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("change", "query"),
    [
        (_change_rule, "rules=batch.data~hidden.&tab=arrays"),
        (_choose_preset, "mesh=8&axes=fsdp&rules=batch.fsdp~embed.fsdp&tab=arrays"),
        (_choose_model, "model=moe&tab=arrays"),
    ],
)
def test_a_click_before_the_answer_keeps_the_change(late, change, query):
    dashboard, answers = late
    if (
        change is _choose_model
    ):  # the server knows its shapes, so the page is drawn before the click on the tab
        dashboard.open("?model=moe")
    dashboard.open()
    answers.hold()
    change(dashboard)
    dashboard.page.wait_for_timeout(LATE_MS)
    dashboard.page.get_by_role("tab", name="Arrays", exact=True).click()
    dashboard.page.wait_for_timeout(LATE_MS)
    answers.release()
    dashboard.expect_query(query)
    fields = {name: text for name, text in parse_qsl(query) if name != "tab"}
    layout = layouts.parse(fields).unwrap()
    dashboard.expect_rules([(name, " + ".join(axes)) for name, axes in layout.rules])
    assert dashboard.field("Mesh").input_value() == layouts.print_mesh(layout.mesh_shape)


@pytest.mark.nightly
def test_the_back_button_counts_also_if_a_click_arrives_with_it(late):
    """Streamlit takes both as one click, and does not say that the URL is that of the button."""
    dashboard, connection = late
    dashboard.open("?depth=64")
    dashboard.type("Mesh", "4x2")
    dashboard.expect_query("mesh=4x2&depth=64")
    dashboard.settle()
    connection.clicks = []
    dashboard.page.go_back()
    dashboard.page.get_by_text("Training and measurement").click()
    dashboard.page.wait_for_timeout(LATE_MS)
    assert len(connection.clicks) > 1
    connection.release_clicks()
    expect(dashboard.field("Mesh")).to_have_value("2x4")
    dashboard.settle()
    dashboard.expect_query("depth=64")


@pytest.mark.parametrize("clicks_together", [False, True])
def test_the_page_before_stays_open_if_the_other_one_still_sends_something(late, clicks_together):
    """What a page sends after *Back* asks the server for that page again, until the other one has come."""
    dashboard, answers = late
    page = dashboard.page
    dashboard.open("?depth=64&layers=2")
    dashboard.pin("A")
    dashboard.open_board()
    page.wait_for_url("**/board?pin=*")
    dashboard.settle()
    length = page.evaluate("history.length")
    answers.hold()
    if clicks_together:  # the server then runs only the page that was asked for last
        answers.clicks = []
    page.go_back()
    page.set_viewport_size({"width": 700, "height": 900})  # the page reports its width
    page.wait_for_timeout(LATE_MS)
    if clicks_together:
        assert len(answers.clicks) > 1
        answers.release_clicks()
        page.wait_for_timeout(LATE_MS)
    answers.release()
    expect(dashboard.field("Depth")).to_have_value("64")
    dashboard.settle()
    dashboard.expect_query("depth=64&layers=2")
    assert page.evaluate("history.length") == length
    page.go_forward()
    page.wait_for_url("**/board?pin=*")
    expect(dashboard.main().get_by_role("heading", name="Compare")).to_be_visible()
