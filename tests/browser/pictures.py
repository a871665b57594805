"""Takes the pictures of the documentation from the running app: `python -m tests.browser.pictures`.

Arguments name the parts to take, of `tasks` and `pages`.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser import stories
from tests.browser.chromium import chromium
from tests.browser.dashboard import PATIENCE_MS, WIDE, Dashboard
from tests.browser.server import Server
from tests.paths import ROOT

PICTURES = ROOT / "docs" / "pictures"
TASKS = ROOT / "docs" / "tasks.md"
LARGEST_BYTES = 300_000  # a README with all of them still opens at once on a slow line

# A picture, the tab and the view that it shows, and the figure that must be drawn for it.
PANELS = (
    ("shard_map", ("Arrays", "Table"), "block_map"),
    ("whole_model", ("Summary",), None),
    ("tree", ("Arrays", "Tree"), "spec_tree"),
    ("collectives", ("Communication",), "collective_bars"),
    ("effects", ("Improve",), None),
    ("time", ("Time",), "timeline"),
)


# Presets that are pinned after the default layout.
PINNED = ("FSDP", "FSDP + tensor")


TRANSFORMER = (
    "?model=transformer&target=tpu:v5e:4x4&mesh=4x4&axes=fsdp,tensor&donate=true"
    "&rules=batch.fsdp~embed.fsdp~mlp.tensor~heads.tensor~vocab.tensor&layers=16&scan=true&embed=2048"
    "&mlp=8192&heads=16&kv_heads=16&head_dim=128&vocab=32768&batch=64&seq=2048&dtype=bfloat16"
    "&remat=minimal&attention=flash"
)


def take(dashboard: Dashboard, name: str) -> None:
    """Save a picture of the window."""
    path = PICTURES / f"{name}.png"
    dashboard.settle()
    expect(dashboard.page.get_by_test_id("stProgress")).to_have_count(0)
    expect(dashboard.page.get_by_test_id("stToast")).to_have_count(0)  # it stays for a few seconds
    # A button that looks pressed or hovered over would be all that one sees.
    dashboard.page.mouse.move(0, 0)
    dashboard.page.evaluate("document.activeElement.blur()")
    dashboard.wait_for_stillness()
    dashboard.page.screenshot(path=path, animations="disabled")
    size = path.stat().st_size
    print(f"{path.relative_to(PICTURES.parents[1])}: {size / 1000:.0f} kB")
    assert size <= LARGEST_BYTES, f"{path.name} is larger than {LARGEST_BYTES} bytes"


def take_transformer(dashboard: Dashboard) -> None:
    """Save a picture of the memory of a transformer before a compile, and of a search for it."""
    dashboard.open(TRANSFORMER)
    dashboard.open_tab("Memory")
    dashboard.wait_for_figure("memory_over_train_step")
    take(dashboard, "memory")
    dashboard.go_to("Search")
    dashboard.settle()
    dashboard.type("Compiles, at most", "0")
    dashboard.main().get_by_text("Advanced", exact=True).click()
    dashboard.type("Fixed", "mesh")  # of all meshes there are 425 candidates
    dashboard.click("start_search")
    expect(dashboard.keyed("search").locator("canvas").first).to_be_visible()
    dashboard.wait_for_figure("search_front")
    dashboard.main().get_by_text("Candidates").first.scroll_into_view_if_needed()
    take(dashboard, "search")


def take_tasks(browser: Browser, server: Server) -> None:
    """Save the pictures of docs/tasks.md, which are steps of the stories."""
    (PICTURES / "tasks").mkdir(exist_ok=True)
    shown = set(re.findall(r"pictures/(tasks/\w+)\.png", TASKS.read_text()))

    def begin(url: str, query: str) -> stories.Story:
        page = browser.new_context(viewport=WIDE, reduced_motion="reduce").new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.add_init_script(stories.COUNT_CLICKS)
        dashboard = Dashboard(page, url).open(query)
        return stories.Story(
            dashboard,
            lambda name: take(dashboard, f"tasks/{name}") if f"tasks/{name}" in shown else None,
        )

    stories.student(begin(server.url, stories.OF_STUDENT))
    with tempfile.TemporaryDirectory() as folder:
        stories.staff(begin(server.url, stories.OF_STAFF), Path(folder))
    with_own_model = Server(serve=["--model", stories.OWN_MODEL])
    try:
        stories.own_model(begin(with_own_model.url, stories.OF_OWN_MODEL), stories.OWN_MODEL)
    finally:
        with_own_model.stop()


def take_pages(browser: Browser, server: Server) -> None:
    """Save the pictures of the pages."""
    for theme in ("light", "dark"):
        page = browser.new_page(color_scheme=theme, viewport=WIDE)
        dashboard = Dashboard(page, server.url).open("?chip=v5e")
        dashboard.run()
        for name, place, figure in PANELS:
            if theme == "dark" and name != "shard_map":
                continue
            dashboard.open_tab(*place)
            if figure is not None:
                dashboard.wait_for_figure(figure)
            take(dashboard, f"{name}{'_dark' if theme == 'dark' else ''}")
        if theme == "light":
            dashboard.open_tab("Summary")
            dashboard.pin()
            for preset in PINNED:
                dashboard.kept("preset").get_by_text(preset, exact=True).click()
                dashboard.settle()
                dashboard.run()
                dashboard.pin(preset)
            dashboard.open_board()
            take(dashboard, "board")
            dashboard.go_to("Accuracy of predictions")
            dashboard.wait_for_figure("accuracy")
            take(dashboard, "accuracy")
            take_transformer(dashboard)
        page.close()


PARTS = {"tasks": take_tasks, "pages": take_pages}


def main(parts: Sequence[str] = tuple(PARTS)) -> int:
    """Make the pictures of these parts; gives the exit status."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    server = Server()
    try:
        with chromium() as browser:
            for part in parts:
                PARTS[part](browser, server)
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or tuple(PARTS)))
