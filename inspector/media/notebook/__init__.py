"""Show Snapshots as the output of a notebook cell, and as text in a terminal."""

import base64
import functools
import gzip
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from inspector.answers import (
    array,
    arrays,
    collectives,
    improvements,
    memory,
    sharding_errors,
    summary,
    whole_model,
)
from inspector.answers.catalogue import Subject, blocks, reported
from inspector.answers.section import Block, Folded
from inspector.machines import targets
from inspector.media.html import Page, safe_json
from inspector.records.snapshot import Snapshot

# Blocks as HTML for the output of a notebook cell. It needs no server and reads no file.
#
# The first output of a kernel contains Plotly, compressed. Later outputs use it, or fetch Plotly if they are
# in a page without the first one, as in Colab. All colors follow the text color of the notebook's theme.


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
    cdn = f"https://cdn.plot.ly/plotly-{get_plotlyjs_version()}.min.js"
    settings = safe_json({"id": name, "patience": 0 if colab else 5000, "cdn": cdn})  # milliseconds
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


@functools.cache
def _library() -> str:
    """Return a script that unpacks Plotly when a figure needs it."""
    packed = base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9)).decode()
    return f'window.shardingInspectorPlotly = window.shardingInspectorPlotly || "{packed}";'


@functools.cache
def _resource(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


_MAPS = 2  # large shard maps
_MOST_SHARDS = 64  # rows of the table of shards


def show(value: Any) -> None:
    """Display a value: HTML with figures in Jupyter and Colab, text elsewhere.

    Use it to see the shards of an array, or the collectives of a compiled program, without a server.

    Args:
      value: an array, a pytree of arrays, a sharding, a mesh, a compiled program, several of them by name,
        or a Snapshot.

    Raises:
      InvalidInput: the value contains no array.

    Example:
      >>> import inspector, jax
      >>> from jax.sharding import NamedSharding, PartitionSpec
      >>> mesh = jax.make_mesh((1, 2), ("data", "model"))
      >>> sharding = NamedSharding(mesh, PartitionSpec(None, "model"))
      >>> kernel = jax.numpy.zeros((64, 32), device=sharding)
      >>> inspector.show(kernel)
      array  shape  dtype    logical axes → spec  bytes per device
      array  64×32  float32  → P(None, 'model')            4.0 KiB
      <BLANKLINE>
      device    bytes  index          replica  process
           0  4.0 KiB  [0:64, 0:16]         0        0
           1  4.0 KiB  [0:64, 16:32]        0        0
    """
    from inspector.recording.capture import snapshot_of

    snapshot = snapshot_of(value)
    if not _in_notebook():
        from inspector.media.terminal import render

        render.show(as_text(snapshot))
        return
    from inspector.media.terminal.render import text

    # Front ends without HTML show the text.
    bundle = {"text/html": html(as_html(snapshot)), "text/plain": text(as_text(snapshot))}
    sys.modules["IPython"].display.display(bundle, raw=True)


def as_html(snapshot: Snapshot) -> list[Block]:
    """Return the blocks for a notebook: figures, with the numbers behind them in folded tables."""
    if len(snapshot.arrays) == 1 and not snapshot.programs:
        (single,) = snapshot.arrays
        rows = array.shard_rows(single, snapshot)
        shards = array.shards(single, snapshot) if rows and len(rows) <= _MOST_SHARDS else None
        table = arrays.table(snapshot.arrays)
        folded = [Folded("Shards", (shards,))] if shards is not None else []
        return [table, *array.maps(single, snapshot), *folded]
    about = Subject.of(snapshot, None, maps=_MAPS)
    shown: list[Block] = [*blocks(about, ("source", "errors", "findings"))]
    if snapshot.arrays:
        shown += [*whole_model.blocks(about.snapshot, about.chip), *reported(about, ("arrays",))]
    if snapshot.programs:
        shown += reported(about, ("communication", "memory"))
    return shown


def as_text(snapshot: Snapshot) -> list[Block]:
    """Return the blocks for a terminal."""
    if len(snapshot.arrays) == 1 and not snapshot.programs:
        (single,) = snapshot.arrays
        shards = [array.shards(single, snapshot)] if array.shard_rows(single, snapshot) else []
        return [*arrays.tree_texts(snapshot, snapshot.arrays), *shards]
    return blocks(
        Subject.of(snapshot, None), ("source", "errors", "arrays", "communication", "memory", "findings")
    )


def _in_notebook() -> bool:
    """Return whether a kernel runs this process. IPython in a terminal has no kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
