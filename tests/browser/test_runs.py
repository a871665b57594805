"""Build and run: progress, figures from live arrays, Cancel, and killed workers."""

from __future__ import annotations

import os
import re
import signal

import pytest
from playwright.sync_api import expect

from benchmarks.processes import alive, cpu_ticks, until
from tests.browser.dashboard import cells

# The smallest model that eight devices can shard: the run is short.
SMALL = "depth=64&batch=8&layers=2"
# A run of minutes on few threads: the test must stop it, and other tests can run meanwhile.
ENDLESS = "mesh=2x1&steps=10000&depth=512&batch=256"


def test_live_arrays_are_placed_as_planned_and_belong_to_their_layout(open_dashboard):
    dashboard = open_dashboard(f"?{SMALL}")
    planned = maps(dashboard)
    dashboard.start_run()
    expect(progress(dashboard)).to_contain_text(PHASE)
    dashboard.expect_badge("Run on emulated devices")
    dashboard.settle()
    assert maps(dashboard) == planned
    expect(dashboard.alerts()).to_have_count(0)
    expect(dashboard.page.get_by_text("not-as-planned")).to_have_count(0)
    expect(dashboard.keyed("run_button").get_by_role("button")).to_contain_text("Run again")

    dashboard.open_tab("Time")
    steps = dashboard.wait_for_figure("timing_steps")
    assert "emulated" in texts_of(steps)
    assert re.search(r"median [\d.]+ (s|ms|µs)", texts_of(steps))
    marks = [len(trace["x"]) for trace in steps["data"] if trace["type"] == "scatter"]
    assert marks[:2] == [20, 20], "every measured step of training and of inference"
    dashboard.screenshot("timings_run")
    for view in ("By device", "Tree", "Table"):
        dashboard.open_tab("Arrays", view)
        expect(dashboard.page.get_by_test_id("stException")).to_have_count(0)
    dashboard.type("Batch", "16")
    dashboard.expect_badge("Planned")
    dashboard.type("Batch", "8")
    dashboard.expect_badge("Run")


@pytest.mark.nightly
def test_a_run_works_after_a_cancelled_run_and_a_killed_worker(open_dashboard, server):
    dashboard = open_dashboard(f"?{ENDLESS}")
    dashboard.start_run()
    expect(progress(dashboard)).to_contain_text("Measuring the train step")
    dashboard.screenshot("running")
    busy = server.workers(devices=2)
    assert busy
    dashboard.click("cancel_run")  # once: a lost click fails the next line
    expect(dashboard.keyed("run_button")).to_be_visible()
    expect(dashboard.alerts()).to_have_count(1)
    dashboard.expect_alert("Cancelled during")
    assert_one_sentence(dashboard)
    until(lambda: all(is_idle(pid, dashboard) for pid in busy), "the end of the cancelled run")

    dashboard.start_run()
    expect(progress(dashboard)).to_contain_text("Measuring the train step")
    os.kill(until(lambda: busy_worker(server, dashboard)), signal.SIGKILL)
    dashboard.expect_alert("was killed (SIGKILL)")
    assert_one_sentence(dashboard)
    assert "Traceback" not in dashboard.page.locator("body").inner_text()
    dashboard.screenshot("worker_killed")
    dashboard.open(f"?{SMALL}&steps=2")
    dashboard.run()
    expect(dashboard.alerts()).to_have_count(0)


@pytest.mark.nightly
def test_a_killed_planner_is_replaced(open_dashboard, server):
    dashboard = open_dashboard()
    for pid in server.workers(devices=1):
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: not alive(pid))
    dashboard.type("Depth", "96")
    dashboard.wait_for_figure("block_map", lambda figure: "96×96" in texts_of(figure))
    expect(dashboard.alerts()).to_have_count(0)


@pytest.mark.nightly
def test_a_too_large_model_is_refused(open_dashboard):
    dashboard = open_dashboard("?depth=200000&layers=64")
    reason = re.compile(r"needs about [\d.,]+ TiB .* at most [\d.,]+ [GM]iB is allowed")
    expect(dashboard.main().get_by_text(reason)).to_have_count(1)
    expect(dashboard.keyed("run_button").get_by_role("button")).to_be_disabled()


@pytest.mark.nightly
def test_tabs_share_a_run(open_dashboard):
    # Both tabs are opened first, because a page opens slowly while a run uses the processors.
    left, stays = (open_dashboard(f"?{ENDLESS}") for _ in range(2))
    for dashboard in (left, stays):
        dashboard.start_run()
        expect(progress(dashboard)).to_contain_text("Measuring")
    left.click("cancel_run")
    expect(left.keyed("run_button")).to_be_visible()
    step = measured_step(stays)
    until(lambda: measured_step(stays) > step, "the other tab's run going on")
    stays.click("cancel_run")
    expect(stays.keyed("run_button")).to_be_visible()


PHASE = re.compile("Starting|Building|Lowering|Compiling|First run|Measuring|Reading|Waiting for a worker")


def progress(dashboard):
    """Return the progress in the head; the tabs below can have that of the partition."""
    return dashboard.main().get_by_test_id("stProgress").first


def measured_step(dashboard):
    dashboard.page.wait_for_timeout(50)  # for the page to receive the update
    match = re.search(r"step ([\d,]+) of", progress(dashboard).inner_text())
    return int(match[1].replace(",", "")) if match else 0


def maps(dashboard):
    """Return the data of both maps, without their width."""
    return [
        [(text, number) for text, number, _ in cells(dashboard.wait_for_figure(key))]
        for key in ("block_map", "mesh_map")
    ]


def texts_of(figure):
    """Return every text of a figure."""
    found = []

    def collect(value):
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            for part in value.values():
                collect(part)
        elif isinstance(value, list):
            for part in value:
                collect(part)

    collect({"data": figure["data"], "layout": figure["layout"]})
    return " ".join(found)


def is_idle(pid, dashboard):
    """Return whether a process has ended or is idle."""
    before = cpu_ticks(pid)
    dashboard.page.wait_for_timeout(300)  # 30 clock ticks; a busy worker uses most of them
    return not alive(pid) or cpu_ticks(pid) <= before + 1


def busy_worker(server, dashboard):
    """Return the one worker of two devices that is not idle, or None. On a busy machine it can seem idle."""
    busy = [pid for pid in server.workers(devices=2) if not is_idle(pid, dashboard)]
    return busy[0] if len(busy) == 1 else None


def assert_one_sentence(dashboard):
    text = dashboard.alerts().locator("[data-testid=stMarkdownContainer]").inner_text().strip()
    assert "\n" not in text
    assert len(re.findall(r"[.!?](?:\s|$)", text)) <= 1, text
    assert 20 < len(text) < 400
