"""Changes of the layout, and the figures that follow."""

from __future__ import annotations

import base64
import re

import pytest
from playwright.sync_api import expect

from benchmarks.processes import until
from tests.browser.dashboard import PATIENCE, cells


@pytest.mark.nightly
def test_512_devices_are_readable(dashboard):
    for mesh in ("8x64", "16x32", "2x4x8x8"):
        dashboard.type("Mesh", mesh)
        if mesh == "2x4x8x8":
            dashboard.type("Mesh axes of rule 2", "model + expert")
        dashboard.wait_for_figure("mesh_map", lambda figure: sorted(customdata(figure)) == [*range(512)])
        dashboard.screenshot(f"devices_512_{mesh}")
        for key in ("block_map", "mesh_map"):
            for text in dashboard.texts_drawn(key):
                assert text["px"] >= 8, f"{key}: {text}"
                assert text["out"] <= 1, f"{key}: {text}"
            assert not dashboard.texts_beyond_their_cells(key)


def test_a_changed_rule_changes_the_partitioned_collectives(dashboard):
    dashboard.open_tab("Communication")
    headline = dashboard.main().get_by_text(re.compile("A train step runs"))
    expect(headline).to_contain_text("over data, model")
    expect(dashboard.main().get_by_text("Partitioned by XLA")).to_be_visible()
    dashboard.screenshot("partitioned")
    dashboard.type("Mesh axes of rule 2", "")
    expect(headline).to_contain_text("over data:")
    dashboard.expect_badge("Planned, not compiled")
    dashboard.open_tab("Summary")
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 1)


def test_rules_are_changed_added_moved_and_deleted(dashboard):
    dashboard.type("Mesh axes of rule 2", "data")
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 2)
    dashboard.expect_devices_of_blocks(["0, 1, 2, 3", "4, 5, 6, 7"])
    dashboard.expect_query("rules=batch.data~hidden.data")
    dashboard.type("Mesh axes of rule 2", "")
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 1)
    dashboard.type("Mesh axes of rule 2", "model + data")
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 8)
    dashboard.type("Mesh axes of rule 2", "model")
    dashboard.expect_query("")

    dashboard.click("add_rule")
    expect(dashboard.field("Logical axis of rule 3")).to_have_value("embed")
    dashboard.type("Mesh axes of rule 3", "model")
    dashboard.expect_rules([("batch", "data"), ("hidden", "model"), ("embed", "model")])
    assert shape(dashboard) == (1, 4), "the earlier rule has the mesh axis"

    dashboard.rule_menu(2, "Move up")
    dashboard.wait_for_figure("block_map", lambda figure: shape_of(figure) == (4, 1))
    dashboard.expect_rules([("batch", "data"), ("embed", "model"), ("hidden", "model")])
    dashboard.expect_query("rules=batch.data~embed.model~hidden.model")

    dashboard.rule_menu(1, "Delete")
    dashboard.wait_for_figure("block_map", lambda figure: shape_of(figure) == (1, 4))
    dashboard.expect_rules([("batch", "data"), ("hidden", "model")])
    dashboard.expect_query("")


def test_markup_in_a_field_is_shown_as_text(dashboard):
    requests = []
    dashboard.page.on("request", lambda request: requests.append(request.url))
    dashboard.type("Mesh", MARKUP)
    expect(dashboard.sidebar().get_by_text("<b>bold</b>")).to_be_visible()
    dashboard.type("Axis names", MARKUP)
    dashboard.type("Logical axis of rule 1", MARKUP)
    dashboard.type("Mesh axes of rule 2", MARKUP)
    assert_no_markup(dashboard, requests)


