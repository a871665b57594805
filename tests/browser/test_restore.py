"""Save under one layout and restore under another, as a person does it."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from inspector.core.temporary_folder import PREFIX
from tests.browser.dashboard import NARROW, WIDE, Dashboard
from tests.service.engine.waiting import until

SMALL = "?layers=2&depth=64"
# Long enough for a click on Cancel in the middle.
LARGE = "?layers=16&depth=1024"


@pytest.fixture
def open_restore(open_dashboard):
    """Opens a layout on the first page, and from there the page of save and restore."""

    def make(query: str = SMALL, **options: object) -> Dashboard:
        dashboard = open_dashboard(query, **options)
        dashboard.go_to("Restore")
        dashboard.wait_for_figure("transfer_map")
        dashboard.settle()
        return dashboard

    return make


def folders() -> set[Path]:
    """The folders of checkpoints that there are."""
    return set(Path(tempfile.gettempdir()).glob(PREFIX + "*"))


def test_restores_across_layouts_and_says_that_all_values_are_equal(open_restore) -> None:
    before = folders()
    dashboard = open_restore()
    expect(dashboard.field("New mesh")).to_have_value("4x2")
    dashboard.expect_badge("Planned: nothing run")
    dashboard.type("New mesh", "2x2")
    figure = dashboard.wait_for_figure(
        "transfer_map", lambda found: "only in the old layout" in str(found["layout"])
    )
    assert "devices 4, 5, 6, 7 only in the old layout" in str(figure["layout"])
    dashboard.field("Array").click()
    dashboard.page.get_by_role("option", name="params/DotReluDot_0/W2").click()
    dashboard.wait_for_figure(
        "transfer_map", lambda found: "DotReluDot_0/W2" in found["layout"]["title"]["text"]
    )
    expect(dashboard.main()).to_contain_text("24.0 KiB from 4 devices to 4 devices")
    dashboard.click("restore_button")
    dashboard.expect_alert("equal bit by bit")
    dashboard.expect_badge("Restored")
    dashboard.settle()
    dashboard.screenshot("restore_done")
    until(lambda: not folders() - before, "the end of the checkpoint's folder")

    # The page is left and opened again: what was typed and found is still there.
    dashboard.go_to("Layout")
    dashboard.wait_for_figure("block_map")
    dashboard.go_to("Restore")
    expect(dashboard.field("New mesh")).to_have_value("2x2")
    dashboard.expect_alert("equal bit by bit")


def test_cancel_in_the_middle_leaves_nothing(open_restore) -> None:
    before = folders()
    dashboard = open_restore(LARGE)
    dashboard.click("restore_button")
    dashboard.click("cancel_restore")
    dashboard.expect_alert("Cancelled")
    expect(dashboard.keyed("restore_button")).to_be_visible()
    until(lambda: not folders() - before, "the end of the checkpoint's folder")


@pytest.mark.parametrize(
    ("size", "theme"), [(WIDE, "light"), (NARROW, "dark")], ids=["1440-light", "800-dark"]
)
def test_no_text_is_cut_off_or_too_small(open_dashboard, theme: str, size: dict) -> None:
    dashboard = open_dashboard(SMALL, size=WIDE, color_scheme=theme)
    # The links fold away in a narrow window, so that it is made narrow only then.
    dashboard.go_to("Restore")
    dashboard.page.set_viewport_size(size)
    dashboard.wait_for_figure("transfer_map")
    dashboard.settle()
    dashboard.screenshot(f"restore_{size['width']}_{theme}")
    texts = dashboard.texts_drawn("transfer_map")
    assert texts and not [one for one in texts if one["out"] > 1 or one["px"] < 8]
    main = dashboard.main()
    assert main.evaluate("one => one.scrollWidth <= one.clientWidth + 1"), "it scrolls sideways"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_server_that_is_ended_takes_the_checkpoint_along(
    open_context, another_server, number: signal.Signals
) -> None:
    before = folders()
    dashboard = Dashboard(open_context(), another_server.url).open(LARGE)
    dashboard.go_to("Restore")
    dashboard.wait_for_figure("transfer_map")
    dashboard.click("restore_button")
    until(lambda: folders() - before, "the checkpoint's folder")
    another_server.signal(number)
    assert not folders() - before
