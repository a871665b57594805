"""The head of the Open page: name, source, actions, the size of the train state, and findings."""

from __future__ import annotations

import streamlit as st

from inspector.core.formatting import counted
from inspector.core.snapshot import Snapshot
from inspector.media.streamlit import downloads, keep_button, pin_button, render
from inspector.media.streamlit.plain_text import plain
from inspector.sections import findings as findings_section
from inspector.sections import summary, unknown
from inspector.sections.section import more_text

_MAX_FINDINGS = 50


def show(name: str, snapshot: Snapshot) -> None:
    """Draw the heading with its buttons, four facts, and the findings."""
    st.markdown(f"### {plain(name)}")
    st.markdown(plain(summary.mesh_text(snapshot)))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        icon, label, color = badge(snapshot)
        st.badge(label, icon=icon, color=color)
        downloads.of_snapshot(
            snapshot,
            f"{snapshot.source.kind}.json",
            "download_opened",
            "Everything that was read as Snapshot JSON, the same as `import` writes.",
        )
        pin_button.show(snapshot, name, key="opened_pin_button")
        keep_button.show(snapshot, name, key="opened_keep_button")
    render.show([summary.totals(snapshot)])
    _show_findings(snapshot)


def badge(snapshot: Snapshot) -> tuple[str, str, str]:
    """Return icon, label and color of the source."""
    source = unknown.imported_from(snapshot)
    if source is not None:
        words = source.split(" ", 1)[1] if source.startswith(("a ", "an ")) else source
        label = "Captured from a job" if snapshot.source.kind == "capture" else f"Imported: {words}"
        return ":material/file_open:", plain(label), "orange"
    return ":material/description:", plain(f"Snapshot of {snapshot.source.kind}"), "blue"


def _show_findings(snapshot: Snapshot) -> None:
    errors = [one for one in snapshot.findings if one.level == "error"]
    others = sorted(
        (one for one in snapshot.findings if one.level != "error"),
        key=lambda one: findings_section.LEVELS.index(one.level),
    )
    for finding in errors[:_MAX_FINDINGS]:
        st.error(plain(finding.message), icon=render.ICONS["error"])
    lines = [
        f"{render.ICONS[findings_section.KINDS[one.level]]} {plain(one.message)}"
        for one in others[:_MAX_FINDINGS]
    ]
    if len(lines) == 1:
        st.caption(lines[0])
    elif lines:
        with st.expander(f"{counted(len(others), 'remark')} from the reader"):
            for line in lines:
                st.markdown(line)
            if len(others) > _MAX_FINDINGS:
                st.caption(more_text(len(others) - _MAX_FINDINGS, "remark"))
