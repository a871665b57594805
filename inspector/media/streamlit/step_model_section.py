"""A program's step as modelled on the chosen chip: what bounds it, and each term with its formula."""

from __future__ import annotations

from typing import Any

import streamlit as st

from inspector.compiled import out_of_memory
from inspector.core.formatting import counted, seconds_text
from inspector.core.snapshot import Snapshot
from inspector.figures import step_model as step_model_figure
from inspector.figures.roofline import roofline
from inspector.machines.prediction.step_model import (
    Modelled,
    bound_text,
    intensity_text,
    modelled,
    share_text,
    wasted_text,
)
from inspector.media.streamlit import (
    chart,
    chip_choice,
    page_width,
    program_choice,
    table,
)
from inspector.media.streamlit.plain_text import plain
from inspector.media.streamlit.program_choice import PROGRAM_NAMES


def show(found: Snapshot) -> None:
    """The bound in a sentence, the terms beside the roofline, and the formulas on demand."""
    st.markdown("##### Modelled on a chip")
    known = [name for name in PROGRAM_NAMES if found.program(name) is not None]
    names = [*known, *(one.name for one in found.programs if one.name not in known)]
    chosen, asked = _places()
    with chosen:
        chip = chip_choice.draw(found)
    with asked:
        name = program_choice.choose(names, "modelled_program")
    models = {
        program.name: modelled(program, found.mesh, chip)
        for program in found.programs
        if program.name in names
    }
    one = models[name]
    if _refused(found, one):
        st.info(
            f"The compiler refused {plain(name)}, which does not fit into the memory of a device, and "
            "gave no program: how long a step would take cannot be modelled.",
            icon=":material/help:",
        )
        return
    _show_headline(one)
    terms, roofs = page_width.halves()
    width_px = page_width.half_px()
    with terms:
        chart.draw(
            step_model_figure.step_model(one, width_px=width_px),
            "step_model",
            alt="Modelled terms of a step",
        )
    with roofs:
        chart.draw(
            roofline(chip, models.values(), width_px=width_px),
            "roofline",
            alt="Roofline of the chip with each program",
        )
    _show_formulas(one)


def _places() -> tuple[Any, Any]:
    """Where the chip is chosen and where the program: one under the other on a narrow page."""
    if page_width.content_px() < page_width.NARROW_PX:
        return st.container(), st.container()
    chosen, asked = st.columns([2, 3], vertical_alignment="bottom")
    return chosen, asked


def _refused(found: Snapshot, one: Modelled) -> bool:
    """Whether there is no program to model because its compiler made none."""
    refused = {finding.extra.get("program") for finding in out_of_memory.refused(found)}
    return one.program in refused and one.lower_seconds is None


def _show_headline(one: Modelled) -> None:
    machine = f"{counted(one.devices, 'device')} of {one.chip.title}"
    st.markdown(f"On {plain(machine)}: **{plain(bound_text(one))}**")
    columns = st.columns(3)
    columns[0].metric(
        "Repeated work",
        wasted_text(one),
        help="Share of all devices' matrix-product FLOPs beyond those of the program as it was written, "
        "before it was partitioned: work that replication makes several devices do.",
    )
    columns[1].metric(
        "Utilisation at most",
        share_text(one.utilisation),
        help="The program's own FLOPs over what all devices could do in the shortest modelled time.",
    )
    hbm = one.intensities[0] if one.intensities else None
    columns[2].metric(
        "FLOP per HBM byte",
        "unknown" if hbm is None else intensity_text(hbm).split(",")[0],
        help="" if hbm is None else plain(intensity_text(hbm)),
    )


def _show_formulas(one: Modelled) -> None:
    with st.expander("Formulas and assumptions"):
        table.show(
            {
                "Term": [term.name for term in one.terms],
                "Seconds": [seconds_text(term.seconds) for term in one.terms],
                "Formula": [term.formula or "–" for term in one.terms],
                "Rests on": [term.basis or "what the compiled program says" for term in one.terms],
            },
            "step_model_terms",
        )
        intensities = [f"{each.name}: {intensity_text(each)}" for each in one.intensities]
        shortest = (
            "The step takes at least its longest term, if all of them overlap, and at most all"
        )
        for words in (f"{shortest} of them together.", *intensities, *one.assumptions):
            st.markdown(f"- {plain(words)}")
