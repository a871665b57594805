"""A machine that is not there, in the browser: choose a slice, compile for it, read, take another one."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from inspector.machines import targets
from tests.browser.dashboard import Dashboard

pytestmark = pytest.mark.nightly

SMALL = "depth=256&layers=2&batch=64&steps=1"
for text in ("tpu:v5e:2x4", "gpu:h100:8"):
    if lacking := targets.missing_compiler(targets.parse(text)):
        pytest.skip(lacking, allow_module_level=True)


def choose(dashboard: Dashboard, field: str, option: str) -> None:
    dashboard.sidebar().get_by_label(field, exact=True).first.click()
    dashboard.page.get_by_role("option", name=option).first.click()
    dashboard.settle()


def choose_kind(dashboard: Dashboard, kind: str) -> None:
    choose(dashboard, "Target", f"{kind}:")


def compile_(dashboard: Dashboard) -> None:
    dashboard.start_run()
    dashboard.expect_badge("Compiled, not run")
    dashboard.settle()


def test_a_compile_for_a_slice_and_another_chip(open_dashboard):
    dashboard = open_dashboard(f"?{SMALL}")
    choose_kind(dashboard, "TPU")
    choose(dashboard, "Generation", "v5e")
    choose(dashboard, "Slice", "v5litepod-8 · 2x4")
    expect(dashboard.page).to_have_url(re.compile("target=tpu(:|%3A)v5e(:|%3A)2x4"))
    expect(dashboard.field("Mesh")).to_have_value("2x4")
    # The torus of the machine, with the mesh on it, before anything is compiled.
    expect(dashboard.sidebar().get_by_text(re.compile("8 chips"))).to_be_visible()
    compile_(dashboard)
    expect(dashboard.keyed("whole_model").locator(".device")).to_have_count(8)
    dashboard.open_tab("Memory")
    expect(dashboard.main()).to_contain_text("Fits")
    dashboard.open_tab("Communication")
    dashboard.wait_for_figure("collective_bars")
    dashboard.screenshot("target_tpu_collectives")

    choose_kind(dashboard, "GPU")
    dashboard.expect_badge("Planned, not compiled")

    # Back on the first machine, whose answer was kept: it is there without a compile.
    choose_kind(dashboard, "TPU")
    choose(dashboard, "Generation", "v5e")
    choose(dashboard, "Slice", "v5litepod-8 · 2x4")
    dashboard.expect_badge("Compiled, not run")


def test_a_wrong_mesh_size_and_a_cancelled_compile(open_dashboard):
    dashboard = open_dashboard(f"?{SMALL}&target=tpu:v5p:8x8x8&mesh=64x8&batch=512&depth=8192")
    dashboard.type("Mesh", "4x8")
    expect(dashboard.sidebar().get_by_text("but tpu:v5p:8x8x8 has 512")).to_be_visible()
    dashboard.type("Mesh", "64x8")
    dashboard.start_run()
    dashboard.keyed("cancel_run").get_by_role("button").click()
    dashboard.expect_alert("Cancelled")
    dashboard.expect_badge("Planned, not compiled")
    expect(dashboard.page.get_by_test_id("stException")).to_have_count(0)


def test_out_of_memory_shows_the_figures_of_the_compiler(open_dashboard):
    dashboard = open_dashboard("?depth=32768&layers=4&mesh=4x4&target=tpu:v5e:4x4")
    dashboard.start_run()
    dashboard.expect_badge("Compiled, not run")
    dashboard.expect_alert("does not fit")
    dashboard.open_tab("Memory")
    expect(dashboard.page.get_by_test_id("stException")).to_have_count(0)
    dashboard.screenshot("target_too_large")
