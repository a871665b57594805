"""Why the array of the shard map lies where it does, dimension by dimension."""

from __future__ import annotations

import streamlit as st

from inspector.core.rules import Rule
from inspector.core.snapshot import Array, Mesh
from inspector.layout import Layout, reasons
from inspector.media.streamlit.plain_text import plain


def show(array: Array, mesh: Mesh, layout: Layout | None) -> None:
    """A line a dimension: its name, what splits it, and every rule that was tried on it.

    Nothing where there is no layout: what is known then stands in the rule ledger.
    """
    if layout is None:
        return
    rules: tuple[Rule, ...] | None = layout.rules if layout.entry.has_rules else None
    found = reasons.reasons(array, mesh, rules, layout.entry.rules_semantics)
    if not found:
        return
    st.markdown("**Why it lies there**")
    lines = []
    for reason in found:
        name = f" {plain(reason.logical_axis)}" if reason.logical_axis else ""
        axes = plain(" + ".join(reason.axes)) or "whole"
        said = " ".join(plain(sentence) for sentence in reason.sentences)
        lines.append(f"- dimension {reason.dimension}{name} → **{axes}**. {said}")
    st.markdown("\n".join(lines))
