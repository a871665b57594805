"""Sections as HTML, and the report as one file that opens from disk without a network.

Everything from a Snapshot is text or JSON data. A Content-Security-Policy adds a second barrier: the browser
runs only Plotly and `report.js`, identified by their hashes, and fetches nothing.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape
from plotly.io.json import to_json_plotly
from plotly.offline import get_plotlyjs

from inspector.answers import report, subject
from inspector.answers.catalogue import Subject, reported
from inspector.answers.section import NUMBERS, Block, Drawing, Picture, Section, cell_text, inline
from inspector.figures import frame, stamp
from inspector.machines.hardware import Chip
from inspector.records.snapshot import Snapshot
from inspector.text.printable import file_name, one_line, printable

# Render the blocks of a section as HTML.
#
# The templates escape everything. Names from files are text or JSON data, never markup or code.


FOLDER = Path(__file__).parent
WIDE_PX, HALF_PX = 1040, 500
_NARROWER_PX = 720, 380  # of drawings in narrower windows, as in report.css

# Characters that could end a script element or start a comment in it, as JSON escapes. In JSON they occur
# only inside strings, so the data stays the same.
_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})

# WebGL needs a Content-Security-Policy that allows code made from text; SVG does not.
_WITHOUT_WEBGL = {"scattergl": "scatter"}


@dataclass(frozen=True)
class Embedded:
    """A figure in the page: its number, its size in pixels, and its data as JSON for a script element.

    alternative: its main statement in words, for screen readers.
    """

    number: int
    alternative: str
    width: int
    height: int
    data: Markup


@dataclass(frozen=True)
class Page:
    """The page that blocks are rendered for.

    Attributes:
      prefix: precedes the keys of sections in their anchors.
      about: lines that each saved figure shows below itself.
      width_px: the width that figures may have.
      figures: every figure so far. Pages made from this one by `replace` share the list.
    """

    prefix: str = ""
    about: tuple[str, ...] = ()
    width_px: int = WIDE_PX
    figures: list[Embedded] = field(default_factory=list)

    def render(self, blocks: Iterable[Block], level: int = 2) -> Markup:
        """Return the blocks as HTML. `level` is the heading level of their sections."""
        macros = environment().get_template("blocks.html.j2").module
        rendered = (getattr(macros, type(block).__name__.lower())(block, self, level) for block in blocks)
        return Markup("").join(rendered)

    def half(self) -> Page:
        """Return this page with room for figures side by side."""
        return replace(self, width_px=min(HALF_PX, self.width_px // 2 - 20))

    def drawing_widths(self) -> tuple[int, ...]:
        """Return the widths in which the page has a drawing; it shows the one that fits."""
        return self.width_px, *(width for width in _NARROWER_PX if width < self.width_px)

    def drawing(self, drawing: Drawing, width_px: int) -> Markup:
        """Return the drawing as SVG, whose texts are escaped."""
        return Markup(drawing.build(width_px).text)

    def embed(self, picture: Picture) -> Embedded | None:
        """Add the picture's figure to the page. Return None if there is nothing to draw."""
        figure = picture.build(self.width_px)
        if figure is None:
            return None
        added = stamp.additions(figure, (*picture.stamp, *self.about))
        plain = json.loads(to_json_plotly(figure, engine="json"))
        for trace in plain["data"]:
            trace["type"] = _WITHOUT_WEBGL.get(trace.get("type"), trace.get("type"))
        plain["layout"] |= {"width": added["width"]}
        height = plain["layout"].setdefault("height", figure.layout.height or 450)
        data = {
            "data": plain["data"],
            "layout": plain["layout"],
            "stamp": {key: added[key] for key in ("height", "margin", "annotation")},
            "name": file_name(picture.key),
        }
        self.figures.append(
            Embedded(
                len(self.figures),
                frame.alternative(figure, picture.alt),
                int(added["width"]),
                int(height),
                Markup(safe_json(data)),
            )
        )
        return self.figures[-1]


