"""Blocks as HTML for the output of a notebook cell. It needs no server and reads no file.

The first output of a kernel contains Plotly, compressed. Later outputs use it, or fetch Plotly if they are in
a page without the first one, as in Colab. All colors follow the text color of the notebook's theme.
"""

import base64
import functools
import gzip
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from inspector.media.html.render import Page, safe_json
from inspector.sections.section import Block

_FOLDER = Path(__file__).parent
_WIDTH_PX = 880
_given: set[str] = set()  # what earlier outputs of this kernel contain


def html(blocks: Sequence[Block]) -> str:
    """Return the blocks as an HTML fragment. Everything from a Snapshot is text or JSON data."""
    name = f"sharding-inspector-{secrets.token_hex(6)}"
    page = Page(prefix=f"{name}-", width_px=_WIDTH_PX)
    body = page.render(blocks, level=3)
    colab = "google.colab" in sys.modules
    library = ""
    if page.figures and not colab and "plotly" not in _given:
        _given.add("plotly")
        library = f"<script>{_library()}</script>"
    figures = {str(figure.number): figure.data for figure in page.figures}
    data = ",".join(f'"{number}":{plain}' for number, plain in figures.items())
    settings = safe_json(
        {"id": name, "patience": 0 if colab else 5000, "cdn": _cdn()}  # milliseconds
    )
    script = f"({_resource('notebook.js')})({settings},{{{data}}});" if page.figures else ""
    return str(
        Markup('<div id="{}" class="sharding-inspector"><style>').format(name)
        + Markup(_resource("notebook.css"))
        + Markup("</style>")
        + body
        + Markup("</div>")
        + Markup(library)
        + Markup(f"<script>{script}</script>" if script else "")
    )


def forget_outputs() -> None:
    """Make the next output contain Plotly again."""
    _given.clear()


def _cdn() -> str:
    return f"https://cdn.plot.ly/plotly-{get_plotlyjs_version()}.min.js"


@functools.cache
def _library() -> str:
    """Return a script that unpacks Plotly when a figure needs it."""
    packed = base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9)).decode()
    return f'window.shardingInspectorPlotly = window.shardingInspectorPlotly || "{packed}";'


@functools.cache
def _resource(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
