"""The HTML report, read by an HTML parser: its content, its policy, and the escaping of names."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import html
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plotly.offline import get_plotlyjs

from inspector.answers import comparison
from inspector.answers.section import plain
from inspector.assessment import assess
from inspector.compare import difference
from inspector.machines import hardware
from inspector.media import report
from inspector.media.html import safe_json
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput
from inspector.text.printable import printable
from tests.compare.difference import layouts
from tests.figures import samples
from tests.media import hostile

CHIP = hardware.chip("v5p")

TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "nav", "section", "footer"),
    *("h1", "h2", "h3", "h4", "h5", "p", "ul", "li", "a", "strong", "code", "span", "div", "br"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre"),
    *("figure", "figcaption", "button", "script"),
    *("svg", "g", "rect", "path", "line", "circle", "text"),  # of drawings
}
VOID = ("meta", "br")
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "scope", "title"),
    *("tabindex", "style", "role", "aria-label", "type", "data-save", "data-figure", "data-open"),
    # Of drawings. None loads anything or runs code.
    *("xmlns", "viewbox", "width", "height", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "d"),
    *("fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "transform"),
    *("font-family", "font-size", "font-weight", "text-anchor", "pointer-events"),
    *("data-path", "data-cuts", "data-axis", "data-rule", "data-collective", "data-position"),
}


class Page(HTMLParser):
    """The elements, tables and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.title = self.text = ""
        self.tables: list[list[list[str]]] = []
        self.parts: list[str] = []  # `details` and what precedes them: tables, figures, headings
        self._inside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if "details" not in self._inside and tag in ("h1", "figure", "table", "details", "h2"):
            self.parts.append(dict(attrs).get("id") or tag)
        if tag not in VOID:
            self._inside.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._inside.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"there is a comment: {data!r}")

    def handle_data(self, data: str) -> None:
        where = self._inside[-1] if self._inside else ""
        if where == "script":
            attributes, before = self.scripts[-1]
            self.scripts[-1] = (attributes, before + data)
        elif self._inside[-2:] == ["head", "title"]:
            self.title += data
        elif where != "style":
            self.text += data
            if "td" in self._inside or "th" in self._inside:
                self.tables[-1][-1][-1] += data

    @property
    def code(self) -> list[str]:
        """The scripts that run: Plotly, which is packed, and the page's own."""
        return [
            gzip.decompress(base64.b64decode(text)).decode()
            if attributes.get("type") == "application/gzip"
            else text
            for attributes, text in self.scripts
            if attributes.get("type") != "application/json"
        ]

    @property
    def figures(self) -> list[dict]:
        return [
            json.loads(text)
            for attributes, text in self.scripts
            if attributes.get("type") == "application/json"
        ]

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] or "" for _, attributes in self.elements if name in attributes]


def shown(text: str) -> str:
    """A text as the page shows it on one line."""
    return printable(re.sub(r"\s+", " ", text))


@pytest.fixture(scope="module")
def baseline() -> Snapshot:
    return samples.snapshot(samples.mesh(data=2, model=2))


@pytest.fixture(scope="module")
def pair(baseline: Snapshot) -> Page:
    return Page(report.content(pair_named(baseline), ".html", CHIP, {"after": "tried\n<b>this</b>"}))


def pair_named(baseline: Snapshot) -> list[tuple[str, Snapshot]]:
    mesh = baseline.mesh
    arrays = tuple(
        dataclasses.replace(array, spec=(None, None), bytes_per_device=array.bytes, replicas=4)
        if array.path.endswith("W2")
        else array
        for array in baseline.arrays
    )
    after = dataclasses.replace(samples.snapshot(mesh, arrays), programs=baseline.programs)
    return [("before", baseline), ("after", after)]