def test_a_click_highlights_a_block_and_a_preset_changes_the_layout(dashboard):
    dashboard.open_tab("Arrays")
    dashboard.page.locator(".st-key-block_map .nsewdrag").click(position={"x": 60, "y": 60})
    mesh_map = dashboard.wait_for_figure("mesh_map", lambda figure: faded(figure) > 0)
    bright = [text for text, number, _ in cells(mesh_map) if number == 0]
    assert [text.split("<br>")[0] for text in bright] == ["device 0", "device 4"]
    assert faded(mesh_map) == 6
    assert faded(dashboard.wait_for_figure("block_map", lambda figure: faded(figure) > 0)) == 3
    dashboard.screenshot("block_picked")

    dashboard.page.get_by_role("radio", name="FSDP + tensor", exact=True).click()
    dashboard.wait_for_figure("block_map", lambda figure: shape_of(figure) == (2, 4))
    expect(dashboard.field("Axis names")).to_have_value("fsdp, tensor")
    dashboard.expect_rules([("batch", "fsdp"), ("embed", "fsdp"), ("hidden", "tensor")])


def test_a_table_row_selects_the_array_of_the_map(dashboard):
    dashboard.open_tab("Arrays")
    dashboard.type("Filter", "nu DotReluDot_2 W2")
    # Activations and gradients are among them once another test has partitioned this layout.
    expect(dashboard.main().get_by_text(re.compile(r"1 of (28|44) arrays"))).to_be_visible()
    table = dashboard.keyed("array_table").get_by_test_id("stDataFrame")
    path = "opt_state/0/nu/DotReluDot_2/W2"
    expect(table.locator("canvas td", has_text=path)).to_have_count(1)
    # The box at the left of the first row. The table is a canvas, so the click needs a position.
    table.locator(".dvn-scroller").click(position={"x": 16, "y": 50})
    expect(dashboard.main().get_by_text("The shard map shows")).to_be_visible()
    dashboard.screenshot("array_selected")
    dashboard.wait_for_figure("block_map", lambda figure: path in figure["layout"]["title"]["text"])
    assert shape(dashboard) == (4, 1)
    dashboard.type("Filter", "there is no such array")
    dashboard.expect_alert("No array contains all of these words")


def test_a_figure_is_redrawn_in_place(dashboard):
    dashboard.open_tab("Arrays")
    page = dashboard.page
    dashboard.wait_for_figure("block_map")
    page.evaluate("() => document.querySelector('.st-key-block_map .js-plotly-plot').marked = true")
    page.locator(".st-key-block_map .nsewdrag").scroll_into_view_if_needed()
    plot = page.locator(".st-key-block_map .nsewdrag").bounding_box()
    # A drag over a quarter of the map zooms to it.
    page.mouse.move(plot["x"] + 20, plot["y"] + 20)
    page.mouse.down()
    page.mouse.move(plot["x"] + plot["width"] / 2, plot["y"] + plot["height"] / 2, steps=5)
    page.mouse.up()
    full = dashboard.wait_for_figure("mesh_map")["layout"]["xaxis"]["range"]
    zoomed = zoom(dashboard)
    assert zoomed[1] - zoomed[0] < 0.7 * (full[1] - full[0])
    dashboard.type("Mesh axes of rule 2", "data")
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 2)
    assert zoom(dashboard) == zoomed
    marked = "() => document.querySelector('.st-key-block_map .js-plotly-plot').marked"
    assert page.evaluate(marked)
    page.emulate_media(color_scheme="dark")
    dashboard.settle()
    assert page.evaluate(marked)
    page.emulate_media(color_scheme="light")


def test_the_keyboard_picks_a_device(dashboard):
    dashboard.open_tab("Arrays")
    dashboard.page.locator(".st-key-mesh_map .js-plotly-plot").focus()
    dashboard.page.keyboard.press("ArrowRight")
    dashboard.page.keyboard.press("ArrowRight")
    expect(dashboard.keyed("mesh_map").locator("output")).to_contain_text("device 1")
    dashboard.page.keyboard.press("Enter")
    mesh_map = dashboard.wait_for_figure("mesh_map", lambda figure: faded(figure) > 0)
    bright = [text for text, number, _ in cells(mesh_map) if number == 1]
    assert [text.split("<br>")[0] for text in bright] == ["device 1", "device 5"]


