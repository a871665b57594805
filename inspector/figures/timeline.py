"""The simulated step as a timeline: a row for each resource, and a bar with the seconds by reason."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from inspector.figures import frame, labels, palette, ticks
from inspector.hlo.op_name import BACKWARD, phases_of
from inspector.machines.hardware import si_text
from inspector.prediction.simulation import CORE, MEASURED, Simulated, Span
from inspector.prediction.step_parts import critical_path
from inspector.records.snapshot import Program, Schedule
from inspector.text.formatting import bytes_text, mesh_axes_text, seconds_text
from inspector.text.program_names import noun

_ROW_PX = 34
_BAR = 0.72  # of a row
_LEFT_PX, _RIGHT_PX, _BOTTOM_PX = 92, 12, 24
_MOST_NAME = 12  # characters of a row's name
# Spans below this share of a period are about a pixel wide, and a step can have 10,000 of them. Neighbours
# are one bar, of at most `_MOST_MERGED` such shares.
_LEAST_SHARE = 1 / 600
_MOST_MERGED = 4
_PALE = 0.45  # opacity of operations not on the critical path
WHOLE_STEP = "whole step"
_KINDS = (  # of spans; those of communication are followed by their mesh axes
    "matrix products",
    "other operations",
    "waiting for copies",
    "waiting for ",
    "communication over ",
    "copies",
    "more iterations",
)
_GREYS = {
    "matrix products": palette.Fill(palette.neutrals(3)[0]),
    "other operations": palette.Fill(palette.neutrals(3)[2]),
    "waiting for copies": palette.Fill(palette.neutrals(3)[1], "x"),
    "copies": palette.Fill(palette.neutrals(3)[1]),
    "more iterations": palette.Fill(palette.REPLICATED),
}


def windows(
    simulated: Simulated, program: Program, measured: Sequence[Span] = ()
) -> dict[str, tuple[float, float]]:
    """Return the periods to look at: the whole step, then one iteration of each long loop.

    The longest loop of forward and the one of backward are named after their operations.

    Args:
      measured: the spans of a profile, which the whole step has too.
    """
    assert program.schedule is not None
    end = max((span.end for span in (*simulated.spans, *measured)), default=0.0)
    by_name = program.schedule.by_name
    chosen = {WHOLE_STEP: (0.0, end)}
    loops = sorted(
        (span for span in simulated.spans if span.basis == "loop"),
        key=lambda span: span.start - span.end,
    )
    for span in loops[:2]:
        operation = by_name[span.computation].operations[span.position]
        inside = [span for span in simulated.spans if span.computation in (operation.runs or ())]
        if not inside:
            continue
        runs = (inner for name in operation.runs or () for inner in by_name[name].operations)
        phases = {phase for inner in runs for phase in phases_of(inner.op_name)}
        title = ", backward" if phases & BACKWARD else ", forward" if "forward" in phases else ""
        start = min(span.start for span in inside if span.resource == CORE)
        chosen.setdefault(f"one iteration{title}", (start, span.start))
    return dict(sorted(chosen.items(), key=lambda item: (item[1][0], -item[1][1])))


def timeline(
    simulated: Simulated,
    program: Program,
    window: tuple[float, float] | None = None,
    measured: Sequence[Span] = (),
    *,
    width_px: int = 960,
) -> go.Figure | None:
    """Return what occupies each resource over time; None if nothing does.

    The critical path is opaque, the rest is pale. Spans that are too short to be seen are one bar with their
    neighbours: outside of `windows` and of the given one, those of a pixel if the whole step is shown.

    Args:
      window: start and end in seconds of a period whose spans are drawn as if only it was shown.
      measured: the spans of a profile, in a separate row.
    """
    if not simulated.spans or program.schedule is None:
        return None
    known = windows(simulated, program, measured)
    _, length = known[WHOLE_STEP]
    if length <= 0:
        return None
    spans_of_both = (*simulated.spans, *measured)
    resources = _resources(spans_of_both)
    bars = _bars(spans_of_both, [*known.values(), *([window] if window else [])])
    traces = list(_traces(bars, resources, simulated, program))
    height = len(resources) * _ROW_PX
    return frame.plot(
        traces,
        width_px,
        height,
        heading=f"Timeline of {noun(program.name)}, simulated{' and measured' * bool(measured)}",
        notes=[
            f"{seconds_text(length)}, with the first iteration of each loop in detail",
            f"opaque: {'measured, and ' * bool(measured)}the critical path",
        ],
        left=_LEFT_PX,
        right=_RIGHT_PX,
        **frame.legend_below([trace.name for trace in traces], width_px, _BOTTOM_PX, height),
        barmode="overlay",
        xaxis=frame.axis(
            range=[0, length],
            minallowed=0,
            maxallowed=length,
            ticksuffix="s",
            tickformat="~s",
            showgrid=True,
            fixedrange=False,
        ),
        yaxis=frame.axis(
            fixedrange=True,
            range=[len(resources) - 0.5, -0.5],
            **ticks.settings(list(resources.values()), [labels.cut(name, _MOST_NAME) for name in resources]),
        ),
    )


def _traces(
    bars: Sequence[Sequence[Span]], resources: Mapping[str, int], simulated: Simulated, program: Program
) -> Iterator[go.Bar]:
    """Yield the bars of each kind and mesh axes, in the order of the legend."""
    assert program.schedule is not None
    critical = {id(simulated.spans[number]) for number in critical_path(simulated.spans)}
    by_kind: dict[tuple[str, ...], list[Sequence[Span]]] = {}
    for spans in bars:
        kind = _kind(_longest(spans), program.schedule)
        by_kind.setdefault((kind, *_axes(_longest(spans), kind)), []).append(spans)
    for (kind, *axes), own in sorted(by_kind.items(), key=lambda item: _KINDS.index(item[0][0])):
        fill = fill_of(kind, axes)
        opaque = [spans[0].resource == MEASURED or id(_longest(spans)) in critical for spans in own]
        hovers = [_hover(spans, program.schedule, program, critical) for spans in own]
        yield go.Bar(
            orientation="h",
            name=kind + mesh_axes_text(axes) if axes else kind,
            base=[spans[0].start for spans in own],
            x=[spans[-1].end - spans[0].start for spans in own],
            y=[resources[spans[0].resource] for spans in own],
            width=_BAR,
            marker={
                "color": fill.color,
                "opacity": [1.0 if shown else _PALE for shown in opaque],
                "line": {"width": 0.5, "color": frame.MIDDLE_GREY},
                "pattern": fill.marker["pattern"],
            },
            customdata=[[_picked(spans), hover] for spans, hover in zip(own, hovers, strict=True)],
            hovertemplate="%{customdata[1]}<extra></extra>",
        )


def _bars(spans: Sequence[Span], periods: Sequence[tuple[float, float]]) -> list[list[Span]]:
    """Return the spans of each bar: one span, or short ones of a resource next to each other.

    Short is what would be about a pixel wide in the shortest of the periods that it is in.
    """
    lanes: list[list[Span]] = []
    growing: dict[str, tuple[float, list[Span]]] = {}
    for span in sorted(spans, key=lambda span: span.start):
        least = _LEAST_SHARE * min(
            end - start for start, end in periods if span.start <= end and span.end >= start
        )
        before, bar = growing.pop(span.resource, (0.0, []))
        if span.end - span.start < least:
            joins = (
                before == least
                and span.start - bar[-1].end < least
                and span.end - bar[0].start <= _MOST_MERGED * least
            )
            if joins:
                bar.append(span)
            else:
                lanes.append(bar := [span])
            growing[span.resource] = (least, bar)
        else:
            lanes.append([span])
    return lanes


def _longest(spans: Sequence[Span]) -> Span:
    return max(spans, key=lambda span: span.end - span.start)


def _picked(spans: Sequence[Span]) -> str | list[float]:
    """Return the data of a click on a bar: the name of its operation, or the period of several."""
    return name_of(spans[0]) if len(spans) == 1 else [spans[0].start, spans[-1].end]


def name_of(span: Span) -> str:
    """Return the name of a span's operation: its computation and position."""
    return f"{span.computation} {span.position}"


