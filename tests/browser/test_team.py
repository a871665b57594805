"""Two users of a team server behind nginx run, share and are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from benchmarks.processes import until
from tests.browser.dashboard import WIDE, Dashboard
from tests.hostile import nginx
from tests.hostile.team import Team

pytestmark = pytest.mark.nightly

ANN, BEN = "ann <b>A</b>@my.org", "ben@my.org"
SMALL = "?depth=64&batch=8&layers=2&steps=2"
ENDLESS = "?mesh=2x1&steps=10000&depth=512&batch={}"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    team = Team(tmp_path_factory.mktemp("team"), users=(ANN, BEN))
    yield team
    left = team.stop()
    assert not left, f"processes {left} outlived the server"


def audited(team: Team) -> list[dict]:
    return [json.loads(line) for line in team.audit.read_text().splitlines()]


@pytest.fixture
def sign_in(open_context: Callable[..., BrowserContext], team: Team) -> Callable[..., Dashboard]:
    """Open a page as a user, in a browser of its own."""

    def make(name: str, link: str = "") -> Dashboard:
        password = {"username": name, "password": nginx.PASSWORD}
        page = open_context(viewport=WIDE, reduced_motion="reduce", http_credentials=password).new_page()
        page.goto(f"{team.url}/{link}")
        return Dashboard(page, team.url)

    return make


def jobs_of(page: Page) -> list[str]:
    """Return the texts of the rows of the Jobs page."""
    rows = page.get_by_test_id("stHorizontalBlock").filter(has_text=re.compile("Waiting|Running"))
    return [" ".join(row.split()) for row in rows.all_inner_texts()]


def test_two_users_run_cancel_share_and_are_refused(sign_in: Callable[..., Dashboard], team: Team) -> None:
    ann, ben = (sign_in(name, SMALL) for name in (ANN, BEN))
    for dashboard in (ann, ben):
        dashboard.wait_for_figure("block_map")
        expect(dashboard.page).to_have_url(re.compile("depth=64"))
        dashboard.settle()

    # Entries: Ben sees Ann's only when she shares it, and cannot change it.
    ann.click("keep:open")
    ann.page.get_by_label("Name in the library").fill("Ann's layout")
    ann.page.get_by_role("button", name="Save in the library").click()
    expect(ann.page.get_by_role("dialog")).to_have_count(0)
    ann.settle()
    ann.go_to("Library")
    expect(ann.main().get_by_text(f"Owner: {ANN} (private)")).to_be_visible()
    assert ann.page.locator("b", has_text="A").count() == 0, "a name is text"
    ben.go_to("Library")
    expect(ben.main().get_by_text("The library is empty")).to_be_visible()
    ann.click("library_share")
    expect(ann.keyed("library_share")).to_contain_text("Make private")
    ben.page.reload()
    expect(ben.main().get_by_role("heading", name="Ann's layout")).to_be_visible()
    expect(ben.main().get_by_text(f"Owner: {ANN} (shared)")).to_be_visible()
    for key in ("delete_popover", "rename_popover", "note_popover", "share"):
        expect(ben.keyed(f"library_{key}")).to_have_count(0)
    ann.screenshot("team_library")
    # A signed-in user can upload.
    with ben.page.expect_download() as waiting:
        ben.keyed("library_download").get_by_role("button").click()
    ben.go_to("Open")
    ben.main().locator("input[type=file]").set_input_files(waiting.value.path())
    ben.wait_for_figure("block_map")

    # Jobs: each has one that runs on the two workers; Ann's second one waits.
    runs = [ann.page.context.new_page() for _ in range(2)]
    tabs = [Dashboard(page, team.url).open(ENDLESS.format(8 * n)) for n, page in enumerate(runs, 16)]
    tabs[0].start_run()
    ben.page.goto(f"{team.url}/{ENDLESS.format(256)}")
    ben.wait_for_figure("block_map")
    ben.start_run()
    tabs[1].start_run()
    expect(tabs[1].keyed("run_controls").or_(tabs[1].main())).to_contain_text("place 1 in the queue")
    ben.go_to("Jobs")
    until(lambda: len(jobs_of(ben.page)) == 3, "all jobs")
    rows = jobs_of(ben.page)
    assert [ANN in row for row in rows].count(True) == 2 and "You" in " ".join(rows)
    assert any("Waiting" in row for row in rows)
    ben.screenshot("team_jobs")
    expect(ben.page.get_by_role("button", name="Cancel")).to_have_count(1)
    assert not any("data" in row for row in rows if ANN in row), "others see no layout"
    ben.page.get_by_role("button", name="Cancel").click()
    until(lambda: len(jobs_of(ben.page)) == 2, "the end of Ben's job")
    ann.page.goto(f"{team.url}/jobs")  # the link is there after the next redraw of her page
    expect(ann.page.get_by_role("button", name="Cancel")).to_have_count(2)

    # Ann's jobs are cancelled by her; what happened is in the audit log.
    for left in (1, 0):
        ann.page.get_by_role("button", name="Cancel").first.click()
        expect(ann.page.get_by_role("button", name="Cancel")).to_have_count(left)
    events = audited(team)
    kinds = {(event["event"], event["user"]) for event in events}
    assert {
        *(("job-start", ANN), ("job-cancel", ANN)),
        *(("job-start", BEN), ("job-cancel", BEN), ("library-save", ANN), ("library-share", ANN)),
    } <= kinds
    ended = next(event for event in events if (event["event"], event["user"]) == ("job-cancel", BEN))
    assert ended["target"] == "cpu" and ended["seconds"] > 0 and len(ended["layout"]) == 16
    assert team.secret not in json.dumps(events) + team.log()
