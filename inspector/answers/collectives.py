"""Collectives of compiled programs: by mesh axes, between devices, one by one, and those of one array."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inspector import figures
from inspector.answers import causes, pipelines, reasons, unknown
from inspector.answers.programs import BEFORE_COMPILE, heading, once
from inspector.answers.section import (
    Block,
    Cell,
    Code,
    Column,
    Columns,
    Inline,
    Listing,
    Picture,
    Section,
    Strong,
    Table,
    more,
    text,
    with_code,
)
from inspector.compiled import collective_roles
from inspector.compiled.device_traffic import Range, device_traffic, range_of_run
from inspector.hlo.op_name import PHASES, Phase, parse_op_name, phase_text, phases_of
from inspector.machines.mesh_links import by_network
from inspector.records.snapshot import Array, Collective, Program, Snapshot
from inspector.sharding.meshes import mesh_title
from inspector.sharding.traffic import (
    Axes,
    Traffic,
    axes_text,
    executions_of,
    grouped,
    inputs_of,
    least_bytes,
    lines_text,
    parts_of,
    sent_by_busiest,
    sent_of_busiest,
    traffic,
    wire_bytes_of_iteration,
    wire_bytes_of_run,
)
from inspector.text.formatting import and_text, bytes_text, counted, exact_bytes_text, share_text
from inspector.text.program_names import run_of, title, who_runs

UNKNOWN_AXES = "unknown"
_SUBJECT = "collectives are"
_MOST_LISTED = 20  # collectives of a program
_OF_BUSIEST = "Bytes that leave the device that sends most in all, in one run, by the ring algorithm."
_MOST_REASONS = 4  # with the figures, the table fits on the first screen
_MOST_SOURCES = 2


def section(snapshot: Snapshot) -> Section:
    """Return the collectives of every program by mesh axes and the largest, those of a step with figures."""
    missing = unknown.no_programs(snapshot, _SUBJECT, partitioned=True)
    blocks: list[Block] = [] if missing is None else [missing]
    alike: dict[object, list[Program]] = {}
    for program in once(snapshot):
        alike.setdefault(_sent_by(program), []).append(program)
    for number, (program, *others) in enumerate(alike.values()):
        inside = (*of_program(program, snapshot, figures=number == 0), *largest(program))
        names = [heading(same, snapshot) for same in (program, *others)]
        blocks.append(Section(f"collectives-{program.name}", ", ".join(names), inside))
    return Section("collectives", "Collectives", tuple(blocks))


def _sent_by(program: Program) -> object:
    """Return what programs with the same collectives have in common; the name if it has none."""
    if not program.collectives:
        return program.name
    parts = Counter(
        replace(one, name="", computation="", op_name=one.op_name and one.op_name.partition("/")[2])
        for one in program.collectives
    )
    return program.mesh, program.devices, frozenset(parts.items())


def of_program(
    program: Program, snapshot: Snapshot, figures: bool = True, computing: bool = False
) -> tuple[Block, ...]:
    """Return one sentence about a program's collectives, the largest moves, and figures with a table.

    computing: whether conflicts are not known yet, which make some reasons more precise.
    """
    collectives = program.collectives
    if collectives is None:
        return (unknown.unknown(unknown.no_collectives(program, snapshot)),)
    mesh = snapshot.mesh_of(program)
    devices = program.devices_on(mesh)
    blocks: list[Block] = [text(*headline(program.name, collectives, devices))]
    if mesh is not None and (snapshot.other_meshes or not mesh.axes):
        number = 1 if program.mesh is None else program.mesh + 2
        blocks.append(text(f"On {mesh_title(number, mesh)}.", quiet=True))
    if program.before_compile:
        blocks.append(text(BEFORE_COMPILE, quiet=True))
    if not collectives:
        return tuple(blocks)
    rows = traffic(collectives, networks_apart=True)
    disagreeing = causes.COMPUTING if computing else causes.conflicts(program)
    ranges = {
        _key(row): range_of_run(
            [collective for collective in collectives if _key(collective) == _key(row)], devices
        )
        for row in rows
    }
    blocks += moves(program, computing)
    by_axes = _by_axes(program.name, rows, ranges)
    blocks.append(_figures(program, collectives, rows, snapshot, by_axes) if figures else by_axes)
    if disagreeing is not None:
        blocks.append(disagreeing)
    return tuple(blocks)


def moves(
    program: Program, computing: bool = False, most: int = _MOST_REASONS, least: float = 0.0
) -> tuple[Block, ...]:
    """Return a table of the reasons for which a program sends most, with their source lines.

    least: the share of all bytes from which a reason has a row.
    """
    ranked = reasons.shared(program)
    whole = sum(row.least for row in ranked)
    shown = [row for row in ranked if row.sent is None or row.sent >= least * whole][:most]
    if not computing and all(row.reason is None for row in ranked):
        return ()
    table = Table.of(
        f"why_collectives:{program.name}",
        shown,
        {
            Column("Sent", "bytes", _OF_BUSIEST): lambda row: row.sent,
            **_of_iteration(shown, lambda row: wire_bytes_of_iteration(*row.collectives)),
            "Collectives": _alike_text,
            "Why": lambda row: _why_text(row, "computing" if computing else "unknown"),
        },
        wrap=True,
    )
    return (table, *more(len(ranked) - len(shown), "reason"))


def _alike_text(row: reasons.Shared) -> tuple[Inline, ...]:
    over = Code(_axes(row.collectives[0]))
    count = len({(part.computation, part.name) for part in row.collectives})
    runs, branch = executions_of(row.collectives), any(part.conditional for part in row.collectives)
    times = f", {_up_to(branch)}{counted(runs, 'execution')}" if runs is not None and runs != count else ""
    return (
        Strong(counted(count, row.collectives[0].op)),
        " over ",
        over,
        times,
        _elsewhere(row.sent, row.most, branch),
    )


def _up_to(branch: bool) -> str:
    return "up to " if branch else ""


def _elsewhere(sent: int | None, most: int | None, branch: bool) -> str:
    """Return what a row sends more elsewhere than the device that sends most in all; "" for none.

    branch: whether a branch of a conditional contains it, of which another one can count as taken.
    """
    where = "on another device or in another branch" if branch else "on another device"
    return f", up to {bytes_text(most)} {where}" if (most or 0) > (sent or 0) else ""


def _why_text(row: reasons.Shared, missing: str) -> tuple[Inline, ...]:
    """Return the reason, then the lines that send most: on a narrow page, a column would be cut off.

    missing: the text for a reason that is not known.
    """
    parts: list[Inline] = [row.reason or missing]
    lines, through = Counter[str](), {}
    for collective in row.collectives:
        if collective.source:
            lines[collective.source] += least_bytes(collective)
            if collective.library_source is not None:
                through[collective.source] = collective.library_source
    for source, _ in lines.most_common(_MOST_SOURCES):
        parts += [" ", Code(source)]
        if source in through:
            parts += [", through ", Code(through[source])]
    more = len(lines) - _MOST_SOURCES
    return (*parts, *([f" and {more} more"] if more > 0 else ()))


def range_text(least: int | None, most: int | None) -> str:
    """Return `7.6 MiB to 10.6 MiB`, or one of them if they are equal."""
    texts = bytes_text(least), bytes_text(most)
    return texts[0] if least == most or texts[0] == texts[1] else " to ".join(texts)


def headline(name: str, collectives: Sequence[Collective], devices: int | None = None) -> tuple[Inline, ...]:
    """Return the sum of a program's collectives in one sentence.

    Args:
      devices: the number of devices, None if unknown.
    """
    who = who_runs(name)
    if not collectives and devices == 1:
        return (f"{who} runs on one device, so it runs no collective.",)
    if not collectives:
        return (f"{who} runs no collective: devices exchange no data.",)
    # Inside of slices and between them, it is the traffic of one mesh axis, as in the head.
    collectives = [replace(collective, network=None) for collective in collectives]
    rows = traffic(collectives)
    by_axes = grouped(rows)
    parts: list[Inline] = [
        f"{who} runs {and_text([_count_text(op, collectives) for op in dict.fromkeys(r.op for r in rows)])}"
    ]
    for number, axis in enumerate(
        dict.fromkeys(axis for traffics in by_axes.values() for axis in traffics[0].mesh_axes or ())
    ):
        parts += [" over " if number == 0 else ", ", Code(axis)]
    known = [collective for collective in collectives if wire_bytes_of_run(collective) is not None]
    sent = sent_by_busiest(
        {axes: [collective for collective in known if axes_text(collective) == axes] for axes in by_axes}
    )
    total, uncounted = sum(sent.values()), len(collectives) - len(known)
    if uncounted and not total:
        parts.append(": the bytes that leave each device are unknown")
    else:
        branches = any(collective.conditional for collective in collectives)
        bound = "at least " if uncounted else _up_to(branches)
        sent_range = range_text(*range_of_run(known, devices))
        parts += [f": {bound}", Strong(sent_range), " leave each device"]
    largest = max(sent, key=sent.__getitem__)
    if total and len(sent) > 1 and by_axes[largest][0].mesh_axes:
        parts += [f", {share_text(sent[largest] / total, 0)} of it over ", Code(largest)]
    repeated = wire_bytes_of_iteration(*collectives)
    if repeated is not None:
        inside = [collective for collective in collectives if collective.executions_per_iteration is not None]
        uncounted -= len(inside)
        parts.append(
            f"; {counted(len(inside), 'collective')} in loops whose trip count is unknown: "
            f"{bytes_text(repeated)} leave each device in one iteration"
        )
    if uncounted > 0:
        parts.append(f"; {counted(uncounted, 'collective')} with unknown bytes")
    conditional = sum(collective.conditional for collective in collectives)
    if conditional:
        parts.append(
            f"; {counted(conditional, 'collective')} in branches, of which the largest count as taken"
        )
    return (*parts, ".")


def each(program: Program, collectives: Sequence[Collective]) -> Table:
    """Return a table with one row per collective."""
    executions = "How often one run of the program executes it."
    sent = {
        id(one): size
        for one, size in zip(collectives, sent_of_busiest([[c] for c in collectives]), strict=True)
    }
    why = {
        one.name: dict.fromkeys(said or "unknown" for said, *_ in reasons.of_parts(program, one))
        for one in collectives
    }
    return Table.of(
        f"collective_table:{program.name}",
        collectives,
        {
            "Op": lambda collective: (
                collective.op
                + _elsewhere(sent[id(collective)], wire_bytes_of_run(collective), collective.conditional)
            ),
            Column("On the wire", "bytes", _OF_BUSIEST): lambda collective: sent[id(collective)],
            "Mesh axes": _axes,
            **_of_iteration(collectives, wire_bytes_of_iteration),
            "Why": lambda collective: " ".join(why[collective.name]),
            "Source": lines_text,
            Column("Executions", "count", executions): lambda collective: collective.executions,
            Column("Payload", "bytes", "Bytes of one execution on one device."): lambda collective: (
                collective.payload_bytes
            ),
            "Groups": _groups_short,
            "Phase": phases_text,
            "Module": modules_text,
            "Arrays": _arrays_text,
            "Inserted by": lambda collective: "partitioner" if collective.spmd_generated else "unknown",
            "Asynchronous": lambda collective: "yes" if collective.asynchronous else "no",
            "Conditional": lambda collective: "yes" if collective.conditional else "no",
            "Name:code": lambda collective: collective.name,
        },
    )


def largest(program: Program) -> tuple[Block, ...]:
    """Return a table of the collectives with the most traffic, with the names that `explain` takes."""
    ranked = matching(program.collectives or ())
    if not ranked:
        return ()
    table = Table.of(
        f"largest_collectives:{program.name}",
        ranked[:_MOST_LISTED],
        {
            "Name:code": lambda collective: collective.name,
            Column("On the wire", "bytes"): wire_bytes_of_run,
            "Mesh axes": _axes,
            Column("Executions", "count"): lambda collective: collective.executions,
            **_of_iteration(ranked, wire_bytes_of_iteration),
            "Source": lines_text,
            "Operation": lambda collective: _operation(collective),
        },
    )
    return (table, *more(len(ranked) - _MOST_LISTED, "collective"))


def _operation(collective: Collective) -> str:
    """Return module and primitive of the operation that the collective serves."""
    operations = parse_op_name(collective.op_name)
    named = dict.fromkeys("/".join(filter(None, (each.module, each.primitive))) for each in operations)
    more = f" + {len(named) - 1} more" if len(named) > 1 else ""
    return (next(iter(named)) or "unknown") + more


def detail(collective: Collective) -> tuple[Inline, ...]:
    """Return the facts of one collective in two or three sentences."""
    runs = "an unknown number of" if collective.executions is None else f"{collective.executions:,}"
    groups = "Unknown groups of devices"
    if collective.groups is not None and collective.group_size is not None:
        groups = f"{counted(collective.groups, 'group')} of {counted(collective.group_size, 'device')}"
    up_to = _up_to(collective.conditional)
    times = f"{up_to}{runs} {'execution' if collective.executions == 1 else 'executions'}"
    sent, period = wire_bytes_of_run(collective), "in one run"
    if collective.executions_per_iteration is not None:
        repeats = counted(collective.executions_per_iteration, "execution")
        times = f"{repeats} in one iteration of those of its loops whose trip count is unknown,"
        sent, period = wire_bytes_of_iteration(collective), "in one iteration"
    modules = modules_text(collective, most=6)
    place = "" if modules == _NO_MODULE else f" in {modules}"
    idle = _idle_text(collective)
    return (
        Strong(f"{collective.op} over {_axes(collective)}"),
        f"{place}. {groups}; {times} with "
        f"{exact_bytes_text(collective.payload_bytes)} payload each; "
        f"{up_to}{exact_bytes_text(sent)} leave each {'sending ' if idle else ''}device {period}." + idle,
        *((" Groups in the text: ", Code(written), ".") if (written := collective.written_groups) else ()),
    )


def _idle_text(collective: Collective) -> str:
    """Return the number of devices that send in a permute in which some do not; "" if all do."""
    pairs = collective.source_target_pairs or ()
    own = sum(source == target for source, target in pairs)
    sources = {source for source, target in pairs if source != target}
    if sources == {device for pair in pairs for device in pair}:
        return ""
    why = f": in {counted(own, 'pair')} source and target are the same" if own else ""
    return f" Only {counted(len(sources), 'device')} send{why}."


def _source(collective: Collective) -> tuple[Inline, ...]:
    """Return the lines of the program, then that of a library through which it runs the operation."""
    line = Code(lines_text(collective))
    library = collective.library_source
    return (line,) if library is None else (line, ", through ", Code(library))


_NO_MODULE = "no module"


def cause(snapshot: Snapshot, program: Program, collective: Collective) -> Section:
    """Return the sources of the sharding behind one collective: a row per mesh axis and source."""
    # A program can be named like its phase.
    known = phases(collective)
    known = () if "unknown" in known else known
    of = dict.fromkeys((title(program.name), *([" + ".join(map(phase_text, known))] if known else ())))
    step = f"{', '.join(of)}, source line{'s' * (' and ' in lines_text(collective))} "
    blocks: list[Block] = [text(*detail(collective)), text(step, *_source(collective), ".")]
    if (said := pipelines.of_collective(program, collective.name)) is not None:
        blocks.append(text(*with_code(said)))
    why = reasons.of_parts(program, collective)
    if len(why) > 1:
        blocks.append(text("It combines several collectives:"))
        rows = (
            (f"{bytes_text(size)}: {said or 'unknown'} ", Code(line or "unknown")) for said, size, line in why
        )
        blocks.append(Listing(tuple(rows)))
    elif why and why[0][0] is not None:
        blocks.append(text(why[0][0]))
    if collective.origins:
        blocks += causes.of_origins(collective.name, collective.origins)
    elif collective.requested_by not in ("code", "autodiff") and not all(
        map(inputs_of, parts_of(collective))
    ):
        blocks.append(unknown.no_sources(program, snapshot))
    return Section(f"cause-{collective.name}", collective.name, tuple(blocks))


def of_array(array: Array, snapshot: Snapshot) -> tuple[Block, ...]:
    """Return the collectives that move one array; empty if no program contains this information."""
    if not collective_roles.looked_for(snapshot):
        return ()
    moving = collective_roles.moving(array, snapshot)
    if not moving:
        also = ""
        if array.group == "opt_state":
            also = " The optimizer updates it where it is; its parameter's gradient has the collectives."
        return (text(f"No collective is known to move this array.{also}", quiet=True),)
    table = Table.of(
        "array_collectives",
        moving,
        {
            "Program": lambda placed: title(placed.program),
            "Op": lambda placed: placed.collective.op,
            "Mesh axes": lambda placed: _axes(placed.collective),
            "Executions:count": lambda placed: placed.collective.executions,
            "Payload": lambda placed: _payload_text(placed.collective),
            "Phase": lambda placed: phases_text(placed.collective),
            "Source": lambda placed: lines_text(placed.collective),
            "Known from": lambda placed: (
                "HLO text" if placed.known_by == "followed" else "same module and size"
            ),
        },
    )
    return (Section("array-collectives", "Collectives of this array", (table,)),)


def phases(collective: Collective) -> tuple[Phase, ...]:
    """Return the phases of a collective in the order of a step; several if XLA merged operations."""
    present = {phase for part in parts_of(collective) for phase in phases_of(part.op_name)}
    return tuple(phase for phase in PHASES if phase in present)


def phases_text(collective: Collective) -> str:
    """Return the phases of a collective, such as `forward + backward`."""
    return " + ".join(map(phase_text, phases(collective)))


def modules_text(collective: Collective, most: int = 1) -> str:
    """Return the Flax modules of a collective, at most `most` of them by name."""
    operations = parse_op_name(collective.op_name)
    modules = list(dict.fromkeys(operation.module for operation in operations if operation.module))
    if not modules:
        return _NO_MODULE
    more = f" + {len(modules) - most} more" if len(modules) > most else ""
    return ", ".join(modules[:most]) + more


def matching(collectives: Sequence[Collective], axes: Iterable[str] = ()) -> list[Collective]:
    """Return the collectives over one of these mesh axes, most bytes first; of all without any."""
    axes = set(axes)
    kept = [
        collective
        for collective in collectives
        if not axes or axes & (set(collective.mesh_axes) if collective.mesh_axes else {UNKNOWN_AXES})
    ]
    rank = {id(one): (least_bytes(one), wire_bytes_of_run(one) is not None) for one in kept}
    return sorted(kept, key=lambda one: rank[id(one)], reverse=True)


def _figures(
    program: Program,
    collectives: Sequence[Collective],
    rows: Sequence[Traffic],
    snapshot: Snapshot,
    by_axes: Table,
) -> Columns:
    """Return the bytes by mesh axes, in text as a table, and those between devices if these differ."""
    of = run_of(program.name)
    mesh = snapshot.mesh_of(program)
    if mesh is not None:  # also the part of a collective that crosses slices
        rows = traffic(by_network(collectives, mesh), networks_apart=True)
    rows = [replace(row, wire_bytes_per_device=row.of_busiest) for row in rows]
    bars = Picture(
        "collective_bars",
        "Bytes by mesh axes and op",
        lambda width_px: figures.bars.collective_bars(rows, of=of, width_px=width_px),
        in_text=(by_axes,),
    )
    if mesh is None:
        return Columns(((bars,), (unknown.no_mesh(snapshot) or text(),)))
    sent = device_traffic(collectives, mesh)
    if len({*sent.sent.sum(axis=1).tolist()}) == 1:  # the bars have what each device sends
        return Columns(((bars,),))
    devices = Picture(
        "traffic_map",
        "Bytes between devices",
        lambda width_px: figures.device_grid.traffic_map(sent, mesh, of=of, width_px=width_px),
    )
    return Columns(((bars,), (devices,)))


def _by_axes(
    name: str, rows: Sequence[Traffic], ranges: Mapping[tuple[Axes, Axes, str, str | None], Range]
) -> Table:
    """Return a table by mesh axes and operation. `ranges` has the bytes that leave a device."""

    def least(row: Traffic) -> int | None:
        return ranges[_key(row)][0]

    fewest: dict[str | Column, Callable[[Traffic], Cell]] = {}
    if any(least(row) != ranges[_key(row)][1] for row in rows):
        heading = Column("Least, per device", "bytes", "Bytes on the device that sends least.")
        fewest[heading] = least
    return Table.of(
        f"traffic:{name}",
        rows,
        {
            "Mesh axes": axes_text,
            "Op": lambda row: row.op + _elsewhere(row.of_busiest, row.wire_bytes_per_device, row.conditional),
            Column("On the wire, per device", "bytes", _OF_BUSIEST): lambda row: row.of_busiest,
            **fewest,
            **_of_iteration(rows, lambda row: row.wire_bytes_per_iteration),
            "Payload of one run:bytes": lambda row: row.payload_bytes,
            "Instructions:count": lambda row: row.instructions,
            "Executions:count": lambda row: row.executions,
            "Conditional": lambda row: "yes" if row.conditional else "no",
        },
    )


def _of_iteration(
    rows: Iterable[Any], sent: Callable[[Any], int | None]
) -> dict[str | Column, Callable[[Any], Cell]]:
    """Return a column of bytes in one iteration, if a row is in a loop whose trip count is unknown."""
    if all(sent(row) is None for row in rows):
        return {}
    meaning = "Bytes that leave one device in one iteration of the loops whose trip count is unknown."
    return {Column("In one iteration", "bytes", meaning): sent}


def _count_text(op: str, collectives: Iterable[Collective]) -> str:
    of_op = [collective for collective in collectives if collective.op == op]
    if (executions := executions_of(of_op)) is None:
        return f"an unknown number of {op}s"
    return _up_to(any(collective.conditional for collective in of_op)) + counted(executions, op)


def _axes(collective: Collective) -> str:
    known = collective.mesh_axes is not None or collective.axis_parts is not None
    return axes_text(collective) if known else UNKNOWN_AXES


def _key(collective: Collective | Traffic) -> tuple[Axes, Axes, str, str | None]:
    return collective.mesh_axes, collective.axis_parts, collective.op, collective.network


def _payload_text(collective: Collective) -> str:
    others = len(collective.arrays or ()) - 1
    joined = f", with {counted(others, 'other array')}" if others > 0 else ""
    return bytes_text(collective.payload_bytes) + joined


def _arrays_text(collective: Collective) -> str:
    if collective.arrays is None:
        return "unknown"
    if len(collective.arrays) == 1:
        return collective.arrays[0]
    return counted(len(collective.arrays), "array") if collective.arrays else "none known"


def _groups_short(collective: Collective) -> str:
    """Return the number of groups and their size, such as `8 × 4`; `unknown` if one is unknown."""
    if collective.group_size is None or collective.groups is None:
        return "unknown"
    return f"{collective.groups:,} × {collective.group_size:,}"