def _resources(spans: Sequence[Span]) -> dict[str, int]:
    """Return the row of each resource: the core first, then copies, then mesh axes."""
    names = dict.fromkeys(span.resource for span in spans)
    order = [name for name in (MEASURED, CORE, "copies", "host") if name in names]
    order += [name for name in names if name not in order]
    return {name: row for row, name in enumerate(order)}


def _kind(span: Span, schedule: Schedule) -> str:
    if span.basis == "loop":
        return "more iterations"
    if span.basis == "wait":
        return "waiting for " if span.awaited else "waiting for copies"
    if span.resource in (CORE, MEASURED):
        flops = schedule.operation(span.computation, span.position).flops
        return "matrix products" if flops else "other operations"
    return "copies" if span.resource in ("copies", "host") else "communication over "


def _axes(span: Span, kind: str) -> tuple[str, ...]:
    """Return the mesh axes of a span of communication; () for others."""
    if kind == "communication over ":
        return (span.resource.partition(" ")[0],)
    return span.awaited if kind == "waiting for " else ()


def fill_of(kind: str, axes: Sequence[str] = ()) -> palette.Fill:
    """Return the fill of spans: that of their mesh axes, or a grey."""
    if axes:
        fill = palette.fill_of_axes(axes)
        return fill if kind == "communication over " else palette.Fill(fill.color, "x")
    return _GREYS[kind]


