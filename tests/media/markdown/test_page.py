"""The Markdown report, read by a Markdown parser: its content and the escaping of names."""

from __future__ import annotations

import dataclasses
import html
import re

import pytest
from hypothesis import example, given
from markdown_it import MarkdownIt
from markdown_it.token import Token

from inspector.answers.report import short
from inspector.answers.section import Folded, Picture, Section, Table
from inspector.assessment import assess
from inspector.compare import difference
from inspector.machines import hardware
from inspector.media import markdown as markdown_text
from inspector.media import report
from inspector.prediction.predicted import predicted
from inspector.records.snapshot import Snapshot
from inspector.text.printable import printable
from tests.compare import glances
from tests.compare.difference import layouts
from tests.figures import samples
from tests.media import hostile

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = {"<details>", "</details>", "<summary>", "</summary>", "<code>", "</code>"}
# What GitHub reads in text that is not code: mentions, issues, addresses, emoji, commits.
CALLED = re.compile(r"@\w|#\d|://|www\.|:[\w+-]+:|\b[0-9a-f]{7,40}\b|\bGH-\d", re.IGNORECASE)


@dataclasses.dataclass
class Read:
    """The contents of a Markdown text."""

    kinds: set[str]
    markup: set[str]  # every HTML tag
    code: list[str]  # what is formatted as code
    said: str  # all text that is not code

    @property
    def text(self) -> str:
        return self.said + " ".join(self.code)


def read(text: str) -> Read:
    read = Read(set(), set(), [], "")
    inside_code = False

    def take(token: Token) -> None:
        nonlocal inside_code
        read.kinds.add(token.type)
        if token.type in ("html_block", "html_inline"):
            for tag in re.findall(r"<[^>]*>", token.content):
                read.markup.add(tag)
                if tag == "<code>":
                    inside_code = True
                    read.code.append("")
                elif tag == "</code>":
                    inside_code = False
            if token.type == "html_block":
                read.said += html.unescape(re.sub(r"<[^>]*>", "", token.content))
        elif token.type == "code_inline":
            read.code.append(token.content)
        elif token.type in ("text", "softbreak", "hardbreak", "fence", "code_block"):
            words = token.content or "\n"
            if inside_code:
                read.code[-1] += words
            else:
                read.said += words
        for child in token.children or ():
            take(child)

    for token in READER.parse(text):
        take(token)
        read.said += "\n" if token.type == "inline" else ""
    return read


def without_joiners(text: str) -> str:
    return text.replace("\u2060", "")


def on_one_line(text: str) -> str:
    return " ".join(printable(re.sub(r"\s", " ", text)).split())


@pytest.fixture(scope="module")
def named() -> list[tuple[str, Snapshot]]:
    before = samples.snapshot(samples.mesh(data=2, model=2))
    arrays = tuple(
        dataclasses.replace(array, spec=(None, None), bytes_per_device=array.bytes, replicas=4)
        if array.path.endswith("W2")
        else array
        for array in before.arrays
    )
    return [("before", before), ("after", dataclasses.replace(before, arrays=arrays))]


@pytest.mark.parametrize("count", [1, 2])
def test_the_verdict_and_its_picture_come_first_and_details_are_folded(named, count: int) -> None:
    blocks = short(named[:count], hardware.chip("v5e"))
    picture = next(place for place, block in enumerate(blocks) if isinstance(block, Picture))
    table, *_ = blocks[picture].in_text
    assert isinstance(table, Table) and not any(isinstance(b, (Section, Folded)) for b in blocks[:picture])
    findings = [block.key for block in blocks if isinstance(block, Section)]
    assert findings.count("findings") == count
    folded = [place for place, block in enumerate(blocks) if isinstance(block, Folded)]
    assert len(folded) == 2 and folded == [len(blocks) - 2, len(blocks) - 1]
    text = report.content(named[:count], ".md", hardware.chip("v5e"))
    lines = [line for line in text.split("<details>")[0].splitlines() if line]
    assert lines[0].startswith("## ") and sum(line.startswith("**") for line in lines) >= 1


def test_differences_are_above_the_board(named) -> None:
    result = read(report.content(named, ".md"))
    said = difference.sentences(named[0][1], named[1][1])
    places = [without_joiners(result.said).index(sentence) for sentence in said[:5]]
    assert places == sorted(places)
    board = result.said.index("\nTrain state per device\n") + 1
    row = result.said[board:].split("\n")[:3]
    assert row == ["Train state per device", "48.0 MiB", "72.0 MiB ✗ +50% worse"]
    assert "more answer" in result.said and "with equal PartitionSpecs" in result.said
    changed = report.content(named, ".md").partition("arrays with equal PartitionSpecs")[0]
    assert changed.count("`P('model', None)`") == changed.count("`P(None, None)`") == 1


def test_one_snapshot_has_its_specs(named) -> None:
    result = read(report.content(named[:1], ".md", hardware.chip("v5e")))
    assert "P('model', None)" in result.text
    assert "TPU v5e" in result.said and "2026-01-01" in result.said


