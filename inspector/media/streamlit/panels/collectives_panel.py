"""The collectives of each program: by mesh axes, between devices, and one by one with a filter."""

from collections.abc import Sequence

import streamlit as st

from inspector.compiled.causes import conflicts_of
from inspector.core.formatting import counted
from inspector.core.printable import one_line
from inspector.core.snapshot import Collective, Program, Snapshot
from inspector.layout import Layout
from inspector.machines import targets
from inspector.machines.evidence import for_chip
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import render, table
from inspector.media.streamlit.session import chip_choice, program_choice, selection
from inspector.sections import (
    causes,
    collectives,
    expert_load,
    exposed,
    partitioned_traffic,
    reshards,
    unknown,
)
from inspector.sections.collectives import UNKNOWN_AXES

_MAX_BUTTONS = 24  # further arrays are only counted


def show(snapshot: Snapshot, _: Layout | None, computing: bool = False) -> None:
    """Draw the choice of a program, its sum, two figures, and tables of its collectives.

    computing: whether the reasons and the conflicts of a program before a compile are not known yet.
    """
    snapshot = for_chip(snapshot, chip_choice.chosen_chip())
    missing = unknown.no_programs(snapshot, "collectives are", propagated=True)
    if missing is not None:
        render.show([missing, *reshards.sections(snapshot, targets.chip_of(snapshot))])
        return
    names = [program.name for program in snapshot.programs]
    name = program_choice.choose(names, program_choice.KEYS["Communication"])
    program = snapshot.program(name) or snapshot.programs[0]

    conflicts = conflicts_of(program)
    pick = table.picker(
        f"{table.SELECT_A_ROW} for both sides of the conflict and their origins.",
        lambda row: render.show([causes.sides(conflicts[row])]),
    )
    render.show(collectives.of_program(program, snapshot, computing=computing), {f"conflicts:{name}": pick})
    if program.collectives:
        _show_each(snapshot, program, program.collectives)
    render.show([*expert_load.section(snapshot, [program]), *partitioned_traffic.sections(snapshot)])
    render.show(reshards.sections(snapshot, targets.chip_of(snapshot)))


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
        render.show(collectives.cause(program, collective).blocks)
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