def test_a_rule_takes_effect_while_it_is_typed(dashboard):
    dashboard.open_tab("Arrays")
    field = dashboard.field("Mesh axes of rule 2")
    field.press("Control+a")
    field.press_sequentially("dat")
    dashboard.page.wait_for_timeout(1_000)  # longer than the pause; `dat` is not an axis
    dashboard.expect_query("")
    assert len(cells(dashboard.wait_for_figure("block_map"))) == 4
    field.press_sequentially("a")
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 2)
    dashboard.expect_query("rules=batch.data~hidden.data")
    field.press_sequentially(" + model")
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 8)
    expect(field).to_be_focused()
    expect(field).to_have_value("data + model")


def test_the_first_empty_field_of_a_new_rule_has_the_focus(dashboard):
    dashboard.click("add_rule")
    expect(dashboard.field("Mesh axes of rule 3")).to_be_focused()
    dashboard.page.keyboard.type("data")
    dashboard.expect_rules([("batch", "data"), ("hidden", "model"), ("embed", "data")])
    dashboard.click("add_rule")
    expect(dashboard.field("Mesh axes of rule 4")).to_be_focused()
    dashboard.click("add_rule")  # all logical axes have a rule
    expect(dashboard.field("Logical axis of rule 5")).to_be_focused()


MARKUP = "<b>bold</b><img src=http://127.0.0.1:9/x>**strong** [link](http://127.0.0.1:9/y) $x$"


def assert_no_markup(dashboard, requests):
    page = dashboard.page
    expect(page.locator("b, img[src*=':9/'], a[href*=':9/'], .katex")).to_have_count(0)
    expect(page.locator("strong", has_text="strong")).to_have_count(0)
    assert not [url for url in requests if ":9/" in url]


def customdata(figure, name="customdata"):
    return next(trace for trace in figure["data"] if trace["type"] == "scatter")[name]


def faded(figure):
    """Return the number of faded cells."""
    heatmaps = [trace for trace in figure["data"] if trace["type"] == "heatmap"]
    if len(heatmaps) < 2:
        return 0
    return sum(number is not None for row in heatmaps[-1]["z"] for number in row)


def shape_of(figure):
    """Return rows and columns of a map that is one heatmap without gaps."""
    heatmap = next(trace for trace in figure["data"] if trace["type"] == "heatmap")
    return len(heatmap["z"]), len(heatmap["z"][0])


def zoom(dashboard):
    """Return the range of the block map's horizontal axis."""
    return dashboard.wait_for_figure("block_map")["layout"]["xaxis"]["range"]


def shape(dashboard):
    return shape_of(dashboard.wait_for_figure("block_map"))


def test_a_mesh_takes_effect_while_it_is_typed(dashboard):
    dashboard.open_tab("Arrays")
    field = dashboard.field("Mesh")
    field.press("Control+a")
    field.press_sequentially("4x")
    dashboard.page.wait_for_timeout(1_000)  # longer than the pause; `4x` is no mesh
    dashboard.expect_query("")
    field.press_sequentially("2")
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 2)
    dashboard.expect_query("mesh=4x2")
    expect(field).to_be_focused()
    names = dashboard.field("Axis names")
    names.press("Control+a")
    names.press_sequentially("data, data")
    dashboard.page.wait_for_timeout(1_000)
    dashboard.expect_query("mesh=4x2")
    names.press("Control+a")
    names.press_sequentially("data, tensor")
    dashboard.expect_rules([("batch", "data"), ("hidden", "tensor")])
    expect(names).to_be_focused()


