"""Render the blocks of a section as HTML.

The templates escape everything. Names from files are text or JSON data, never markup or code.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape
from plotly.io.json import to_json_plotly

from inspector.core.printable import file_name, one_line, printable
from inspector.figures import frame, stamp
from inspector.sections.section import NUMBERS, Block, Drawing, Picture, cell_text, inline

FOLDER = Path(__file__).parent
WIDE_PX, HALF_PX, NARROW_PX = 1040, 500, 380

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
        return (self.width_px, NARROW_PX) if self.width_px > NARROW_PX else (self.width_px,)

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
