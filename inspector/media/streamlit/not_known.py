"""What a Snapshot cannot tell because of where it came from, in sentences in place of empty figures."""

from __future__ import annotations

import streamlit as st

from inspector.core.snapshot import Kind, Snapshot
from inspector.media.streamlit.plain_text import plain

# Where arrays or programs come from that no layout of this project made.
IMPORTED: dict[Kind, str] = {
    "orbax": "an Orbax checkpoint",
    "sharding": "a _sharding file",
    "maxtext": "a MaxText golden",
    "hlo": "HLO text",
    "capture": "a captured state",
}


def origin(found: Snapshot) -> str | None:
    """`an Orbax checkpoint`; None where a layout was planned, run or compiled."""
    return IMPORTED.get(found.source.kind)


def show(words: str) -> None:
    """One sentence, in the place of what is not known."""
    st.info(plain(words), icon=":material/help:")


def no_arrays(found: Snapshot) -> bool:
    """Say so where there is no array at all."""
    if found.arrays:
        return False
    source = origin(found)
    show(
        "HLO text has programs alone: which arrays they were given, and where these lie, is unknown."
        if found.source.kind == "hlo"
        else f"No array is known of {source or 'this Snapshot'}."
    )
    return True


def no_mesh(found: Snapshot) -> bool:
    """Say so where the mesh is not known, without which no array has a place."""
    if found.mesh is not None:
        return False
    source = origin(found) or "this Snapshot"
    show(f"The mesh is not in {source}, so on which devices anything lies is unknown.")
    return True


def no_programs(found: Snapshot, planned: str, otherwise: str) -> bool:
    """Say so where there is no program: `planned` of a plan, `otherwise` after what has arrays alone."""
    if found.programs:
        return False
    source = origin(found)
    if source is None:
        st.info(plain(planned), icon=":material/info:")
    else:
        show(f"{source[0].upper()}{source[1:]} has arrays alone and no program: {otherwise}.")
    return True
