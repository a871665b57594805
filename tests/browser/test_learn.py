"""The Learn page in the browser."""

from __future__ import annotations

import subprocess
import sys

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard import NARROW, Dashboard

pytestmark = pytest.mark.nightly


@pytest.fixture
def open_learn(open_tab, server):
    """Open tabs with the page."""

    def make(**options):
        learn = Dashboard(open_tab(**options), server.url)
        learn.page.goto(f"{server.url}/learn")
        expect(provenance(learn)).to_contain_text("Run on mesh")
        learn.settle()
        return learn

    return make


def provenance(learn):
    return learn.main().get_by_text("Run on mesh")


def choose(learn, title):
    learn.kept("learn:guide").get_by_text(title, exact=True).click()
    learn.settle()


def step(learn, guide, number):
    return learn.keyed(f"learn:{guide}:step_{number}")


def figure_key(guide, number, array, kind="block_map"):
    return f"learn-{guide}-{number}-{array}-{kind}"


def test_a_new_mesh_replaces_the_running_tutorial(open_learn):
    learn = open_learn()
    field = learn.field("Mesh")
    field.fill("8x8")
    field.press("Enter")
    expect(learn.main()).to_contain_text("on 64 emulated devices")
    learn.type("Mesh", "1x2")
    expect(provenance(learn)).to_contain_text("data 1 × model 2")
    expect(step(learn, "scale_up", 1)).to_contain_text("[[0 1]]")


def test_all_steps_fit_a_narrow_window(open_learn):
    learn = open_learn(size=NARROW)
    choose(learn, "Build an array from pieces")
    learn.click("learn:open_all")
    learn.settle()
    for number, array in ((3, "joined"), (5, "batch"), (7, "resharded")):
        for kind in ("block_map", "mesh_map"):
            key = figure_key("pieces", number, array, kind)
            learn.wait_for_figure(key)
            assert [one for one in learn.texts_drawn(key) if one["out"] > 1] == []
            assert learn.texts_beyond_their_cells(key) == []
    wider = "document.querySelector('[data-testid=stMain]')"
    assert learn.page.evaluate(f"{wider}.scrollWidth <= {wider}.clientWidth")
    learn.screenshot("learn_narrow")


def test_the_downloaded_script_runs(open_learn, tmp_path):
    learn = open_learn()
    choose(learn, "Build an array from pieces")
    expect(provenance(learn)).to_contain_text("x 2 × y 4")
    learn.type("Mesh", "1x2")
    expect(provenance(learn)).to_contain_text("x 1 × y 2")
    with learn.page.expect_download() as download:
        learn.click("learn:script")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == "pieces.py"
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(8, 8) P('x', 'y') in shards of (8, 4)" in done.stdout
