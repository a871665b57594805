"""The Learn page in the browser."""

from __future__ import annotations

import subprocess
import sys

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard import NARROW, Dashboard, cells


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
    learn.keyed("learn:guide").get_by_text(title, exact=True).click()
    learn.settle()


def step(learn, guide, number):
    return learn.keyed(f"learn:{guide}:step_{number}")


def open_step(learn, guide, number):
    step(learn, guide, number).locator("summary").click()
    learn.settle()


def figure_key(guide, number, array, kind="block_map"):
    return f"learn-{guide}-{number}-{array}-{kind}"


def texts(figure):
    return [text.replace("<br>", " ") for text, _, _ in cells(figure)]


def test_another_mesh_runs_the_tutorial_again(open_learn):
    learn = open_learn()
    expect(learn.main().get_by_text("1 · A mesh of devices")).to_be_visible()
    expect(step(learn, "scale_up", 1)).to_contain_text("[4 5 6 7]]")
    assert learn.figure_keys() == []

    open_step(learn, "scale_up", 5)
    groups = ["devices 0, 4", "devices 1, 5", "devices 2, 6", "devices 3, 7"]
    assert texts(learn.wait_for_figure(figure_key("scale_up", 5, "W1"))) == groups
    assert texts(learn.wait_for_figure(figure_key("scale_up", 5, "W2"))) == groups
    expect(step(learn, "scale_up", 5)).to_contain_text("W1 [0:256, 0:64] on devices 0 4")
    open_step(learn, "scale_up", 8)
    halves = texts(learn.wait_for_figure(figure_key("scale_up", 8, "output")))
    assert halves == ["devices 0, 1, 2, 3", "devices 4, 5, 6, 7"]
    learn.screenshot("learn")

    learn.type("Mesh", "4x2")
    expect(provenance(learn)).to_contain_text("data 4 × model 2")
    learn.wait_for_figure(figure_key("scale_up", 5, "W1"), lambda figure: len(cells(figure)) == 2)
    assert len(texts(learn.wait_for_figure(figure_key("scale_up", 8, "output")))) == 4
    expect(step(learn, "scale_up", 5)).to_contain_text("W1 [0:256, 128:256] on devices 1 3 5 7")


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


def test_a_link_opens_the_processes_page(open_learn):
    learn = open_learn()
    choose(learn, "Arrays across devices and processes")
    expect(provenance(learn)).to_contain_text("data 2 × model 4")
    open_step(learn, "arrays", 10)
    link = learn.main().get_by_role("link", name="Processes")
    learn.page.goto(learn.page.evaluate("link => link.href", link.element_handle()))
    expect(learn.main().get_by_text("Arrays of several processes")).to_be_visible()