def test_the_wheel_moves_the_page_over_a_table_until_a_click_in_it(dashboard):
    page = dashboard.page
    dashboard.open_tab("Arrays")
    table = dashboard.keyed("array_table").get_by_test_id("stDataFrame")
    page.set_viewport_size({"width": 1440, "height": 700})
    table.evaluate("table => table.scrollIntoView({block: 'center'})")
    dashboard.wait_for_stillness()

    def top(place: str) -> float:
        return page.locator(place).first.evaluate("found => found.scrollTop")

    def turn_until_moved(place: str) -> None:
        """Turn the wheel over the table, and wait until this has moved."""
        table.hover(position={"x": 100, "y": 100})
        before = top(place)
        page.mouse.wheel(0, 60)
        until(lambda: top(place) > before, f"{place} moving", PATIENCE)

    turn_until_moved("[data-testid=stMain]")
    assert top(".st-key-array_table .dvn-scroller") == 0
    table.click(position={"x": 100, "y": 100})
    dashboard.settle()
    turn_until_moved(".st-key-array_table .dvn-scroller")


# Notes every text of the main part of the page that has the word, after each change of the page.
_NOTE_UNKNOWN = """() => {
    window.unknownTexts = new Set();
    window.figureTexts = new Set();
    const look = () => {
        const main = document.querySelector('[data-testid=stMain]');
        for (const line of main.innerText.split('\\n'))
            if (/\\bunknown\\b/i.test(line)) window.unknownTexts.add(line);
        for (const metric of main.querySelectorAll('[data-testid=stMetric]'))
            window.figureTexts.add(metric.innerText);
    };
    look();
    new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
}"""
LAYERS_32_MS = 300_000  # until the programs are partitioned on a busy machine
LAYERS_32 = (
    "?model=transformer&layers=32&batch=64&target=tpu:v5p:4x4x4&mesh=16x4&axes=fsdp,tensor"
    "&rules=batch.fsdp~embed.fsdp~mlp.tensor~heads.tensor"
)


@pytest.mark.nightly
def test_no_figure_is_unknown_while_a_rule_is_typed(open_dashboard):
    dashboard = open_dashboard(LAYERS_32)
    page = dashboard.page
    figures = dashboard.main().get_by_test_id("stMetric")

    def wait_for_figures() -> None:
        known = figures.filter(has_not_text="computing")
        expect(known).to_have_count(4, timeout=LAYERS_32_MS)
        dashboard.settle()

    wait_for_figures()
    page.evaluate(_NOTE_UNKNOWN)
    field = dashboard.field("Mesh axes of rule 3")
    field.press("Control+a")
    field.press_sequentially("fsdp")
    expect(figures.filter(has_text="last value, computing")).to_have_count(4)
    for name in dashboard.in_windows():
        dashboard.screenshot(f"computing_{name}")
    wait_for_figures()
    field.press_sequentially(" + tensor")
    expect(figures.filter(has_text="last value, computing")).to_have_count(4)
    wait_for_figures()
    assert page.evaluate("() => [...window.unknownTexts]") == []
    shown = page.evaluate("() => [...window.figureTexts]")
    assert len([text for text in shown if "computing" not in text]) > 8, "two more sets of figures"


def test_a_link_keeps_the_number_that_was_typed_before(open_dashboard):
    """The field sends its number when the click takes the focus from it."""
    dashboard = open_dashboard("?depth=64&layers=2")
    for label, typed in (("Layers", "3"), ("Batch", "16")):
        field = dashboard.page.locator(f'input[aria-label="{label}"]')
        field.fill(typed)
        dashboard.open_board()
        dashboard.go_to("Layout")
        expect(field).to_have_value(typed)


def test_the_logo_is_on_the_page_after_the_layout_page(open_dashboard):
    dashboard = open_dashboard("?depth=64&layers=2")
    logo = dashboard.page.locator('[data-testid="stSidebarLogo"], [data-testid="stHeaderLogo"]')
    before = logo.get_attribute("src")
    dashboard.open_board()
    expect(logo).to_be_visible()
    box, links = logo.bounding_box(), dashboard.page.get_by_test_id("stTopNav").bounding_box()
    assert box["width"] > 100 and box["x"] < 40 and box["x"] + box["width"] <= links["x"] + 1
    # Its colors are those of the scheme at any time.
    assert logo.get_attribute("src") == before
    assert "prefers-color-scheme" in base64.b64decode(before.partition(",")[2]).decode()
