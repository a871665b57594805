"""Panels of a Snapshot's programs: train state, collectives, memory, time and timeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from inspector import figures
from inspector.answers import (
    causes,
    collectives,
    expert_load,
    exposed,
    measured,
    memory,
    pipelines,
    prediction,
    time,
    train_state,
    unknown,
)
from inspector.answers.collectives import UNKNOWN_AXES
from inspector.answers.section import Block, Picture
from inspector.assessment import assess
from inspector.compare.measured import local_runs
from inspector.compiled.causes import conflicts_of
from inspector.jobs import serving
from inspector.layout import Layout
from inspector.machines import targets
from inspector.machines.hardware import Chip
from inspector.media.streamlit.page import buttons, page_switch, page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import chart, render, table
from inspector.media.streamlit.session import chip_choice, selection, stated_counts
from inspector.prediction import calibration
from inspector.prediction.evidence import for_chip, program_for_chip
from inspector.prediction.predicted import Predicted, predicted_in
from inspector.prediction.step_parts import measured_spans
from inspector.records.snapshot import Collective, Program, Snapshot
from inspector.text.errors import InvalidInput
from inspector.text.formatting import counted
from inspector.text.printable import one_line

_MAX_BUTTONS = 24  # further arrays are only counted


def show_collectives(snapshot: Snapshot, _: Layout | None, computing: bool = False) -> None:
    """Draw the choice of a program, its sum, two figures, and tables of its collectives.

    computing: whether the reasons and the conflicts of a program before a compile are not known yet.
    """
    snapshot = for_chip(snapshot, chip_choice.chosen_chip())
    missing = unknown.no_programs(snapshot, "collectives are", partitioned=True)
    if missing is not None:
        render.show([missing])
        return
    names = [program.name for program in snapshot.programs]
    name = chip_choice.choose(names, chip_choice.KEYS["Communication"])
    program = snapshot.program(name) or snapshot.programs[0]

    conflicts = conflicts_of(program)
    pick = table.picker(
        f"{table.SELECT_A_ROW} for both sides of the conflict and their origins.",
        lambda row: render.show([causes.sides(conflicts[row])]),
    )
    render.show(collectives.of_program(program, snapshot, computing=computing), {f"conflicts:{name}": pick})
    if program.collectives:
        _show_each(snapshot, program, program.collectives)
    render.show(expert_load.section(snapshot, [program]))


def _show_each(snapshot: Snapshot, program: Program, every: Sequence[Collective]) -> None:
    mesh = snapshot.mesh_of(program)
    mesh_axes = () if mesh is None else mesh.axis_names
    axes = [axis for axis in mesh_axes if any(axis in (op.mesh_axes or ()) for op in every)]
    if any(not op.mesh_axes for op in every):
        axes.append(UNKNOWN_AXES)
    along = st.pills(
        "Mesh axes",
        axes,
        selection_mode="multi",
        format_func=plain,
        key=f"collective_axes:{program.name}",
    )
    shown = collectives.matching(every, along or ())
    rows = collectives.each(program, shown)
    pick = table.picker(
        f"{len(shown)} of {counted(len(every), 'collective')}, most bytes first. {table.SELECT_A_ROW} "
        "for its causes, its arrays and its name in the program.",
        lambda row: show_one(snapshot, program, shown[row]),
    )
    render.show([rows], {rows.key: pick})


def show_one(snapshot: Snapshot, program: Program, collective: Collective) -> None:
    """Draw the causes of a collective, its name in the program and the arrays that it moves."""
    with st.container(border=True):
        render.show(collectives.cause(snapshot, program, collective).blocks)
        chip = targets.chip_for(snapshot, chip_choice.chosen_chip())
        render.show(exposed.of_collective(snapshot, program, collective, chip))
        render.show(expert_load.of_collective(snapshot, program, collective))
        if collective.op_name:
            st.code(one_line(collective.op_name), language=None, wrap_lines=True)
        known = {array.path for array in snapshot.arrays}
        paths = [path for path in collective.arrays or () if path in known]
        if collective.arrays is None:
            st.caption("The arrays that it moves are unknown.")
        elif not paths:
            st.caption("It moves no input or output of the program, only intermediate values.")
        else:
            st.caption("Arrays that it moves. Select one for the shard map.")
            with st.container(horizontal=True, gap="small"):
                for path in paths[:_MAX_BUTTONS]:
                    selected = selection.selected(snapshot).path == path
                    st.button(
                        plain(path),
                        key=f"moved:{path}",
                        type="primary" if selected else "secondary",
                        on_click=selection.select,
                        args=(path,),
                    )
            if len(paths) > _MAX_BUTTONS:
                st.caption(f"… and {len(paths) - _MAX_BUTTONS} more.")


_SHOWN, _OPERATION = "timeline_shown", "timeline_operation"
_BESIDE = 0.5  # of the period that is shown: detail on each side of it, for the next pan
_HINT = (
    "Zoom with the wheel or the keys W and S, pan by dragging or with A and D. A double click shows the "
    "whole step. Click a bar to see its operation, or several operations in one bar to zoom to them."
)


@dataclass(frozen=True)
class _Shown:
    """The period that the timeline shows, in seconds.

    Attributes:
      step: identifies the timeline; another one begins with one iteration, such as one layer, if the
        others take most of it.
      period: None for the whole step.
      number: of the last period that the server has chosen.
    """

    step: tuple[Any, ...]
    period: tuple[float, float] | None = None
    number: int = 0


@st.fragment
def show_timeline(predicted: Predicted, program: Program) -> None:
    """Draw the timeline with the details of the period that it shows, then the picked operation."""
    assert predicted.simulated is not None
    state = st.session_state
    measured = measured_spans(program)
    periods = figures.timeline.windows(predicted.simulated, program, measured)
    end = max(end for _, end in periods.values())
    step = (predicted.program, predicted.chip.name, end)
    further = sum(span.end - span.start for span in predicted.simulated.spans if span.basis == "loop")
    one_layer = next(
        (period for name, period in periods.items() if name != figures.timeline.WHOLE_STEP), None
    )
    one_layer = one_layer if further > end / 2 else None
    shown: _Shown = state.get(_SHOWN, _Shown(step, one_layer))
    if shown.step != step:
        shown = _Shown(step, one_layer, shown.number + 1)
    state[_SHOWN] = shown

    def zoom(sent: Any, number: int) -> None:
        if (period := _period(sent, end)) is not None:
            whole = period == (0.0, end)
            state[_SHOWN] = _Shown(step, None if whole else period, number)

    def pick(value: Any) -> None:
        if isinstance(value, list):  # several operations in one bar
            zoom(value, shown.number + 1)
        else:
            state[_OPERATION] = value if isinstance(value, str) else None

    if len(periods) > 1:
        with st.container(horizontal=True, gap="small"):
            for name, period in periods.items():
                label, key, number = name.capitalize(), f"timeline:{name}", shown.number + 1
                buttons.draw(label, key, "zoom_in_map", zoom, period, number, type="tertiary")
    detail = None
    if shown.period is not None:
        start, stop = shown.period
        more = _BESIDE * (stop - start)
        detail = (start - more, stop + more)
    picture = prediction.timeline_picture(predicted.simulated, program, detail, measured)
    figure = picture.build(page_width.content_px())
    if figure is None:
        return
    zoomed = chart.Zoom(shown.period, shown.number, lambda sent: zoom(sent, shown.number))
    chart.draw(figure, picture.key, alt=picture.alt, on_pick=pick, zoom=zoomed)
    st.caption(_HINT)
    render.show(prediction.operation_blocks(predicted, program, state.get(_OPERATION) or ""))


def _period(sent: Any, end: float) -> tuple[float, float] | None:
    """Return the period of the step in a message of the browser; None without one."""
    if not isinstance(sent, (list, tuple)) or len(sent) != 2:
        return None
    if not all(isinstance(bound, (int, float)) for bound in sent):
        return None
    start, stop = (min(max(float(bound), 0.0), end) for bound in sent)
    return (start, stop) if start < stop else None


def show_train_state(snapshot: Snapshot, _: Layout | None) -> None:
    """Draw the arrays, activations, gradients, compiled shardings, loss, live arrays and boxes."""
    render.show([train_state.verdict(snapshot), *train_state.arrays(snapshot)])
    render.show(train_state.inside(snapshot))
    names = [program.name for program in snapshot.programs if program.shardings]
    if names:
        name = chip_choice.choose(names, chip_choice.KEYS["Arrays"])
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
    missing = unknown.no_programs(snapshot, "step times are", partitioned=True)
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
        name = chip_choice.choose(names, chip_choice.KEYS["Time"])
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
        known = calibration.read()
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
        show_timeline(predicted, program)
    render.show(blocks[place + 1 :])


def _is_picture(block: Block, key: str) -> bool:
    return isinstance(block, Picture) and block.key == key
