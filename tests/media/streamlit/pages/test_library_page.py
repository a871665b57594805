"""The Library page and the Keep button on a temporary library."""

from __future__ import annotations

import dataclasses
import re
import sqlite3
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inspector import layout as layouts
from inspector.jobs import serving
from inspector.jobs.engine import Requester
from inspector.jobs.library import Library
from inspector.jobs.serving import Serving, TrustedProxy
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.pages import library_page, open_page
from inspector.media.streamlit.session import user
from inspector.records.snapshot import Snapshot
from tests.figures import samples
from tests.media.streamlit.scripted_page import PATIENCE

LAYOUT = layouts.parse({"mesh": "4x2", "layers": "2", "depth": "64"}).unwrap()
FOUND = samples.snapshot()
LAID_OUT = dataclasses.replace(FOUND, layout=LAYOUT.to_json())
HOSTILE = "<img src=x onerror=alert(1)> **b** $x$ :red[x]"


def page_script() -> None:
    """Draw the page alone; Streamlit runs the source of this function."""
    from inspector.media.streamlit.pages import library_page

    library_page.show()


def button_script() -> None:
    import streamlit as st

    from inspector.media.streamlit.parts import keep_buttons

    keep_buttons.show_save(st.session_state["found"], "MLP 2x4", key="keep")


@pytest.fixture
def library(user_files: Path) -> Library:
    return Library()


class Page:
    """One session of a script."""

    def __init__(self, script, **state) -> None:
        self.test = AppTest.from_function(script, default_timeout=PATIENCE)
        for key, value in state.items():
            self.test.session_state[key] = value
        self.do(self.test)

    def do(self, changed) -> None:
        changed.run()
        assert not self.test.exception, [error.value for error in self.test.exception]

    def press(self, key: str) -> None:
        self.do(self.test.button(key=key).click())

    def search(self, words: str) -> None:
        self.do(self.test.text_input(key="library_search").set_value(words))

    def choose(self, name: str) -> None:
        self.test.session_state[library_page.CHOSEN] = name
        self.do(self.test)

    def names(self) -> list[str]:
        tables = self.test.dataframe
        return list(tables[0].value["Name"]) if tables else []

    def said(self, *kinds: str) -> str:
        """Return all text, or the text of these kinds of elements, unescaped."""
        kinds = kinds or ("markdown", "caption", "error", "info")
        texts = [element.value for kind in kinds for element in self.test.get(kind)]
        return re.sub(r"\\(.)", r"\1", "\n".join(texts))


def page_with(library: Library, **saved: Snapshot) -> Page:
    """Save these Snapshots in this order, without notes, and open the page."""
    for name, snapshot in saved.items():
        library.save(name, "", snapshot)
    return Page(page_script)


def opened(page: Page) -> tuple[str, Snapshot]:
    return page.test.session_state[open_page.OPENED]


def test_an_empty_library_explains_keep(library: Library) -> None:
    page = Page(page_script)
    assert "The library is empty" in page.said("info") and page.names() == []


def test_search_choose_and_open(library: Library) -> None:
    library.save("base", "why\nand how", FOUND)
    library.save("other", "", LAID_OUT)
    page = Page(page_script)
    assert page.names() == ["other", "base"]
    assert page.said("caption").startswith("2 entries, ")
    # The newest is shown until another is selected.
    assert "#### other" in page.said() and "No note" in page.said()
    page.search("WHY")
    assert page.names() == ["base"] and "#### base" in page.said()
    assert "why  \nand how" in page.said()
    page.search("nowhere")
    assert page.names() == [] and "No entry contains" in page.said("info")
    page.search("")
    page.choose("base")
    assert "#### base" in page.said()
    assert {metric.label: metric.value for metric in page.test.metric}["Devices"] == "8"
    page.press("library_open")
    assert opened(page) == ("base", FOUND) and page.test.session_state["went_to"] == "open"


def test_edit_layout_opens_the_layout_page(library: Library) -> None:
    page = page_with(library, **{"with": LAID_OUT})
    page.press("library_edit")
    assert page.test.session_state["went_to"] == ""
    assert page.test.session_state["last_layout"] == LAYOUT
    library.save("without", "", FOUND)
    page.choose("without")
    assert not [button for button in page.test.button if button.key == "library_edit"]


def test_save_note_and_delete(library: Library) -> None:
    page = page_with(library, base=FOUND, other=FOUND)
    (area,) = page.test.text_area
    page.do(area.set_value("a later thought"))
    page.press("library_annotate")
    assert library.entry("other").note == "a later thought" and "a later thought" in page.said()
    assert "other cannot be recovered." in page.said("markdown")
    page.press("library_delete")
    assert page.names() == ["base"] and [entry.name for entry in library.entries()] == ["base"]


def test_a_renamed_snapshot_stays_selected(library: Library) -> None:
    library.save("base", "", FOUND)
    library.save("other", "note", FOUND)
    page = Page(page_script)
    (field,) = [text_input for text_input in page.test.text_input if text_input.label == "New name"]
    page.do(field.set_value("base"))
    page.press("library_rename")
    assert "already" in page.said("error")
    page.do(field.set_value("third"))
    page.press("library_rename")
    assert page.names() == ["third", "base"] and library.entry("third").note == "note"
    assert "third cannot be recovered." in page.said("markdown")


