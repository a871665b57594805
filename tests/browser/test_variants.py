"""The Variants page in the browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard import PATIENCE_MS

pytestmark = pytest.mark.nightly

TWO_RUNS_MS = 6 * PATIENCE_MS  # two cold compilations on a machine that is busy with other tests


def test_logical_and_device_axes_agree(open_dashboard) -> None:
    dashboard = open_dashboard("?mesh=4x2&depth=64&layers=2&steps=2")
    dashboard.go_to("Two ways to write a model")
    main = dashboard.main()
    expect(main.get_by_text("All 16 leaves have the same sharding, as planned")).to_be_visible()
    main.get_by_role("button", name="Run both variants").click()
    expect(main.get_by_text("All 16 leaves have the same sharding, in live arrays")).to_be_visible(
        timeout=TWO_RUNS_MS
    )
    expect(main.get_by_text("Emulated on this machine, one after the other")).to_be_visible()
    expect(main.get_by_test_id("stDataFrame")).to_have_count(3)  # costs, and a tree for each
    dashboard.screenshot("variants")
    # The layout is still there on coming back, in the page and in its URL.
    dashboard.go_to("Layout")
    dashboard.wait_for_figure("block_map")
    dashboard.settle()
    expect(dashboard.field("Mesh")).to_have_value("4x2")
    expect(dashboard.page).to_have_url(re.compile("mesh=4x2"))


def test_requested_and_compiled_shardings(open_dashboard) -> None:
    dashboard = open_dashboard("?depth=64&layers=2&steps=4&loss=mse&unconstrained=z")
    dashboard.open_tab("Arrays", "Train state")
    expect(dashboard.main().get_by_text("Activations and gradients")).to_be_visible()
    dashboard.run()
    expect(dashboard.main().get_by_text("were compiled as requested")).to_be_visible()
    loss = re.compile(r"from ([\d.]+) to ([\d.]+) in 4 further steps")
    summary = dashboard.main().get_by_text(loss)
    first, last = map(float, loss.search(summary.inner_text()).groups())  # type: ignore[union-attr]
    assert last < first
    expect(dashboard.main().get_by_text("contains only arrays of this run")).to_be_visible()
