"""The collectives of each program: which mesh axis talks, how much, because of which array and line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import streamlit as st

from inspector.compiled import array_collectives
from inspector.compiled.device_traffic import device_traffic
from inspector.compiled.op_name import PHASES, Phase, parse_op_name
from inspector.core.collectives import Traffic, traffic
from inspector.core.formatting import bytes_text, counted, exact_bytes_text
from inspector.core.snapshot import Array, Collective, Program, Snapshot
from inspector.figures.collective_bars import axes_text, collective_bars, grouped
from inspector.figures.traffic_map import traffic_map
from inspector.layout import Layout
from inspector.media.streamlit import (
    chart,
    not_known,
    page_width,
    program_choice,
    selection,
    table,
)
from inspector.media.streamlit.plain_text import plain
from inspector.media.streamlit.program_choice import PROGRAM_NAMES

RUNS = {"init": "Initialisation", "train_step": "A train step", "apply": "An inference"}
_MOST_BUTTONS = 24  # more arrays than this are named by their number alone
_NO_MESH_AXES = "unknown"
_NUMBERS = {
    "Executions": "How often one run of the program runs it.",
    "Payload": "Bytes of one execution on one device.",
    "On the wire": "Bytes that leave one device in all executions of a run, by the ring algorithm.",
}


def show(found: Snapshot, _: Layout | None) -> None:
    """What matters first: one sentence; then by axes, from device to device, and every collective."""
    if not_known.no_programs(
        found,
        "A plan has nothing compiled. Build and run the layout to see which collectives the compiler "
        "made of it, along which mesh axes, and how many bytes they move.",
        "which collectives its program runs is unknown",
    ):
        return
    program = _choose(found)
    collectives = program.collectives
    if collectives is None:
        st.info(
            "The collectives of this program have not been counted: it gave no text of itself that "
            "could be read.",
            icon=":material/help:",
        )
        return
    st.markdown(headline(program.name, collectives))
    if not collectives:
        return
    rows = traffic(collectives)
    left, right = page_width.halves()
    width_px = page_width.half_px()
    with left:
        figure = collective_bars(rows, of=_run_of(program.name), width_px=width_px)
        if figure is not None:
            chart.draw(figure, "collective_bars", alt="Bytes by mesh axes and op")
    with right:
        figure = None
        if found.mesh is not None:
            sent = device_traffic(collectives, found.mesh)
            figure = traffic_map(sent, found.mesh, of=_run_of(program.name), width_px=width_px)
        if found.mesh is None:
            not_known.no_mesh(found)
        elif figure is not None:
            chart.draw(figure, "traffic_map", alt="Bytes from device to device")
        else:
            st.caption("No bytes are known to go from one device to another.")
    table.show(traffic_columns(rows), "traffic_table")
    _show_all(found, program.name, collectives)


def of_array(array: Array, found: Snapshot) -> None:
    """The collectives that move one array, in short; nothing where no program told."""
    if not array_collectives.looked_for(found):
        return
    several = array_collectives.moving(array, found)
    if not several:
        also = " It follows the gradient of its parameter." if array.group == "opt_state" else ""
        st.caption(f"No collective is known to move this array.{also}")
        return
    st.markdown("**Collectives that move it**")
    table.show(
        {
            "Program": [PROGRAM_NAMES.get(one.program, one.program) for one in several],
            "Op": [one.collective.op for one in several],
            "Mesh axes": [_axes(one.collective) for one in several],
            "Executions": [_number_text(one.collective.executions) for one in several],
            "Payload": [_payload_text(one.collective) for one in several],
            "Phase": [phases_text(one.collective) for one in several],
            "Source": [one.collective.source or "unknown" for one in several],
            "Known by": [
                "the program's text" if one.known_by == "followed" else "same place and size"
                for one in several
            ],
        },
        "array_collectives",
    )


def headline(name: str, collectives: Sequence[Collective]) -> str:
    """What a program's collectives come to in one sentence, as Markdown."""
    who = plain(RUNS.get(name, name))
    if not collectives:
        return f"{who} runs no collective: nothing goes from device to device."
    rows = traffic(collectives)
    by_axes = grouped(rows)
    ops = _joined([_op_text(op, rows) for op in dict.fromkeys(row.op for row in rows)])
    known = {axes: _wire(each) for axes, each in by_axes.items()}
    over = _joined([_code(axis) for axis in _axes_named(by_axes)])
    total = sum(known.values())
    unknown = sum(row.instructions for row in rows if row.wire_bytes_per_device is None)
    sentence = f"{who} runs {ops}{f' over {over}' if over else ''}: "
    if unknown and not total:
        sentence += "how many bytes leave each device is unknown"
    else:
        sentence += f"{'at least ' if unknown else ''}**{bytes_text(total)}** leave each device"
    first = max(known, key=known.__getitem__)
    if total and len(known) > 1 and first:
        sentence += f", {known[first] / total:.0%} of it over {_code(axes_text(first))}"
    if unknown:
        sentence += f"; {counted(unknown, 'collective')} could not be counted in full"
    conditional = sum(one.conditional for one in collectives)
    if conditional:
        sentence += f"; {counted(conditional, 'collective')} in branches, counted as taken"
    return sentence + "."


