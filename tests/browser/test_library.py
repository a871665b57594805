"""Fix a finding, save the Snapshot in the library, search it, export it, and open the file."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from inspector import layout as layouts
from inspector.media.streamlit.session import view_link
from tests.browser.dashboard import Dashboard

pytestmark = pytest.mark.nightly

TEXT = "before <b>review</b>"
NOTE = f"{TEXT} :material/home:"


def expect_refusal(dashboard: Dashboard, words: str) -> None:
    dashboard.expect_alert(words)
    expect(dashboard.page.get_by_test_id("stException")).to_have_count(0)
    dashboard.settle()


def upload(dashboard: Dashboard, name: str, content: bytes) -> None:
    field = dashboard.main().locator("input[type=file]")
    field.set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": content})


def search(dashboard: Dashboard, words: str) -> None:
    # The table has a button of this name too.
    field = dashboard.page.get_by_role("textbox", name="Search")
    field.fill(words)
    field.press("Enter")
    dashboard.settle()


def climbing_zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("../../outside.json", "{}")
    return packed.getvalue()


def test_fix_keep_search_export_and_open(open_dashboard, tmp_path: Path):
    dashboard = open_dashboard("?depth=64&layers=2&rules=batch.data")
    page = dashboard.page

    # No rule shards the train state: the audit reports it and offers a fix.
    dashboard.open_tab("Improve")
    finding = page.locator("[class*=st-key-row-improve-]").filter(has_text="replicated").first
    make = finding.get_by_role("button", name="Apply")
    expect(make).to_be_visible()
    make.click()
    expect(page).not_to_have_url(re.compile("rules=batch.data&"))  # a rule more shards what was replicated
    dashboard.settle()
    query = dict(pair.split("=", 1) for pair in dashboard.query().split("&"))
    _, fields = view_link.split(query)
    fixed = layouts.parse(fields).unwrap()
    assert {"embed", "hidden"} & {name for name, _ in fixed.rules}

    dashboard.click("keep:open")
    page.get_by_label("Note").fill(NOTE)
    page.get_by_label("Note").press("Tab")
    # A closed dialog keeps its text.
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    dashboard.settle()
    dashboard.click("keep:open")
    expect(page.get_by_label("Note")).to_have_value(NOTE)
    name = page.get_by_label("Name in the library").input_value()
    page.get_by_role("button", name="Save in the library").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    dashboard.settle()

    dashboard.go_to("Library")
    expect(dashboard.main().get_by_role("heading", name=name)).to_be_visible()
    expect(dashboard.main().get_by_text(TEXT).filter(visible=True).first).to_be_visible()
    assert page.locator("b", has_text="review").count() == 0  # text, not markup
    assert page.get_by_test_id("stIconMaterial").filter(has_text="home").count() == 0
    search(dashboard, "no such words")
    dashboard.expect_alert("No entry contains all of these words")
    search(dashboard, "review")
    expect(dashboard.alerts()).to_have_count(0)
    with page.expect_download() as waiting:
        dashboard.keyed("library_export").get_by_role("button").click()
    waiting.value.save_as(tmp_path / "library.zip")
    with zipfile.ZipFile(tmp_path / "library.zip") as archive:
        files = [one for one in archive.namelist() if one != "library.json"]
        content = archive.read(files[0])
    assert json.loads(content)["layout"] == fixed.to_json()

    # Another session opens the file after two invalid files.
    dashboard.go_to("Open")
    upload(dashboard, "climbing.zip", climbing_zip())
    expect_refusal(dashboard, "outside.json")
    upload(dashboard, "deep.json", b"[" * 100_000)
    expect_refusal(dashboard, "deep.json")
    upload(dashboard, "kept.json", content)
    dashboard.wait_for_figure("block_map")
    expect(dashboard.main().get_by_text("kept.json").first).to_be_visible()