def test_the_page_is_one_file_with_one_copy_of_plotly(pair: Page) -> None:
    assert pair.code[0] == get_plotlyjs() and len(pair.code) == 2
    assert {name for _, each in pair.elements for name in each} <= ATTRIBUTES
    assert not [tag for tag, _ in pair.elements if tag in ("link", "iframe", "img", "base")]
    assert all(target.startswith("#") for target in pair.attributes("href"))


def test_the_policy_allows_only_the_two_scripts(pair: Page) -> None:
    (policy,) = [
        attributes["content"]
        for _, attributes in pair.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in pair.code
    }
    assert set(rules["script-src"].split()) == hashes


def test_everything_after_the_picture_is_folded(pair: Page, baseline: Snapshot) -> None:
    compared = ("difference", "board", "specs", "differing", "source")
    assert pair.parts == ["h1", "figure", *compared, "snapshot-1", "snapshot-2"]
    for sections in (("summary", "findings"), ("memory", "time", "arrays")):
        assert {f"snapshot-{n}-{key}" for n in (1, 2) for key in sections} <= set(pair.attributes("id"))
    alone = Page(report.content([("alone", baseline)], ".html", CHIP))
    assert alone.parts[:4] == ["h1", "figure", "figure", "snapshot-1-summary"]
    for page in (pair, alone):
        assert not [each for tag, each in page.elements if tag == "details" and "open" in each]
        assert len(page.attributes("id")) == len(set(page.attributes("id")))


def test_the_reason_of_a_rejected_layout_is_on_the_first_screen() -> None:
    rejected = layouts.planned(mesh="4x2", batch="3")
    page = Page(report.content([("rejected", rejected)], ".html", CHIP))
    reason = assess(rejected, CHIP).rejected
    assert reason and page.text.index(reason) < page.text.index("Open all parts")


def test_the_verdict_is_said_once_and_the_board_compares(pair: Page, baseline: Snapshot) -> None:
    (verdict,) = comparison.verdict(pair_named(baseline), CHIP).blocks
    assert pair.text.count(plain(verdict.parts)) == 1
    assert pair.text.index(plain(verdict.parts)) < pair.text.index("Differences")
    table = next(each for each in pair.tables if each[0][0] == "Question")
    assert table[0] == ["Question", "before (baseline)", "after"]
    boards = [each for each in pair.tables if each[0][0] == "Question"]
    rows = {row[0]: row for board in boards for row in board}
    # W2 is whole on 4 devices now: counted by hand, 12 of 24 kernels of 4 MiB, once in halves.
    assert rows["Train state per device"] == ["Train state per device", "48.0 MiB", "72.0 MiB ✗ +50% worse"]
    assert "4 arrays" not in rows["Arrays"][2] and rows["Arrays"][1] == "26"


def test_every_array_is_in_the_table_of_its_snapshot(pair: Page, baseline: Snapshot) -> None:
    tables = [each for each in pair.tables if {"Path", "Logical axes"} <= set(each[0])]
    assert len(tables) == 2
    for table in tables:
        assert {row[0] for row in table[1:]} == {array.path for array in baseline.arrays}


def test_saved_figures_have_their_provenance(pair: Page) -> None:
    places = pair.attributes("data-figure")
    assert places == [str(number) for number in range(len(pair.figures))] and len(places) > 10
    kinds = {trace["type"] for figure in pair.figures for trace in figure["data"]}
    assert {"heatmap", "bar", "scatter"} <= kinds and "scattergl" not in kinds
    for figure in pair.figures:
        assert "2026-01-01" in figure["stamp"]["annotation"]["text"]
        assert figure["stamp"]["height"] > figure["layout"]["height"]


def test_notes_keep_their_lines(pair: Page) -> None:
    assert "tried<b>this</b>" in pair.text