def phases(collective: Collective) -> tuple[Phase, ...]:
    """The phases that a collective belongs to, in the order of a step; several where it was joined."""
    found = {place.phase for place in parse_op_name(collective.op_name)}
    return tuple(phase for phase in PHASES if phase in found)


def phases_text(collective: Collective) -> str:
    return " + ".join(phases(collective))


def traffic_columns(rows: Iterable[Traffic]) -> dict[str, list[Any]]:
    """An entry for each mesh axes and op."""
    rows = list(rows)
    return {
        "Mesh axes": [axes_text(row.mesh_axes) for row in rows],
        "Op": [row.op for row in rows],
        "Instructions": [row.instructions for row in rows],
        "Executions": table.numbers([row.executions for row in rows]),
        "Payload of one run": [bytes_text(row.payload_bytes) for row in rows],
        "On the wire, per device": [bytes_text(row.wire_bytes_per_device) for row in rows],
        "Conditional": ["yes" if row.conditional else "no" for row in rows],
    }


def columns(collectives: Sequence[Collective]) -> dict[str, list[Any]]:
    """An entry a collective."""
    return {
        "Op": [one.op for one in collectives],
        "Mesh axes": [_axes(one) for one in collectives],
        "Groups": [_groups_short(one) for one in collectives],
        "Executions": table.numbers([one.executions for one in collectives]),
        "Payload": table.numbers([one.payload_bytes for one in collectives]),
        "On the wire": table.numbers([wire_of_one_run(one) for one in collectives]),
        "Phase": [phases_text(one) for one in collectives],
        "Place": [_places_text(one) for one in collectives],
        "Arrays": [_arrays_text(one) for one in collectives],
        "Source": [one.source or "unknown" for one in collectives],
        "Made by": ["partitioner" if one.spmd_generated else "not said" for one in collectives],
        "Asynchronous": ["yes" if one.asynchronous else "no" for one in collectives],
        "Conditional": ["yes" if one.conditional else "no" for one in collectives],
        "Name": [one.name for one in collectives],
    }


def wire_of_one_run(one: Collective) -> int | None:
    """Bytes that all executions of one run put on the wire, of one device."""
    if one.executions == 0:
        return 0
    if one.executions is None or one.wire_bytes_per_device is None:
        return None
    return one.executions * one.wire_bytes_per_device


def matching(
    collectives: Sequence[Collective], axes: Iterable[str], wanted: Iterable[str]
) -> list[Collective]:
    """The collectives along one of these mesh axes and of one of these phases; none named means all.

    What sends most comes first, and last what sends nobody knows how much.
    """
    axes, wanted = set(axes), set(wanted)
    found = [
        one
        for one in collectives
        if (not axes or axes & (set(one.mesh_axes) if one.mesh_axes else {_NO_MESH_AXES}))
        and (not wanted or wanted & set(phases(one)))
    ]
    sent = [wire_of_one_run(one) for one in found]
    order = sorted(
        range(len(found)), key=lambda at: -1 if sent[at] is None else sent[at], reverse=True
    )
    return [found[at] for at in order]


def _choose(found: Snapshot) -> Program:
    name = program_choice.choose(
        [program.name for program in found.programs], "collectives_program"
    )
    return found.program(name) or found.programs[0]