def test_one_snapshot_has_the_predicted_step_with_its_interval() -> None:
    snapshot, chip = glances.planned(flops=1e15), hardware.chip("v5e")
    result = predicted(snapshot.programs[0], snapshot.mesh, chip)
    step = assess(snapshot, chip).step
    assert step is not None and step.low < step.seconds < step.high
    assert (step.low, step.seconds, step.high) == (result.low, result.seconds, result.high)
    assert step.text in read(report.content([("plan", snapshot)], ".md", chip)).said
    assert step.text not in read(report.content([("plan", snapshot)], ".md", None)).said


def test_an_axis_that_does_not_divide_several_arrays_is_one_finding() -> None:
    rejected = layouts.planned(mesh="4x2", batch="3")
    assert sum(finding.level == "error" for finding in rejected.findings) > 1
    (found,) = (one for one in short([("plan", rejected)], None) if getattr(one, "key", "") == "findings")
    listed, *_ = found.blocks
    assert [item[0].text for item in listed.items].count("error") == 1


@pytest.mark.nightly
def test_eight_layouts_fit_into_a_comment() -> None:
    mesh = samples.mesh(data=8, fsdp=16, model=4)
    specs = [(None, ("model",)), (("fsdp",), None), (("fsdp", "model"), None), (None, None)]
    several = [
        (
            f"layout {place}",
            samples.snapshot(
                mesh,
                tuple(
                    samples.array(
                        f"params/{'a' * 80}_{chr(97 + number % 26)}{'bcd'[number // 26 % 3]}/kernel",
                        (1024 * (number + 1), 2048), specs[(place + number) % 4], mesh,
                    )
                    for number in range(60)
                ),
            ),
        )
        for place in range(8)
    ]  # fmt: skip
    text = report.content(several, ".md")
    assert len(text) < 65_536
    assert "layout 7" in read(text).code


@given(hostile.hostile_texts)
@example("1. x")
@example("a@b.example, @team #123 http://e.example :tada: GH-12 deadbeefcafe")
def test_plain_text_is_displayed_literally(text: str) -> None:
    escaped = markdown_text.plain(text)
    for around, within in (("{}", 0), ("- {}", 0), ("> {}", 0), ("| {} |\n| --- |\n| {} |", 1)):
        result = read(around.replace("{}", escaped) + "\n")
        assert result.kinds <= {
            *("inline", "text", "text_special", "softbreak"),
            *("paragraph_open", "paragraph_close", "bullet_list_open", "bullet_list_close"),
            *("list_item_open", "list_item_close", "blockquote_open", "blockquote_close"),
            *(
                "table_open",
                "table_close",
                "thead_open",
                "thead_close",
                "tbody_open",
                "tbody_close",
            ),
            *("tr_open", "tr_close", "th_open", "th_close", "td_open", "td_close"),
        }
        said = [on_one_line(without_joiners(line)) for line in result.said.split("\n") if line.strip()]
        assert said == [on_one_line(without_joiners(text))] * (1 + within) or not on_one_line(text)
        assert not CALLED.search(result.said)


@given(hostile.hostile_texts)
@example("`")
@example("a | b")
def test_a_name_is_code(text: str) -> None:
    for around in ("{}", "- {} and {}", "| {} |\n| --- |\n| {} |"):
        result = read(around.replace("{}", markdown_text.code(text)) + "\n")
        assert set(result.code) == {printable(text)} and len(result.code) == around.count("{}")
        assert result.markup <= {"<code>", "</code>"}


@given(text=hostile.hostile_texts, name=hostile.hostile_texts, note=hostile.hostile_texts)
@example(text="<img src=x onerror=alert(1)>", name="@team | #1", note="</details>\n\n# <script>\n\n@team")
def test_names_are_escaped(text: str, name: str, note: str) -> None:
    snapshot = hostile.snapshot(text)
    other = hostile.snapshot(text, (None, (f"model{text}",)))
    chip = dataclasses.replace(hardware.chip("v5p"), title=f"chip{text}")
    page = report.content([(name, snapshot), (f"{name}2", other)], ".md", chip, {name: note})
    seen = read(page)
    assert seen.markup <= OURS
    assert not seen.kinds & {"link_open", "image", "fence", "code_block", "hr", "s_open", "em_open"}
    assert not CALLED.search(seen.said)
    assert seen.kinds >= {"table_open", "heading_open"}
    assert printable(name) in seen.code and printable(f"{name}2") in seen.code
    # A name adds no cells: the board has three columns, the specs have four.
    rows = [line for line in page.split("\n") if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4, 5}


def test_parts_that_do_not_fit_are_counted() -> None:
    text = markdown_text.fitting(["a" * 59_000, "b" * 59_000, "c" * 100])
    assert len(text) < 65_536 and text.endswith("see the HTML report.\n")
    assert "1 part" in text and "c" * 100 in text
