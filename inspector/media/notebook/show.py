"""`inspector.show`: display arrays, shardings and compiled programs in a notebook or a terminal."""

from __future__ import annotations

import sys
from typing import Any

from inspector.core.snapshot import Snapshot
from inspector.machines import targets
from inspector.sections import (
    array,
    arrays,
    collectives,
    improvements,
    memory,
    sharding_errors,
    summary,
)
from inspector.sections.section import Block, Folded

_MAPS = 2  # large shard maps
_SMALL_MAPS = 12
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
      device  index          replica  process    bytes
           0  [0:64, 0:16]         0        0  4.0 KiB
           1  [0:64, 16:32]        0        0  4.0 KiB
    """
    from inspector.producers.shown import snapshot_of

    found = snapshot_of(value)
    if not _in_notebook():
        from inspector.media.terminal import render

        render.show(as_text(found))
        return
    from inspector.media.notebook.html import html
    from inspector.media.terminal.render import text

    # Front ends without HTML show the text.
    bundle = {"text/html": html(as_html(found)), "text/plain": text(as_text(found))}
    sys.modules["IPython"].display.display(bundle, raw=True)


def as_html(found: Snapshot) -> list[Block]:
    """Return the blocks for a notebook: figures, with the numbers behind them in folded tables."""
    if len(found.arrays) == 1 and not found.programs:
        (one,) = found.arrays
        rows = array.shard_rows(one, found)
        shards = array.shards(one, found) if rows and len(rows) <= _MOST_SHARDS else None
        table = arrays.table(found.arrays)
        folded = [Folded("Shards", (shards,))] if shards is not None else []
        return [table, *array.maps(one, found), *folded]
    chip = targets.chip_of(found)
    blocks: list[Block] = [summary.facts(found), *sharding_errors.sections(found)]
    if found.findings:
        blocks.append(improvements.section(found))
    if found.arrays:
        state = arrays.state_arrays(found)
        blocks += [
            arrays.bytes_on_devices(found, state, _SMALL_MAPS),
            arrays.tree(found),
            arrays.maps(found, _MAPS),
        ]
    if found.programs:
        blocks += [collectives.section(found), memory.section(found, chip)]
    if found.arrays:
        blocks.append(arrays.folded_table(found))
    return blocks


def as_text(found: Snapshot) -> list[Block]:
    """Return the blocks for a terminal."""
    if len(found.arrays) == 1 and not found.programs:
        (one,) = found.arrays
        rows = array.shard_rows(one, found)
        return [
            *arrays.tree_texts(found, found.arrays),
            *([array.shards(one, found)] if rows else []),
        ]
    blocks: list[Block] = [summary.facts(found), *sharding_errors.sections(found)]
    if found.arrays:
        blocks += arrays.tree_texts(found, found.arrays)
    if found.programs:
        blocks += [collectives.section(found), memory.section(found, targets.chip_of(found))]
    if found.findings:
        blocks.append(improvements.section(found))
    return blocks


def _in_notebook() -> bool:
    """Return whether a kernel runs this process. IPython in a terminal has no kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