def _show_all(found: Snapshot, program: str, collectives: Sequence[Collective]) -> None:
    left, right = st.columns(2)
    axes = [
        name
        for name in (found.mesh.axis_names if found.mesh is not None else ())
        if any(name in (c.mesh_axes or ()) for c in collectives)
    ]
    if any(not one.mesh_axes for one in collectives):
        axes.append(_NO_MESH_AXES)
    there = [phase for phase in PHASES if any(phase in phases(one) for one in collectives)]
    with left:
        along = st.pills(
            "Along",
            axes,
            selection_mode="multi",
            format_func=plain,
            key=f"collective_axes:{program}",
        )
    with right:
        wanted = st.pills(
            "Phase", there, selection_mode="multi", key=f"collective_phases:{program}"
        )
    shown = matching(collectives, along or (), wanted or ())
    if not shown:
        st.info(
            "No collective is along these axes and of this phase.", icon=":material/search_off:"
        )
        return
    drawn = columns(shown)
    event = table.show(
        drawn,
        f"collective_table:{program}",
        on_select="rerun",
        selection_mode="single-row",
        column_config=table.of_numbers(
            drawn,
            {
                name: st.column_config.NumberColumn(format="localized", help=meaning)
                for name, meaning in _NUMBERS.items()
            },
        ),
    )
    if event.selection.rows and event.selection.rows[0] < len(shown):
        _show_one(found, shown[event.selection.rows[0]])
    else:
        st.caption(
            f"{len(shown)} of {counted(len(collectives), 'collective')}, the most bytes first. "
            "Select a row for its arrays and its place in the model."
        )


def _show_one(found: Snapshot, one: Collective) -> None:
    with st.container(border=True):
        runs = "unknown" if one.executions is None else f"{one.executions:,}"
        st.markdown(
            f"**{plain(one.op)} over {plain(_axes(one))}** in {plain(_places_text(one, most=6))}  \n"
            f"{_groups_text(one)}; {runs} × {plain(exact_bytes_text(one.payload_bytes))} payload; "
            f"{plain(exact_bytes_text(wire_of_one_run(one)))} leave each device in one run"
        )
        if one.op_name:
            st.code(one.op_name, language=None, wrap_lines=True)
        known = {array.path for array in found.arrays}
        paths = [path for path in one.arrays or () if path in known]
        if one.arrays is None:
            st.caption("Which arrays it moves was not looked for.")
        elif not paths:
            st.caption(
                "It moves no argument and no result of the program that is known: what it moves is "
                "computed and used up within the run, as an activation is."
            )
        else:
            st.caption("Look at an array that it moves; it is then the one of the shard map.")
            with st.container(horizontal=True, gap="small"):
                for path in paths[:_MOST_BUTTONS]:
                    st.button(
                        plain(path),
                        key=f"moved:{path}",
                        type="primary" if selection.selected(found).path == path else "secondary",
                        on_click=selection.select,
                        args=(path,),
                    )
            if len(paths) > _MOST_BUTTONS:
                st.caption(f"… and {len(paths) - _MOST_BUTTONS} more.")


def _run_of(name: str) -> str:
    return {"train_step": "one step"}.get(name, "one run")


def _axes(one: Collective) -> str:
    return axes_text(one.mesh_axes) if one.mesh_axes is not None else "unknown"


def _axes_named(by_axes: Iterable[tuple[str, ...] | None]) -> list[str]:
    return list(dict.fromkeys(axis for axes in by_axes for axis in axes or ()))


def _wire(rows: Iterable[Traffic]) -> int:
    return sum(row.wire_bytes_per_device or 0 for row in rows)


def _op_text(op: str, rows: Iterable[Traffic]) -> str:
    executions = [row.executions for row in rows if row.op == op]
    if None in executions:
        return f"an unknown number of {plain(op)}s"
    return counted(sum(count for count in executions if count is not None), plain(op))


def _code(name: str) -> str:
    """A name as code, unless it would end the code that it stands in."""
    return plain(name) if "`" in name or not name.isprintable() else f"`{name}`"


def _joined(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _number_text(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _payload_text(one: Collective) -> str:
    others = len(one.arrays or ()) - 1
    joined = f", with {counted(others, 'other array')}" if others > 0 else ""
    return bytes_text(one.payload_bytes) + joined


def _places_text(one: Collective, most: int = 1) -> str:
    """The modules, the first ones of many; `the loss` or the like stands in none."""
    paths = list(
        dict.fromkeys(place.module for place in parse_op_name(one.op_name) if place.module)
    )
    if not paths:
        return "no module"
    more = f" + {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(paths[:most]) + more


def _arrays_text(one: Collective) -> str:
    if one.arrays is None:
        return "unknown"
    if len(one.arrays) == 1:
        return one.arrays[0]
    return counted(len(one.arrays), "array") if one.arrays else "none known"


def _groups_short(one: Collective) -> str:
    """`8 × 4` for eight groups of four devices."""
    if one.group_size is None or one.groups is None:
        return "unknown"
    return f"{one.groups:,} × {one.group_size:,}"


def _groups_text(one: Collective) -> str:
    if one.group_size is None or one.groups is None:
        return "groups of devices unknown"
    return f"{counted(one.groups, 'group')} of {counted(one.group_size, 'device')}"
