"""Panels of a Snapshot's programs: shardings of the train state, memory, and time."""

import streamlit as st

from inspector.assessment import assess
from inspector.compare.measured import local_runs
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.machines import targets
from inspector.machines.evidence import for_chip, program_for_chip
from inspector.machines.hardware import Chip
from inspector.machines.prediction import own_runs
from inspector.machines.prediction.predicted import predicted_in
from inspector.media.streamlit.page import page_switch, page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.panels import timeline_panel
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import chip_choice, program_choice, stated_counts
from inspector.sections import exposed, measured, memory, pipelines, prediction, time, train_state, unknown
from inspector.sections.section import Block, Picture
from inspector.service import serving


def show_train_state(snapshot: Snapshot, _: Layout | None) -> None:
    """Draw the arrays, activations, gradients, compiled shardings, loss, live arrays and boxes."""
    render.show([train_state.verdict(snapshot), *train_state.arrays(snapshot)])
    render.show(train_state.inside(snapshot))
    names = [program.name for program in snapshot.programs if program.shardings]
    if names:
        name = program_choice.choose(names, program_choice.KEYS["Arrays"])
        render.show([train_state.shardings(snapshot, name), *train_state.training(snapshot)])
    render.show(train_state.boxes(snapshot))


def show_memory(snapshot: Snapshot, _: Layout | None) -> None:
    """Draw the choice of the chip and the memory of each program. The head says that a layout fits."""
    chip = chip_choice.draw(snapshot)
    snapshot = for_chip(snapshot, chip)
    verdict, need = memory.verdict(snapshot, chip), assess(snapshot, chip).memory
    in_head = verdict.kind != "error" and need is not None and not need.at_least
    render.show([*([] if in_head else [verdict]), *memory.programs(snapshot, chip)])


def show_time(snapshot: Snapshot, _: Layout | None) -> None:
    """Draw the measurement, then the step modelled on a chip."""
    missing = unknown.no_programs(snapshot, "step times are", propagated=True)
    if missing is not None:
        render.show([missing])
        return
    of_run = measured.section(snapshot, targets.chip_of(snapshot))
    render.show([*of_run, *time.measured(snapshot), *time.by_operation(snapshot)])
    _show_own_run(snapshot)
    no_mesh = unknown.no_mesh(snapshot)
    if no_mesh is not None:
        render.show([no_mesh, *pipelines.sections(snapshot), *exposed.section(snapshot, None)])
        return
    left, right = page_width.beside([2, 3])
    with left:
        chip = chip_choice.draw(snapshot)
    with right:
        names = [program.name for program in snapshot.programs]
        name = program_choice.choose(names, program_choice.KEYS["Time"])
    stated_counts.draw(name)
    if chip is None:
        render.show(pipelines.sections(snapshot))
    else:
        _show_prediction(snapshot, name, chip)
    program = snapshot.program(name)
    render.show(exposed.section(snapshot, chip, [program] if program is not None else []))


def _show_own_run(snapshot: Snapshot) -> None:
    """Offer to add the measured steps of a run on this machine to the own runs of its only user."""
    if snapshot.source.kind != "local" or serving.current().proxy:
        return
    try:
        runs = local_runs.runs_of(snapshot)
        known = own_runs.read()
    except InvalidInput as error:
        st.caption(plain(f"Not for the own runs: {error}."))
        return
    if all(run in known for run in runs):
        st.caption("The intervals of predictions use this run too.")
        return
    if st.button(
        "Add to own runs",
        key="add_own_run",
        icon=":material/add_chart:",
        help="Intervals of later predictions then use the steps measured here too.",
    ):
        try:
            local_runs.add(snapshot)
        except InvalidInput as error:
            st.error(plain(str(error)), icon=":material/error:")
            return
        st.rerun()


def _show_prediction(snapshot: Snapshot, name: str, chip: Chip) -> None:
    """Draw the predicted step. The timeline is drawn by itself, because a zoom redraws only that.

    The bars of the program of the head are there, if the page is wide.
    """
    on_chip = for_chip(snapshot, chip)
    models = time.models_of(on_chip, chip)
    program = snapshot.program(name)
    mesh = None if program is None else snapshot.mesh_of(program)
    assert program is not None and mesh is not None
    predicted = predicted_in(snapshot, program, chip)
    program = program_for_chip(snapshot, program, chip)
    terms = time.how_computed(on_chip, models[name])
    blocks = prediction.blocks(predicted, program, mesh, terms)
    assessed = assess(snapshot, chip).program == name and page_width.content_px() >= page_width.NARROW_PX
    blocks = tuple(block for block in blocks if not (assessed and _is_picture(block, prediction.BARS)))
    place = next((n for n, block in enumerate(blocks) if _is_picture(block, "timeline")), len(blocks))
    render.show(blocks[:place])
    if predicted.interval is not None or predicted.outside is not None:
        st.page_link(
            page_switch.page(page_switch.ACCURACY),
            label=plain(f"Interval from {predicted.runs_text}" if predicted.interval else "Published runs"),
            icon=":material/target:",
            query_params={chip_choice.KEY: chip.name},
        )
    if place < len(blocks):
        timeline_panel.show(predicted, program)
    render.show(blocks[place + 1 :])


def _is_picture(block: Block, key: str) -> bool:
    return isinstance(block, Picture) and block.key == key