def test_many_points_are_drawn_without_webgl(baseline: Snapshot) -> None:
    steps = dataclasses.replace(
        baseline.programs[1].seconds, steps=tuple(0.01 + n * 1e-6 for n in range(1500))
    )
    program = dataclasses.replace(baseline.programs[1], seconds=steps)
    page = Page(report.content([("many", dataclasses.replace(baseline, programs=(program,)))], ".html"))
    assert max(len(t.get("customdata") or ()) for f in page.figures for t in f["data"]) == 1500
    assert not [t for f in page.figures for t in f["data"] if t["type"].endswith("gl")]


@pytest.mark.nightly
@settings(max_examples=12)  # each example is a whole page
@given(text=hostile.hostile_texts, name=hostile.hostile_texts, note=hostile.hostile_texts)
@example(
    text="<img src=x onerror=window.hacked=1>",
    name="</title><script>window.hacked=1</script>",
    note="</script><script>window.hacked=1</script><!--",
)
def test_names_are_escaped(text: str, name: str, note: str) -> None:
    snapshot = hostile.snapshot(text)
    other = hostile.snapshot(text, (None, (f"model{text}",)))
    chip = dataclasses.replace(CHIP, title=f"chip{text}")
    named = [(name, snapshot), (f"{name}2", other)]
    page = Page(report.content(named, ".html", chip, {name: note}))
    assert {tag for tag, _ in page.elements} <= TAGS
    assert {attribute for _, each in page.elements for attribute in each} <= ATTRIBUTES
    assert all(re.fullmatch(r"#[a-z0-9-]+", target) for target in page.attributes("href"))
    assert all(re.fullmatch(r"width:\d+px;height:\d+px", attribute) for attribute in page.attributes("style"))
    kinds = [attributes.get("type") for attributes, _ in page.scripts]
    assert kinds.count("application/json") == len(page.scripts) - 2 == len(page.figures)
    assert page.title.endswith(shown(f"{name} against {name}2"))
    for words in (snapshot.arrays[0].path, snapshot.programs[0].name, snapshot.findings[0].message):
        assert shown(words) in page.text
    assert "".join(map(shown, note.splitlines())) in page.text


texts_within = st.recursive(
    hostile.hostile_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
)


@given(texts_within)
def test_json_in_a_script_cannot_end_it(value: object) -> None:
    text = safe_json(value)
    assert json.loads(text) == value
    assert not re.search(r"[<>&\u2028\u2029]", text)
    assert html.unescape(text) == text


def test_invalid_arguments(baseline: Snapshot) -> None:
    for named, notes, words in (
        ([], {}, "0 Snapshots"),
        ([(str(n), baseline) for n in range(9)], {}, "9 Snapshots"),
        ([("a", baseline), ("a", baseline)], {}, "'a'"),
        ([("a", baseline)], {"b": "x"}, "'b'"),
    ):
        with pytest.raises(InvalidInput, match=words):
            report.content(named, ".html", None, notes)


def test_an_empty_snapshot_can_be_reported() -> None:
    empty = dataclasses.replace(samples.snapshot(), mesh=None, arrays=(), programs=())
    for suffix in report.SUFFIXES:
        assert "unknown" in report.content([("empty", empty), ("also", empty)], suffix)


@pytest.mark.nightly
def test_sentences_are_those_of_the_comparison(pair: Page, baseline: Snapshot) -> None:
    assert (
        difference.sentences(baseline, baseline)[0]
        in Page(report.content([("one", baseline), ("two", baseline)], ".html")).text
    )


@pytest.mark.nightly
def test_maps_need_an_array_in_two_snapshots(baseline: Snapshot) -> None:
    renamed = dataclasses.replace(
        baseline,
        arrays=tuple(dataclasses.replace(a, path=f"other/{a.path}") for a in baseline.arrays),
    )
    page = Page(report.content([("one", baseline), ("two", renamed)], ".html")).text
    assert "has no such array" not in page
    assert "has a shard map in two Snapshots" in page
    bare = dataclasses.replace(baseline, arrays=())
    page = Page(report.content([("one", bare)], ".html")).text
    assert "unknown once" not in page and "0 arrays" not in page