@functools.cache
def environment() -> jinja2.Environment:
    """Return the templates of this folder. They escape everything and display text on one line."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_displayed,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "numbers": NUMBERS,
        "cell_text": cell_text,
        "inline": inline,
        "with_spaces": _with_spaces,
        "with_line_ends": _with_line_ends,
    }
    return environment


def safe_json(value: Any) -> str:
    """Return JSON that a script element can contain, whatever its strings are."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)


def _displayed(value: Any) -> Any:
    return value if isinstance(value, (Markup, int)) else one_line(str(value))


def _with_spaces(text: str) -> Markup:
    return Markup("\n").join(escape(printable(line.expandtabs())) for line in text.splitlines())


def _with_line_ends(text: str) -> Markup:
    return Markup("<br>").join(escape(one_line(line)) for line in text.splitlines())


# Large shard maps of each Snapshot. They are left out if there are five or more, to limit the size.
_MAPS = {1: 4, 2: 3, 3: 2, 4: 2}
# Parts that are printed even if they are closed: a reviewer reads three pages. Others are if they are open.
_PRINTED = ("difference", "board", "findings", "source")


@dataclass(frozen=True)
class _Part:
    """A part that opens: its heading, its anchor and its content, and whether a print shows it."""

    heading: str
    anchor: str
    body: Markup
    level: int
    printed: bool


def page(
    named: Sequence[tuple[str, Snapshot]],
    chip: Chip | None = None,
    notes: Mapping[str, str] | None = None,
) -> str:
    """Return the whole page. The first Snapshot is the baseline of the others."""
    notes = notes or {}
    names = [name for name, _ in named]
    whole = Page(about=subject.source_lines(named))
    stamped = replace(whole, about=())  # figures about several Snapshots have their own lines
    beginning = stamped.render(report.beginning(named, chip))
    if len(named) == 1:
        beginning += stamped.render(report.whole(named[0][1], chip))
    parts = _parts(report.compared(named, chip), stamped)
    for number, (name, snapshot) in enumerate(named, start=1):
        anchor = f"snapshot-{number}"
        sections = reported(Subject.of(snapshot, chip, maps=_MAPS.get(len(named), 0)))
        if len(named) == 1:
            parts += _parts(sections, replace(whole, prefix=f"{anchor}-"))
            continue
        own = replace(whole, prefix=f"{anchor}-", about=subject.source_lines([(name, snapshot)]))
        sections = [Section("whole-model", "The whole model", report.whole(snapshot, chip)), *sections]
        parts.append(_Part(name, anchor, _folded(_parts(sections, own, level=3)), 2, False))
    plotly, drawing = _scripts()
    against = names[0] if len(names) == 1 else f"{names[0]} against {', '.join(names[1:])}"
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            title=f"{subject.title(named, chip)}: {against}",
            policy=_policy(plotly, drawing),
            style=Markup(_resource("report.css")),
            notes=[(name, notes[name]) for name in names if notes.get(name)],
            beginning=beginning,
            folded=_folded(parts),
            created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            figures=whole.figures,
            plotly=_packed(plotly),
            drawing=Markup(drawing),
        )
    )


def _parts(sections: Sequence[Section], page: Page, level: int = 2) -> list[_Part]:
    """Return the sections as parts that open. `level` is the heading level of their summaries."""
    return [
        _Part(
            section.heading,
            f"{page.prefix}{section.key}",
            page.render(section.blocks, level + 1),
            level,
            section.key in _PRINTED and level == 2,
        )
        for section in sections
    ]


def _folded(parts: Sequence[_Part]) -> Markup:
    return Markup(environment().get_template("parts.html.j2").render(parts=parts))


@functools.cache
def _packed(script: str) -> str:
    """Return a script as text for `report.js`, which unpacks it: a third of its length."""
    return base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()


def _policy(*scripts: str) -> str:
    hashes = " ".join(map(_hash, scripts))
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {hashes}",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


@functools.cache
def _scripts() -> tuple[str, str]:
    """Return Plotly and the page's own script with LF line ends, as a browser hashes them."""
    plotly, drawing = (
        script.replace("\r\n", "\n").replace("\r", "\n")
        for script in (get_plotlyjs(), _resource("report.js"))
    )
    return plotly, drawing


@functools.cache
def _resource(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@functools.cache
def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
