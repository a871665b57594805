"""The Processes page, and layouts that several processes run."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard import Dashboard, cells
from tests.browser.server import Server

pytestmark = pytest.mark.nightly

SMALL = "layers=1&depth=64&steps=2"


class ProcessesPage(Dashboard):
    """A tab with the Processes page."""

    def open(self, query: str = "") -> ProcessesPage:
        self.page.goto(f"{self.url}/processes{query}")
        self.wait_for_figure("processes-given_figure")
        self.settle()
        return self

    def texts(self, key: str) -> list[str]:
        return [text for text, _, _ in cells(self.wait_for_figure(f"processes-{key}_figure"))]

    def row(self, name: str) -> list[str]:
        """Return a row of the table: the value on each process."""
        row = (
            self.page.get_by_test_id("stTable")
            .get_by_role("row")
            .filter(has=self.page.get_by_role("cell", name=name, exact=True))
        )
        expect(row).to_be_visible()  # the table comes after the figures
        return row.get_by_role("cell").all_inner_texts()[1:]


@pytest.fixture
def processes_page(open_tab, server: Server):
    return ProcessesPage(open_tab(), server.url).open()


def tile_labels(figure: dict) -> list[str]:
    return [text for trace in figure["data"] if trace.get("mode") == "text" for text in trace["text"]]


def test_two_processes_exchange_arrays(processes_page: ProcessesPage) -> None:
    page = processes_page
    page.expect_alert("2 processes with (4, 2) each make one global array of (8, 2)")
    numbers = [str(number) for number in range(16)]
    assert page.texts("given") == page.texts("global") == page.texts("returned") == numbers
    whole = page.wait_for_figure("processes-global_figure")
    assert tile_labels(whole) == ["0:4 process 0", "4:8 process 1"]
    assert len({colour for _, _, colour in cells(whole)}) == 2
    mesh = page.wait_for_figure("processes-mesh_figure")
    assert [text.split("<br>")[0] for text, _, _ in cells(mesh)] == [
        f"device {device}" for device in (0, 1, 2, 3, 2048, 2049, 2050, 2051)
    ]
    assert any(trace.get("name") == "process border" for trace in mesh["data"])
    assert page.row("process_index()") == ["0", "1"]
    assert page.row("local_devices()") == ["0, 1, 2, 3", "2048, 2049, 2050, 2051"]
    assert page.row("is_fully_addressable") == ["False", "False"]
    assert page.row("global_shards") == ["8, of which 4 have no data here"] * 2
    page.screenshot("processes")


def test_the_mistake_of_the_migration_guide_is_explained(processes_page: ProcessesPage) -> None:
    page = processes_page
    toggle = page.page.get_by_text("Convert with host_local_array_to_global_array")
    toggle.click()
    page.expect_alert("dimension 0 should be divisible by 8, the devices along x, but it is equal to 4")
    expect(page.main().get_by_test_id("stCode").first).to_contain_text("the dimension size is 4")
    page.settle()
    expect(page.keyed("processes-global_figure")).to_have_count(0)
    page.screenshot("processes-mistake")
    toggle.click()
    page.expect_alert("each process gets its (4, 2) back")


def test_a_layout_of_two_processes_is_drawn(open_dashboard) -> None:
    dashboard = open_dashboard(f"?{SMALL}&processes=2")
    planned = dashboard.wait_for_figure("mesh_map")
    assert [text.split("<br>") for text, _, _ in cells(planned)][4] == [
        "device 2048", "block 0", "process 1",
    ]  # fmt: skip
    dashboard.expect_devices_of_blocks(["0, 2048", "1, 2049", "2, 2050", "3, 2051"])


def test_processes_of_the_mesh(open_dashboard) -> None:
    dashboard = open_dashboard(f"?{SMALL}")
    dashboard.sidebar().get_by_text("Advanced").click()
    field = dashboard.sidebar().get_by_test_id("stSelectbox").filter(has_text="Processes")
    field.scroll_into_view_if_needed()
    dashboard.wait_for_stillness()  # its list would close again
    field.locator("input").click()
    dashboard.page.get_by_role("option", name="4", exact=True).click()
    dashboard.page.wait_for_url("**processes=4*")
    dashboard.wait_for_figure("mesh_map", lambda figure: "6145" in str(cells(figure)))
    dashboard.type("Mesh", "3x2")
    expect(dashboard.sidebar()).to_contain_text("processes is 4, but must divide the 6 devices of mesh 3x2")
