"""One section with every block type, rendered by all four media, with ordinary and with hostile names."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser

import plotly.graph_objects as go
import pyarrow as pa
import pytest
from hypothesis import example, given
from markdown_it import MarkdownIt
from streamlit.testing.v1 import AppTest

from inspector.answers import section
from inspector.media import markdown
from inspector.media.html import Page
from inspector.media.terminal import render as terminal
from inspector.text.printable import one_line
from tests.media import hostile
from tests.media.streamlit.drawn_figures import figures

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b]0;title\x07",
    "**b** :red[x] [a](javascript:alert(1)) $x$",
    "| ` @team #123 </details>",
    "two\nlines\r\u202ereversed",
)


def every_block(name: str) -> section.Section:
    """Return a section that has every block type, with the name in each of them."""
    columns = (
        section.Column("Path", "code"),
        section.Column("Bytes", "bytes", help=f"Bytes of {name}."),
        section.Column("Time", "seconds"),
        section.Column("Copies"),
        section.Column("Count", "count"),
        section.Column(f"Note {name}"),
    )
    rows = (
        (name, 4_194_304, 0.0123, "2×", 12_345, (f"see {name}", section.Strong("now"))),
        ("params/W2", 8, None, None, None, section.Mark("worse", "error")),
    )

    def figure(width_px: int) -> go.Figure:
        margin = dict.fromkeys("ltrb", 8)  # as every figure of the project
        layout = {"width": width_px, "height": 200, "margin": margin}
        return go.Figure(go.Bar(x=[1, 2], y=[3, 4]), layout=layout)

    inner: tuple[section.Block, ...] = (
        section.Text(("of ", section.Code(name), " and ", section.Strong(name))),
        section.Text((name,), quiet=True),
        section.Listing(((name,), ("the second item",))),
        section.Facts.of(("Devices", "8"), (f"Label {name}", name, name)),
        section.Table("sizes", columns, rows),
        section.Table(
            "wrapped",
            (section.Column("Rule"), section.Column("Taken", "count")),
            ((section.Strong(name), 3),),
            wrap=True,
        ),
        section.Columns(
            ((section.Picture("bars", f"Bars of {name}", figure),), (section.Text(("beside",)),))
        ),
        section.Folded(f"More of {name}", (section.Text(("inside the fold",)),)),
        section.Preformatted(f"a\n  b {name.splitlines()[0]}"),
        section.Picture("nothing", "a figure without data", lambda width_px: None),
    )
    kinds = ("info", "unknown", "success", "warning", "error")
    notices = tuple(section.Notice(kind, (f"{kind} about {name}",)) for kind in kinds)
    return section.Section("fact", f"Heading {name}", (*notices, section.Section("nested", "Nested", inner)))


class Elements(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(str(text))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def streamlit_page(name: str) -> AppTest:
    def script(name: str) -> None:
        from inspector.media.streamlit.parts import render
        from tests.media.test_renderers import every_block

        render.show([every_block(name)])

    page = AppTest.from_function(script, args=(name,), default_timeout=60).run()
    assert not page.exception, [error.value for error in page.exception]
    return page


def test_the_dashboard_draws_every_block() -> None:
    page = streamlit_page("layer_0")
    assert [len(page.info), len(page.success), len(page.warning), len(page.error)] == [2, 1, 1, 1]
    assert page.markdown[0].value == "##### Heading layer\\_0"
    (table,) = page.dataframe
    assert list(table.value["Bytes"]) == [4_194_304, 8]  # numbers, so that the column sorts
    assert list(table.value["Copies"]) == ["2×", "unknown"]
    assert [metric.value for metric in page.metric] == ["8", r"layer\_0"]
    assert [chart.key for chart in figures(page)] == ["bars"]
    assert page.expander[0].label == "More of layer\\_0"
    assert page.code[0].value == "a\n  b layer_0"


@pytest.mark.parametrize(
    ("kind", "numbers", "texts"),
    [
        ("seconds", [6.72e-12, 0.000122, 0.0], ["< 1 ns", "122 µs", "0 s"]),
        ("bytes", [2**20, 4096, 3], ["1.0 MiB", "4.0 KiB", "3 B"]),
    ],
)
def test_numbers_of_a_column_have_their_own_units_and_sort_as_numbers(kind, numbers, texts) -> None:
    def script(kind, numbers) -> None:
        from inspector.answers.section import Table
        from inspector.media.streamlit.parts import render

        render.show([Table.of("numbers", numbers, {f"Number:{kind}": lambda number: number})])

    page = AppTest.from_function(script, default_timeout=60, args=(kind, numbers)).run()
    (table,) = page.dataframe
    assert list(table.value["Number"]) == numbers
    displayed = pa.ipc.open_stream(table.proto.arrow_data.styler.display_values).read_pandas()
    assert list(displayed.iloc[:, 0]) == texts


def test_a_large_table_has_numbers_that_sort_and_no_texts() -> None:
    def script() -> None:
        from inspector.answers.section import Table
        from inspector.media.streamlit.parts import render

        render.show([Table.of("large", range(6000), {"Bytes:bytes": lambda number: number})])

    (table,) = AppTest.from_function(script, default_timeout=60).run().dataframe
    assert list(table.value["Bytes"]) == list(range(6000))
    assert not table.proto.arrow_data.HasField("styler")


@pytest.mark.parametrize("name", HOSTILE)
def test_the_dashboard_escapes_names(name: str) -> None:
    page = streamlit_page(name)
    for element in (*page.markdown, *page.caption, *page.info):
        outside_code = re.sub(r"`[^`]*`", "", element.value)
        assert not re.search(r"(?<!\\)(<img|:red\[|\]\(|\$x|\*\*b)", outside_code)
    assert page.dataframe[0].value["Path"][0] == one_line(name)


def test_html_has_every_block_and_embeds_the_figure_as_data() -> None:
    page = Page(prefix="s-", about=("made for a test",))
    elements = Elements(page.render([every_block("layer_0")]))
    assert {
        "h2",
        "h3",
        "p",
        "ul",
        "table",
        "figure",
        "details",
        "pre",
        "code",
        "strong",
    } <= elements.tags
    assert "4.0 MiB" in elements.text and "12.3 ms" in elements.text and "unknown" in elements.text
    (figure,) = page.figures
    assert json.loads(figure.data)["layout"]["width"] == figure.width == 500  # one of two columns
    assert "made for a test" in json.loads(figure.data)["stamp"]["annotation"]["text"]


@given(hostile.hostile_texts)
@example(HOSTILE[0])
@example('" onmouseover="alert(1)')
def test_html_escapes_names(name: str) -> None:
    expected = Elements(Page().render([every_block("x")]))
    elements = Elements(Page().render([every_block(name)]))
    assert elements.tags == expected.tags and elements.attributes == expected.attributes
    assert one_line(name) in elements.text


def test_markdown_has_every_block_but_figures() -> None:
    text = markdown.render([every_block("layer_0")])
    assert text.startswith("## Heading layer_0\n") and "\n### Nested\n" in text
    assert "| `layer_0` | 4.0 MiB | 12.3 ms | 2× | 12,345 | see layer_0**now** |" in text
    assert "<details><summary>More of layer_0</summary>" in text
    assert "```\na\n  b layer_0\n```" in text
    assert "figure" not in text


def test_markdown_cuts_long_tables() -> None:
    table = section.Table(
        "long", (section.Column("Path"),), tuple((str(n),) for n in range(markdown.MAX_ROWS + 2))
    )
    assert "2 more rows are not shown." in markdown.render([table])


@given(hostile.hostile_texts)
@example(HOSTILE[2])
@example(HOSTILE[3])
@example("```")
def test_markdown_escapes_names(name: str) -> None:
    def kinds(text: str) -> list[str]:
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        return [token.type for token in tokens]

    def links(text: str) -> list[str]:
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        inner = [child for token in tokens for child in token.children or ()]
        return [token.type for token in inner if token.type in ("link_open", "image")]

    text = markdown.render([every_block(name)])
    assert kinds(text) == kinds(markdown.render([every_block("x")]))
    assert not links(text)


def test_plain_text_is_aligned_and_one_line_per_row() -> None:
    text = terminal.text([every_block("layer_0")])
    lines = text.splitlines()
    header = next(line for line in lines if line.startswith("Path"))
    row = next(line for line in lines if line.startswith("layer_0  "))
    assert header.index("Note") == row.index("see layer_0")
    assert row.index("4.0 MiB") + len("4.0 MiB") == header.index("Bytes") + len("Bytes")
    assert text.endswith("\n") and not any(line != line.rstrip() for line in lines)
    long = section.Table("long", (section.Column("Path"), section.Column("Spec")), (("p" * 300, "s" * 300),))
    assert len(terminal.text([long]).splitlines()) == 2


@given(hostile.hostile_texts)
@example(HOSTILE[1])
@example(HOSTILE[4])
@example("\xa00")
def test_names_cannot_control_a_terminal(name: str) -> None:
    text = terminal.text([every_block(name)])
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text.splitlines()) == len(terminal.text([every_block("x")]).splitlines())


def test_a_terminal_gets_colors_and_no_escape_sequence_of_a_name() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    terminal.show([every_block(HOSTILE[1])], stream)
    assert "\x1b]0;" not in stream.getvalue() and "\x07" not in stream.getvalue()
    assert "layer" not in stream.getvalue() and "params/W2" in stream.getvalue()
