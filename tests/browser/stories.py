"""Three tasks of first-time users, done with real clicks: what each needs, and whether its answers are seen.

A click is a press of the mouse that the page gets. Typing and keys are free. Nothing here scrolls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.browser.dashboard import PATIENCE_MS, Dashboard

# Where the stories begin.
OF_STUDENT = "?depth=256&layers=2&steps=2"
OF_STAFF = "?target=tpu:v5e:2x4&depth=256&layers=2"
OF_OWN_MODEL = "?target=tpu:v5e:2x2&mesh=2x2&axes=data,model"
OWN_MODEL = "examples.linen_mlp:build"

COUNT_CLICKS = """
    if (window.pressed === undefined) {  // tests share tabs, and a tab keeps the scripts of each test
        window.pressed = Number(sessionStorage.getItem('pressed') ?? 0);
        addEventListener('click', event => {
            if (event.isTrusted && event.detail > 0) sessionStorage.setItem('pressed', ++window.pressed);
        }, true);
    }
"""


@dataclass
class Story:
    """A task in a dashboard whose page counts clicks.

    Attributes:
      picture: called with the name of each step when its answer is on the screen.
      clicks: of each step, by its name.
    """

    dashboard: Dashboard
    picture: Callable[[str], None]
    clicks: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str, *answers: Callable[[], Locator]) -> Iterator[None]:
        """Do a step, then wait until each answer is on the screen without scrolling."""
        before = pressed(self.dashboard.page)
        yield
        self.dashboard.settle()
        for answer in answers:
            expect(answer()).to_be_in_viewport(ratio=1)
        self.clicks[name] = pressed(self.dashboard.page) - before
        self.picture(name)


def pressed(page: Page) -> int:
    """Return how many clicks the page has got."""
    return page.evaluate("() => Number(sessionStorage.getItem('pressed') ?? 0)")


def replace_text(dashboard: Dashboard, label: str, text: str) -> None:
    """Click into a field, replace its text, and wait as a user does, without Enter."""
    place = dashboard.field(label)
    place.click()
    place.press("Control+a")
    dashboard.page.keyboard.type(text)


def head(dashboard: Dashboard, label: str) -> Locator:
    """Return one of the answers in the head of the page, such as *Step*."""
    return dashboard.main().get_by_test_id("stMetric").filter(has_text=re.compile(f"^{label}"))


def student(story: Story) -> None:
    """What did `hidden → data` change? How long is a step? Why is this all-gather there?"""
    dashboard = story.dashboard
    main = dashboard.main()
    with story.step(
        "student_1_rule",
        lambda: head(dashboard, "Memory").filter(has_text="→"),
        lambda: head(dashboard, "Traffic").filter(has_text="→"),
        lambda: dashboard.keyed("whole_model").locator(".tile").filter(has_text="data ÷2").first,
    ):
        replace_text(dashboard, "Mesh axes of rule 2", "data")
    with story.step(
        "student_2_run", lambda: head(dashboard, "Step").filter(has_text=re.compile(r"\d (ms|s)"))
    ):
        dashboard.keyed("run_button").get_by_role("button").click()
        dashboard.expect_badge("Run on emulated devices")
    with story.step(
        "student_3_why",
        lambda: main.get_by_role("row").filter(has_text=re.compile(r"all-gathers? over model")).first,
    ):
        dashboard.page.get_by_role("tab", name="Communication").click()


def staff(story: Story, folder: Path) -> dict[str, str]:
    """Bring three compiled layouts to a screenshot, a link and a report.

    Returns:
      the texts of `page`, `screenshot`, `report` and of the page that the `link` opens.
    """
    dashboard = story.dashboard
    page, main = dashboard.page, dashboard.main()
    texts = {}
    for preset in ("Data", "FSDP", "FSDP + tensor"):
        name = preset.replace(" + ", "_").lower()
        with story.step(f"staff_1_compiled_{name}", lambda: head(dashboard, "Step")):
            dashboard.choose_preset(preset)
            dashboard.keyed("run_button").get_by_role("button").click()
            dashboard.expect_badge("Compiled, not run")
            dashboard.settle()
            dashboard.open_pin_menu()
            dashboard.field("Name in the comparison").press("Enter")
    picture = "glance"

    def verdict() -> Locator:
        return main.get_by_text(re.compile("has the shortest step")).first

    with story.step("staff_2_compare", verdict):
        page.get_by_role("link", name="Compare (3)").click()
        dashboard.wait_for_figure(picture)
    texts["page"] = main.inner_text()
    with story.step(
        "staff_3_screenshot",
        lambda: main.get_by_role("heading").first,
        verdict,
        lambda: dashboard.keyed(picture),
    ):
        dashboard.open_share()
        dashboard.click("enter_screenshot_mode")
        dashboard.wait_for_stillness()
    texts["screenshot"] = main.inner_text()
    link = page.url
    with story.step("staff_4_report"):
        dashboard.click("leave_screenshot_mode")
        dashboard.open_share()
        with page.expect_download(timeout=PATIENCE_MS) as download:
            page.get_by_role("button", name="HTML").click()
    report = folder / "report.html"
    download.value.save_as(report)
    with story.step("staff_5_link"):
        opened = page.context.new_page()
        opened.goto(link)
        Dashboard(opened, dashboard.url).wait_for_figure(picture)
        texts["link"] = Dashboard(opened, dashboard.url).main().inner_text()
        opened.goto(report.as_uri())
        texts["report"] = opened.locator("body").inner_text()
        opened.close()
    return texts


def own_model(story: Story, title: str) -> str:
    """Bring a model of one's own, with this title, to the code of its best layout. Returns the code."""
    dashboard = story.dashboard
    page = dashboard.page
    with story.step("own_1_model", lambda: dashboard.keyed("whole_model").locator(".tile").first):
        dashboard.field("Model").click()
        page.get_by_role("option", name=title).click()
        expect(dashboard.main().get_by_role("heading").first).to_contain_text(title)
    with story.step("own_2_search", lambda: dashboard.keyed("start_search")):
        page.get_by_role("link", name="Search").click()
        expect(dashboard.main().get_by_role("heading", name="Search")).to_be_visible()
    best = dashboard.main().get_by_text(re.compile("is (the )?best"))
    with story.step("own_3_best", lambda: best.first, lambda: dashboard.keyed("code_button")):
        dashboard.click("start_search")
        dashboard.wait_for_figure("search_front")
        dashboard.wait_for_stillness()
    with story.step("own_4_code", lambda: dashboard.keyed("code_download")):
        dashboard.click("code_button")
    return page.get_by_role("dialog").get_by_test_id("stCode").inner_text()
