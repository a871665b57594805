"""What was opened: its name, where it came from, its figures, and what the reader found wrong with it."""

from __future__ import annotations

import streamlit as st

from inspector.core import snapshot
from inspector.core.formatting import counted
from inspector.core.snapshot import Snapshot
from inspector.media.streamlit import keep_button, not_known, pin_button, state_figures
from inspector.media.streamlit.plain_text import plain

_ICONS = {
    "error": ":material/error:",
    "warning": ":material/warning:",
    "note": ":material/info:",
}
_MOST_FINDINGS = 50
_MOST_AXES = 6  # of a mesh that a heading names; those of size 1 split nothing and come last


def show(name: str, found: Snapshot) -> None:
    """The heading with its buttons, four figures, and the findings."""
    st.markdown(f"### {plain(name)}")
    st.markdown(plain(mesh_text(found)))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        icon, label, colour = badge(found)
        st.badge(label, icon=icon, color=colour)
        st.download_button(
            "Snapshot",
            data=lambda: snapshot.dumps(found),
            file_name=f"{found.source.kind}.json",
            mime="application/json",
            key="download_opened",
            icon=":material/download:",
            type="tertiary",
            on_click="ignore",
            help="All that was read, as Snapshot JSON, as `import` on the command line.",
        )
        pin_button.show(found, name, key="opened_pin_button")
        keep_button.show(found, name, key="opened_keep_button")
    state_figures.show(found, devices_of(found))
    _show_findings(found)


def badge(found: Snapshot) -> tuple[str, str, str]:
    """Icon, words and colour of where it came from."""
    source = not_known.origin(found)
    if source is not None:
        words = source.split(" ", 1)[1] if source.startswith(("a ", "an ")) else source
        label = "Captured from a job" if found.source.kind == "capture" else f"Imported: {words}"
        return ":material/file_open:", plain(label), "orange"
    return ":material/description:", plain(f"Snapshot of {found.source.kind}"), "blue"


def mesh_text(found: Snapshot) -> str:
    """`fsdp 16, and 11 axes of size 1`; of several programs how many."""
    programs = f"{counted(len(found.programs), 'program')}, " if found.programs else ""
    if found.mesh is None:
        return f"{programs}mesh unknown"
    large = [axis for axis in found.mesh.axes if axis.size > 1]
    named = " × ".join(f"{axis.name} {axis.size}" for axis in large[:_MOST_AXES])
    if len(large) > _MOST_AXES:
        named += " × …"
    single = len(found.mesh.axes) - len(large)
    rest = f"{counted(single, 'axis', 'axes')} of size 1" if single else ""
    return programs + ", and ".join(filter(None, (named, rest)))


def devices_of(found: Snapshot) -> int | None:
    """The devices of the mesh, or those that all programs are for; None where they differ or do not say."""
    if found.mesh is not None:
        return found.mesh.size
    said = {program.extra.get("devices") for program in found.programs}
    (count,) = said if len(said) == 1 else (None,)
    return count if type(count) is int else None


def _show_findings(found: Snapshot) -> None:
    ranked = sorted(found.findings, key=lambda one: list(_ICONS).index(one.level))
    if not ranked:
        return
    errors = [one for one in ranked if one.level == "error"]
    for finding in errors[:_MOST_FINDINGS]:
        st.error(plain(finding.message), icon=_ICONS["error"])
    others = ranked[len(errors) :]
    if len(others) == 1:
        st.caption(f"{_ICONS[others[0].level]} {plain(others[0].message)}")
    elif others:
        with st.expander(f"{counted(len(others), 'remark')} on what was read"):
            for finding in others[:_MOST_FINDINGS]:
                st.markdown(f"{_ICONS[finding.level]} {plain(finding.message)}")
            if len(others) > _MOST_FINDINGS:
                st.caption(f"… and {len(others) - _MOST_FINDINGS} more.")