def test_a_user_of_a_team_changes_and_shares_only_what_is_theirs(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, ben = (Requester(name, f"{name} {HOSTILE}", name, signed_in=True) for name in "ab")
    library.save("nobody's", "", FOUND)
    Library(user=ann).save("hers", "", FOUND)
    monkeypatch.setattr(serving, "current", lambda: Serving(team=True, proxy=TrustedProxy("X-User")))
    monkeypatch.setattr(user, "current", lambda: ann)
    page = Page(page_script)
    assert page.names() == ["hers", "nobody's"] and str(library.path) not in page.said()
    raw = [caption.value for caption in page.test.caption if caption.value.startswith("Owner")]
    assert raw == [f"Owner: {plain(f'{ann.name} (private)')}"]
    page.press("library_share")
    monkeypatch.setattr(user, "current", lambda: ben)
    other = Page(page_script)
    assert other.names() == ["hers", "nobody's"]
    keys = {button.key for button in other.test.button}
    changes = {"library_share", "library_annotate", "library_rename", "library_delete"}
    assert "library_open" in keys and not keys & changes
    # The page of another user, or one drawn before, changes nothing.
    other.test.session_state["library_chosen"] = "hers"
    monkeypatch.setattr(user, "current", lambda: ann)
    page.do(page.test)
    monkeypatch.setattr(user, "current", lambda: ben)
    page.press("library_delete")
    assert "belongs to" in page.said("error") and library.entry("hers").shared


def test_no_user_of_a_team_moves_the_library(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    library.path.write_bytes(b"nothing that SQLite knows " * 50)
    monkeypatch.setattr(serving, "current", lambda: Serving(team=True))
    page = Page(page_script)
    assert "damaged" in page.said("error") and not page.test.button


def test_a_snapshot_deleted_in_another_tab_is_reported(library: Library) -> None:
    page = page_with(library, base=FOUND, other=FOUND)
    library.delete("other")
    page.press("library_delete")
    assert "no entry named 'other'" in page.said("error") and page.names() == ["base"]


def test_a_shown_snapshot_opens_even_if_deleted(library: Library) -> None:
    page = page_with(library, base=FOUND, other=LAID_OUT)
    assert "#### other" in page.said()
    library.delete("other")
    page.press("library_open")
    assert opened(page) == ("other", LAID_OUT) and page.test.session_state["went_to"] == "open"


def test_pin_to_the_board(library: Library) -> None:
    page = page_with(library, base=FOUND)
    page.press("library_pin")
    assert page.test.session_state["board"].names == ("base",)


def test_names_and_notes_are_escaped(library: Library) -> None:
    library.save(HOSTILE, HOSTILE, FOUND)
    page = Page(page_script)
    raw = [element.value for kind in ("markdown", "caption") for element in page.test.get(kind)]
    for text in raw:
        bare = re.sub(r"\\.", "", text)  # without escaped characters
        assert not re.search(r"[<$]|\*\*b|:red\[x", bare), text
    assert HOSTILE in page.said()


def test_a_damaged_snapshot_can_still_be_deleted(library: Library) -> None:
    library.save("broken", "", FOUND)
    with sqlite3.connect(library.path) as database:
        database.execute("UPDATE snapshots SET packed = x'00'")
    page = Page(page_script)
    assert "is damaged" in page.said("error")
    page.press("library_delete")
    assert library.entries() == ()


def test_a_damaged_file_is_moved_by_the_button_only(library: Library) -> None:
    library.path.write_bytes(b"nothing that SQLite knows " * 50)
    page = Page(page_script)
    assert "damaged or not a library" in page.said("error")
    assert len(list(library.path.parent.iterdir())) == 1
    page.press("library_move_aside")
    assert "The library is empty" in page.said("info")
    kept = [path.read_bytes()[:7] for path in library.path.parent.glob("saved-aside-*")]
    assert kept == [b"nothing"]


def test_a_file_of_another_program_is_not_moved(library: Library) -> None:
    with sqlite3.connect(library.path) as database:
        database.execute("CREATE TABLE theirs (x)")
    page = Page(page_script)
    assert "another program" in page.said("error") and not page.test.button


def test_keep_asks_before_replacing(library: Library) -> None:
    page = Page(button_script, found=FOUND)

    def keep(**fields: str) -> None:
        """Fill the fields of the dialog, and save."""
        for key, text in fields.items():
            field = page.test.text_input if key.startswith("name") else page.test.text_area
            field(key=f"keep:{key}").set_value(text)
        page.press("keep")

    page.press("keep:open")
    assert not library.path.exists()
    keep(note="first")
    assert library.entry("MLP 2x4").note == "first"
    page.press("keep:open")
    keep(note="second")
    assert "replace the Snapshot" in page.said("error")
    assert page.test.button(key="keep").label == "Replace Snapshot"
    assert library.entry("MLP 2x4").note == "first"
    page.press("keep")
    assert library.entry("MLP 2x4").note == "second"
    page.press("keep:open")
    keep(**{"name:MLP 2x4": "a\x07b"})
    assert "1 to 120 printable" in page.said("error")
    assert len(library.entries()) == 1


def test_a_dialog_stays_open_while_the_page_is_redrawn(library: Library) -> None:
    page = Page(button_script, found=FOUND)
    page.press("keep:open")
    page.test.run()
    page.test.text_area(key="keep:note").set_value("after a redraw")
    page.press("keep")
    assert library.entry("MLP 2x4").note == "after a redraw"
    assert not page.test.text_area
