"""Figures inside a page: their data, as JSON that no name in it can end, and their places."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

from inspector.figures import stamp
from inspector.media.report.markup import Html, printable, tag

# Characters with which a script's text could end, or be taken for a comment, written as JSON escapes. In
# JSON they stand only inside of strings, so that the data stays the same.
_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})

# WebGL, which would need a Content-Security-Policy that lets scripts be made of text, drawn as SVG.
_WITHOUT_WEBGL = {"scattergl": "scatter"}


class Figures:
    """The figures of one page, in the order in which they are put on it."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def put(self, figure: go.Figure | None, alt: str, about: Sequence[str], name: str = "") -> Html:
        """The place of a figure on the page; nothing for None.

        Args:
          alt: what it shows, in words.
          about: what a picture of it says below it.
          name: of the picture's file, without its suffix.
        """
        if figure is None:
            return Html("")
        number = len(self._data)
        added = stamp.additions(figure, about)
        plain = json.loads(to_json_plotly(figure, engine="json"))
        for trace in plain["data"]:
            trace["type"] = _WITHOUT_WEBGL.get(trace.get("type"), trace.get("type"))
        plain["layout"] |= {"width": added["width"]}
        height = plain["layout"].setdefault("height", figure.layout.height or 450)
        self._data.append(
            safe_json(
                {
                    "data": plain["data"],
                    "layout": plain["layout"],
                    "stamp": {key: added[key] for key in ("height", "margin", "annotation")},
                    "name": file_name(name or alt),
                }
            )
        )
        # Its place has its size from the start, so that nothing moves when it is drawn.
        size = f"width:{int(added['width'])}px;height:{int(height)}px"
        place = tag("div", class_="plot", style=size, role="img", aria_label=printable(alt))
        saves = [
            tag(
                "button",
                form.upper(),
                type="button",
                data_save=form,
                title=f"Save as {form.upper()}",
            )
            for form in ("png", "svg")
        ]
        caption = tag("figcaption", *saves)
        return tag("figure", place, caption, data_figure=str(number))

    def scripts(self) -> Html:
        """The data of all figures. It is no code: a browser reads it as text."""
        return Html(
            "\n".join(
                f'<script type="application/json" id="figure-{number}">{data}</script>'
                for number, data in enumerate(self._data)
            )
        )


def safe_json(value: Any) -> str:
    """JSON that can stand inside of a script element whatever its strings hold."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)


def file_name(text: str) -> str:
    """A name for a file of letters, figures and dashes."""
    kept = "".join(one if one.isascii() and one.isalnum() else "-" for one in text.lower())
    return "-".join(part for part in kept.split("-") if part)[:60] or "figure"
