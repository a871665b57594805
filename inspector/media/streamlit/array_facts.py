"""What JAX says of one live array: its facts, and its shards device by device."""

from __future__ import annotations

import streamlit as st

from inspector.core import sharding
from inspector.core.formatting import ranges_text
from inspector.core.snapshot import Array, Mesh
from inspector.media.streamlit import table
from inspector.media.streamlit.plain_text import plain


def show(array: Array, mesh: Mesh, source: str | None = None) -> None:
    """A drawer with both, closed at first. `source` is what the array was read from, if it was."""
    # What is in it is only drawn while it is open: a hidden table costs the browser as much as one in sight.
    drawer = st.expander("Shards, device by device", key="shards_drawer", on_change="rerun")
    if not drawer.open:
        return
    with drawer:
        if array.facts is not None:
            st.markdown(_facts_text(array))
        elif array.program is not None:
            st.caption(
                f"A value inside the compiled program `{array.program}`, as the compiler placed it."
            )
        elif source is not None:
            st.caption(plain(f"What a live array says of itself is not in {source}."))
        else:
            st.caption("Planned. Build and run to see what the live array says of itself.")
        shards = sharding.shards(array, mesh)
        if shards is None:
            st.caption("Where it lies is not known.")
            return
        table.show(
            {
                "device": [shard.device for shard in shards],
                "index": [ranges_text(shard.index) for shard in shards],
                "replica_id": [shard.replica for shard in shards],
                "process": [shard.process for shard in shards],
            },
            "shard_table",
            height=240,
        )


def _facts_text(array: Array) -> str:
    facts = array.facts
    said = [
        "**committed**" if facts.committed else "**not committed**: JAX may move it",
        "**fully addressable**"
        if facts.fully_addressable
        else "**not fully addressable** from here",
        "**fully replicated**" if facts.fully_replicated else "**not fully replicated**",
        f"on {facts.devices} device{'s' * (facts.devices != 1)}, {facts.placement}",
        f"{facts.addressable_shards} addressable of {facts.global_shards} global shards",
        f"memory kind `{facts.memory_kind or 'unknown'}`",
    ]
    return " · ".join(said)
