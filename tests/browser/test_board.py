"""The Board page: pins, differences, times, report, link and file."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from benchmarks.processes import until
from tests.browser.dashboard import CLICK_SECONDS, PATIENCE, PATIENCE_MS, POLL_MS, WIDE, Dashboard
from tests.browser.test_first_page import cut_off

SMALL = "depth=64&layers=2&steps=2"
NAME = "<img src=x onerror=window.hacked=1>"


def ranges(figure: dict[str, Any]) -> list[tuple[float, ...]]:
    """Return the range of the first dimension that each map shows."""
    axes = [name for name in figure["layout"] if name.startswith("xaxis")]
    return [tuple(round(end, 3) for end in figure["layout"][name]["range"]) for name in axes]


def closes_a_subtree(board: Dashboard) -> None:
    """Click the first row of the tree, which closes it."""
    board.wait_for_stillness()
    names = board.keyed("board_tree").locator(".textpoint text")
    expect(names.first).to_have_text(re.compile("^▾"))
    box = names.first.bounding_box()
    assert box is not None
    board.page.mouse.click(box["x"] + 20, box["y"] + box["height"] / 2)
    expect(names.first).to_have_text(re.compile("^▸"))
    height = board.wait_for_figure("board_tree")["layout"]["height"]
    assert height < 200, "only the first row is left"


def drag_zooms(board: Dashboard, before: list[tuple[float, ...]]) -> bool:
    """Drag over the first map, and return whether all maps then show the same other range.

    On a busy machine, Plotly can lose a drag.
    """
    box = board.keyed("board_maps").locator(".nsewdrag").first.bounding_box()
    mouse = board.page.mouse
    mouse.move(box["x"] + 20, box["y"] + 20)
    mouse.down()
    mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    mouse.up()

    def zoomed() -> bool:
        board.page.wait_for_timeout(POLL_MS)
        shown = ranges(board.figure("board_maps") or {"layout": {}})
        return bool(shown) and shown[0] != before[0] and len(set(shown)) == 1

    with suppress(TimeoutError):
        return bool(until(zoomed, seconds=CLICK_SECONDS))
    return False


@pytest.fixture
def board(open_dashboard):
    """A board with a run, another run, and a plan with a hostile name."""
    dashboard = open_dashboard(f"?{SMALL}")
    dashboard.run()
    dashboard.pin()
    dashboard.kept("preset").get_by_text("FSDP", exact=True).click()
    dashboard.settle()
    dashboard.run()
    dashboard.pin("FSDP")
    dashboard.type("Mesh", "4")
    expect(dashboard.main()).to_contain_text("on fsdp 4")  # and so is the suggested name
    dashboard.pin(NAME)
    dashboard.open_board()
    expect(dashboard.keyed("board_table")).to_contain_text(NAME)
    return dashboard


@pytest.mark.nightly
def test_three_layouts_are_compared_timed_reported_and_restored(board, open_dashboard, tmp_path: Path):
    page = board.page
    # Each layout is compared with the first. The rule that differs is named.
    main = board.main()
    main.get_by_text("Differences in sentences").click()
    expect(main.get_by_text(re.compile("compared with Data \\+ tensor 2x4")).first).to_be_visible()
    sentences = board.keyed("board_sentences").inner_text()
    assert "Rule " in sentences and "arrays" in sentences
    for words in ("Train state per device", "better", "worse", NAME):
        expect(board.keyed("board_table")).to_contain_text(words)
    assert page.evaluate("window.hacked") is None

    # Shard maps of the same array, zoomed together.
    board.open_tab("Arrays")
    board.wait_for_figure("board_maps")
    board.wait_for_stillness()  # a figure that is drawn again loses the drag
    before = ranges(board.wait_for_figure("board_maps"))
    assert len(before) == 3
    until(lambda: drag_zooms(board, before), "the maps with the same range", PATIENCE)
    board.kept("board_view").get_by_role("radio", name="Tree", exact=True).click()
    board.wait_for_figure("board_tree")
    closes_a_subtree(board)
    board.kept("board_view").get_by_role("radio", name="PartitionSpecs", exact=True).click()
    expect(main.get_by_test_id("stDataFrame").first).to_be_visible()

    board.open_tab("Times")
    rounds = page.get_by_label("Rounds", exact=True)
    if rounds.count():
        rounds.fill("6")
        rounds.press("Tab")
        board.settle()
    board.click("timing_button")
    expect(main.get_by_text(re.compile("times as long as|not distinguishable")).first).to_be_visible()
    expect(main.get_by_text(re.compile("emulated", re.IGNORECASE)).first).to_be_visible()

    # The file restores the board.
    with board.page.expect_download() as download:
        board.open_share()
        board.click("download_board")
    path = tmp_path / "board.json"
    download.value.save_as(path)
    plain = json.loads(path.read_text())
    assert (plain["format"], len(plain["pins"])) == ("sharding-board", 3)
    assert {pin["snapshot"]["source"]["kind"] for pin in plain["pins"]} == {"cpu", "plan"}

    # The report, opened from disk.
    board.open_share()
    with page.expect_download(timeout=PATIENCE_MS) as download:
        page.get_by_role("button", name="HTML").click()
    report = tmp_path / "report.html"
    download.value.save_as(report)
    opened = page.context.new_page()
    asked: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(report.as_uri())
    expect(opened.get_by_role("heading", level=1)).to_contain_text(NAME)
    figures = opened.locator("figure[data-figure]")
    assert figures.count() > 10
    figures.first.scroll_into_view_if_needed()
    expect(figures.first.locator(".main-svg").first).to_be_visible()
    assert opened.evaluate("window.hacked") is None
    assert asked == [report.as_uri()]
    opened.close()

    # The link restores the board.
    expect(board.page).to_have_url(re.compile("(pin=.*){3}"))
    other = open_dashboard()
    other.page.goto(board.page.url)
    other.open_tab("Side by side")  # the link has the open tab
    expect(other.keyed("board_table")).to_contain_text(NAME)
    # A run on emulated devices is of its session: another one would measure other times.
    expect(other.main()).to_contain_text("FSDP was run before. This server does not have the result")
    expect(other.keyed("board_table")).to_contain_text("planned")


def texts_of(figure) -> set[str]:
    return {one["text"] for one in figure["layout"]["annotations"]}


@pytest.mark.nightly
def test_eight_layouts_at_a_glance_can_be_read(open_dashboard):
    sizes = (16, 32, 48, 64, 80, 96, 112, 128)
    pins = "&".join(f"pin=layout+of+depth+{depth}~~layers.1+depth.{depth}" for depth in sizes)
    dashboard = open_dashboard(f"?{SMALL}")
    dashboard.page.goto(f"{dashboard.url}/board?{pins}&chip=v5e")
    # The plans of the link are partitioned, and then no amount is unknown.
    dashboard.wait_for_figure(
        "glance",
        lambda figure: (
            {"<b>Memory per device</b>", "<b>Step</b>", "<b>Traffic</b>"} <= texts_of(figure)
            and not [text for text in texts_of(figure) if "unknown" in text]
        ),
    )
    for window in dashboard.in_windows():
        dashboard.screenshot(f"glance_{window}")
        assert cut_off(dashboard) == []
    picture = dashboard.page.get_by_role("figure").first
    assert "layout of depth 128" in (picture.get_attribute("aria-label") or "")


@pytest.mark.nightly
def test_one_click_leaves_an_open_pin_menu(open_dashboard):
    dashboard = open_dashboard("?mesh=4x2&depth=64&layers=2")
    dashboard.open_pin_menu()
    expect(dashboard.page.get_by_label("Name in the comparison")).to_be_visible()
    dashboard.open_board()
    dashboard.go_to("Layout")
    dashboard.wait_for_figure("block_map")
    expect(dashboard.page).to_have_url(f"{dashboard.url}/?mesh=4x2&layers=2&depth=64&tab=arrays")


def test_the_pin_menu_closes_and_a_notice_opens_the_board(open_dashboard):
    dashboard = open_dashboard(f"?{SMALL}")
    dashboard.open_pin_menu()
    dashboard.type("Name in the comparison", "mine")
    dashboard.page.get_by_role("link", name="Open the comparison").click()
    expect(dashboard.keyed("board_table")).to_contain_text("mine")
    expect(dashboard.page.get_by_role("link", name="Open the comparison")).to_have_count(0)


@pytest.mark.nightly
def test_screenshot_mode_hides_controls_and_shows_the_provenance(open_dashboard):
    pins = "&".join(
        f"pin={name}~~{fields}"
        for name, fields in (
            ("Tensor", "depth.64"),
            ("FSDP", "depth.64+mesh.8+axes.fsdp+rules.batch.fsdp~embed.fsdp"),
        )
    )
    dashboard = open_dashboard(f"?{SMALL}")
    dashboard.page.goto(f"{dashboard.url}/board?{pins}&screenshot=1")
    expect(dashboard.keyed("board_table")).to_be_visible()
    dashboard.settle()
    expect(dashboard.sidebar()).to_be_hidden()
    expect(dashboard.main().get_by_role("combobox")).to_have_count(0)
    words = dashboard.main().inner_text()
    for said in ("Tensor", "FSDP", "jax", "mesh", "rules", "planned"):
        assert said in words, said
    dashboard.wait_for_figure("glance")
    dashboard.wait_for_stillness()
    # Title, verdict and picture are in one window of a slide's size.
    for place in (
        dashboard.main().get_by_role("heading").first,
        dashboard.main().get_by_text(re.compile("not comparable|than|same time")).first,
        dashboard.keyed("glance"),
    ):
        box = place.bounding_box()
        assert box is not None and box["y"] >= 0 and box["y"] + box["height"] <= WIDE["height"]
    dashboard.screenshot("board_slide")