def _hover(spans: Sequence[Span], schedule: Schedule, program: Program, critical: Collection[int]) -> str:
    span = _longest(spans)
    operation = schedule.operation(span.computation, span.position)
    lines = [f"{operation.name}: {seconds_text(span.end - span.start)}, {_BASIS[span.basis]}"]
    if len(spans) > 1:
        together = seconds_text(sum(span.end - span.start for span in spans))
        return frame.hover([f"{len(spans):,} operations, {together} together", f"the longest is {lines[0]}"])
    if operation.op_name:
        lines.append(labels.middle_cut(operation.op_name, 80))
    if operation.source:
        lines.append(operation.source)
    if operation.collective is not None and program.collectives:
        collective = program.collectives[operation.collective]
        lines.append(
            f"{collective.op} over {mesh_axes_text(collective.mesh_axes)}, "
            f"{bytes_text(collective.payload_bytes)}"
        )
    if operation.flops:
        lines.append(f"{si_text(operation.flops, 'FLOP')} in matrix products")
    if id(span) in critical:
        lines.append("on the critical path")
    return frame.hover(lines)


_BASIS = {
    "compiler": "from the compiler's cycles",
    "roofline": "from FLOPs and bytes",
    "link": "from the links",
    "wait": "the core waits",
    "loop": "all further iterations",
    "profile": "measured",
    "nothing": "unknown",
}


def trace_events(
    simulated: Simulated, program: Program, measured: Sequence[Span] = ()
) -> list[dict[str, Any]]:
    """Return the spans as events of the Chrome trace format, which Perfetto opens. Times are in µs.

    Args:
      measured: the spans of a profile, in a separate row.
    """
    assert program.schedule is not None
    rows = _resources((*simulated.spans, *measured))
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": row, "name": "thread_name", "args": {"name": name}}
        for name, row in rows.items()
    ]
    critical = critical_path(simulated.spans)
    for number, span in enumerate((*simulated.spans, *measured)):
        operation = program.schedule.operation(span.computation, span.position)
        events.append(
            {
                "ph": "X",
                "pid": 0,
                "tid": rows[span.resource],
                "name": operation.name if span.basis != "wait" else f"wait for {operation.name}",
                "cat": _kind(span, program.schedule),
                "ts": span.start * 1e6,
                "dur": (span.end - span.start) * 1e6,
                "args": {
                    "op_name": operation.op_name,
                    "source": operation.source,
                    "basis": _BASIS[span.basis],
                    "critical": number in critical,
                },
            }
        )
    return events
