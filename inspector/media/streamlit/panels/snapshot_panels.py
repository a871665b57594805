"""The panels of a Snapshot, one tab each."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from inspector.answers import catalogue, subject, whole_model
from inspector.answers.catalogue import Subject
from inspector.assessment import assess
from inspector.layout import Layout
from inspector.media.streamlit.panels import arrays_panels, improve_panel, program_panels
from inspector.media.streamlit.parts import chart, render
from inspector.media.streamlit.session import chip_choice, selection
from inspector.media.streamlit.streamlit_internals import TabContainer
from inspector.prediction.evidence import for_chip
from inspector.prediction.step_program import step_program
from inspector.records.snapshot import Snapshot

_DEVICE, _COLLECTIVE = "picture_device", "picture_collective"


def show_whole_model(snapshot: Snapshot) -> None:
    """Draw the picture, and the collective that was opened in it."""
    device = st.session_state.get(_DEVICE)
    chip = chip_choice.chosen_chip()
    snapshot = for_chip(snapshot, chip)
    blocks = render.kept(
        (chip and chip.name, device),
        (snapshot,),
        lambda: whole_model.blocks(snapshot, chip, device, titled=False),
    )
    render.show(blocks, {whole_model.KEY: _pick})
    program = step_program(snapshot)
    name = st.session_state.get(_COLLECTIVE)
    every = () if program is None else program.collectives or ()
    opened = next((collective for collective in every if collective.name == name), None)
    if program is not None and opened is not None:
        program_panels.show_one(snapshot, program, opened)


def _pick(part: dict[str, Any]) -> None:
    position, collective = part.get("position"), part.get("collective")
    if isinstance(position, int):
        st.session_state[_DEVICE] = position
    elif isinstance(collective, str):
        again = st.session_state.get(_COLLECTIVE) == collective
        st.session_state[_COLLECTIVE] = None if again else collective
    elif isinstance(part.get("path"), str):
        selection.open_map(part["path"])


Panel = Callable[[Snapshot, Layout | None], None]


def _show_summary(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw the whole model and the improvements. The verdict is in the head."""
    show_whole_model(snapshot)
    improve_panel.show_best(snapshot, layout)


# In the order of an engineer's questions.
PANELS: dict[str, Panel] = {
    "Summary": _show_summary,
    "Arrays": arrays_panels.show,
    "Communication": program_panels.show_collectives,
    "Time": program_panels.show_time,
    "Memory": program_panels.show_memory,
    "Improve": improve_panel.show,
}

FIRST = next(iter(PANELS))
_SHOWN = "shown_panel"  # the panel, layout and kind of Snapshot that the page showed last


def is_open(*names: str) -> bool:
    """Return whether one of these panels is open on the Layout page."""
    return st.session_state.get("panel", FIRST) in names


def draw_tabs(key: str = "panel") -> tuple[TabContainer, ...]:
    """Draw the row of tabs, before the Snapshot that they show is known.

    Args:
      key: the key of the tabs, different for each page.
    """
    return tuple(st.tabs(list(PANELS), key=key, on_change="rerun"))


def _count_problems(snapshot: Snapshot) -> None:
    """Add the number of errors and warnings to the last tab. Its label is its identity, so it stays."""
    counts = assess(snapshot, chip_choice.chosen_chip()).findings
    if counts is not None and (number := counts.error + counts.warning):
        st.html(
            '<style>[data-testid="stMain"] [role="tab"][data-testid="stTab"]:nth-of-type('
            f'{len(PANELS)})::after {{ content: "{number}"; margin-left: 0.4em; font-weight: 600; }}</style>'
        )


def show(
    tabs: Sequence[TabContainer],
    snapshot: Snapshot,
    layout: Layout | None,
    instead: dict[str, Panel] | None = None,
) -> None:
    """Draw the open panel.

    Args:
      tabs: from `draw_tabs`.
      layout: the layout of the Snapshot, or None if it is unknown.
      instead: panels that this page draws in another way.

    Each panel takes the programs that count on the chosen chip: measurements are of those that ran.
    """
    for tab, (name, draw) in zip(tabs, (PANELS | (instead or {})).items(), strict=True):
        if tab.open:
            shown = (name, layout, snapshot.source.kind)
            new = st.session_state.get(_SHOWN) != shown
            st.session_state[_SHOWN] = shown
            with tab, chart.of(lambda: [subject.source_line(snapshot)], alone=new):
                draw(snapshot, layout)
                render.show(catalogue.of_tab(name, Subject.of(snapshot, chip_choice.chosen_chip())))
    _count_problems(snapshot)
