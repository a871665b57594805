"""Memory, time and traffic of several layouts in one figure: a column per layout, a row of bars per measure.

Small maps of the mesh below the bars show what each device holds of some arrays. Texts follow the color of
the theme, and signs and words say what is better, so nothing depends on a color.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from inspector.compare.amounts import BOUND, MEASURED, Amount
from inspector.compare.question import REJECTED, SIGNS, mark
from inspector.compare.questions.measures import Measure
from inspector.core import sharding
from inspector.core.formatting import UNKNOWN_AXES, and_text, mesh_text, spec_text
from inspector.core.snapshot import Array, Mesh
from inspector.figures import cells, frame, labels, memory_bars, mesh_layout, palette
from inspector.figures.block_map import why_no_map
from inspector.figures.lattice import Text
from inspector.figures.verdict_bars import fill_of_part
from inspector.machines.prediction.memory import capacity_of

_NOTES = {
    "memory": "",
    "time": "work, and communication that it does not hide",
    "traffic": "bytes that a device sends",
    "flops": "of the program of a step",
}
_WORDS_PX = 108  # columns at least this wide have room for `✓ −25% better`
_INTERVAL_PX = 132  # and for the interval of a prediction
_LONGEST_INTERVAL = 1.3  # its drawn end, in times of the highest bar
_BAR_PX = 72  # the height of the highest bar
_BAR_SHARE, _BAR_WIDTH_PX = 0.72, 280  # of a column's width, and at most
_UNKNOWN_PX = 26
_LINE_PX = 14.5  # of text of `frame.TICK_PX`
_NAME_PX = 13
_MAP_PX, _MAP_WIDTH_PX = 44, 400  # at most
_ROW_GAP_PX = 12
_SMALLEST_LABELLED_PX = 13  # lower segments have no text
_SIDE_PX = 4
_LEFT_PX = 184  # of the headings and legends at the left of the columns
_NARROW_PX = 96  # columns would be narrower than this beside them: they are above the bars
_ENTRY_PX = 19
_SMALLEST_PX = 0.5  # lower segments have no entry in the legend
_TIME_FILLS = {MEASURED: palette.Fill(palette.COMPUTE), BOUND: palette.Fill(palette.UNKNOWN)}


@dataclass(frozen=True)
class Column:
    """One layout: its name, its meshes, and the arrays of the maps; None for an array that it lacks."""

    name: str
    mesh: Mesh | None
    arrays: tuple[Array | None, ...] = ()
    other_meshes: tuple[Mesh, ...] = ()

    def mesh_of(self, array: Array | None) -> Mesh | None:
        """Return the mesh that the spec of an array refers to."""
        if array is None or array.mesh is None:
            return self.mesh
        return self.other_meshes[array.mesh]


@dataclass
class _Sheet:
    """What is drawn so far, from the top down. `y` is in pixels below the top of the plot."""

    columns: Sequence[Column]
    baseline: int
    width_px: float
    left: float
    each: float
    y: float = 0.0
    is_cut: bool = False  # whether an interval goes on above the end of its scale
    traces: list[Any] = field(default_factory=list)
    axes: list[tuple[str, float, float, tuple[float, float]]] = field(default_factory=list)
    legends: list[tuple[str, float]] = field(default_factory=list)
    bands: list[tuple[float, float]] = field(default_factory=list)
    annotations: list[tuple[float | None, dict[str, Any]]] = field(default_factory=list)
    shapes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def beside(self) -> bool:
        """Whether headings and legends are at the left of the columns."""
        return self.left == _LEFT_PX

    @property
    def bar_share(self) -> float:
        return min(_BAR_SHARE, _BAR_WIDTH_PX / self.each)

    def heading(self, title: Sequence[str], notes: Sequence[str]) -> float:
        """Add the lines of a title with notes: left of the columns, or above them on a narrow page.

        Return the height that it needs at the left; 0 if it is above.
        """
        said = [note for note in notes if note]
        if self.beside:
            most = labels.fitting(_LEFT_PX - 10, frame.TICK_PX)
            lines = [line for note in said for line in labels.wrapped(note, most, 3)]
        else:
            lines = frame.note_lines(["; ".join(said)], self.width_px)
        small = f'<span style="font-size:{frame.TICK_PX}px">'
        written = [
            *(f"<b>{labels.escape(line)}</b>" for line in title),
            *(f"{small}{labels.escape(line)}</span>" for line in lines),
        ]
        self.annotations.append((self.y, {"text": "<br>".join(written), "x": None}))
        height = 1.3 * frame.NOTE_PX * len(written) + 4
        self.y += 0 if self.beside else height
        return height if self.beside else 0

    def axis(self, height: float, units: tuple[float, float]) -> str:
        """Add a vertical axis of this height with these units at its ends, and return its number."""
        name = str(len(self.axes) + 1) if self.axes else ""
        self.axes.append((name, self.y, self.y + height, units))
        self.bands.append((self.y, self.y + height))
        self.y += height
        return name


def glance(
    measures: Sequence[Measure],
    columns: Sequence[Column],
    baseline: int = 0,
    paths: Sequence[str] = (),
    *,
    width_px: int = 960,
) -> go.Figure:
    """Return the figure.

    Args:
      columns: as many as the amounts of each measure. Each has an array per path.
      baseline: the position of the column that the others are compared with.
      paths: the arrays of the maps.
    """
    beside = (width_px - _LEFT_PX - _SIDE_PX) / len(columns) >= _NARROW_PX
    left = _LEFT_PX if beside else _SIDE_PX
    column_px = (width_px - left - _SIDE_PX) / len(columns)
    sheet = _Sheet(columns, baseline, width_px, left, column_px)
    _draw_names(sheet)
    for measure in measures:
        _draw_measure(sheet, measure)
    for number, path in enumerate(paths):
        _draw_maps(sheet, number, path)
    titles = [measure.title for measure in measures]
    return _figure(sheet, and_text([titles[0], *map(str.lower, titles[1:])]))


def limit_note(measure: Measure) -> str:
    """Return the memory of a device of the chip, and how far the bars are below it; empty if unknown."""
    if measure.kind != "memory" or measure.chip is None:
        return ""
    capacity = capacity_of(measure.chip)
    said = f"{measure.chip.title} has {measure.text(capacity)}"
    if _draws_limit(measure):
        return f"{said}, the thick line"
    highest = _highest(measure)
    if not highest:
        return said
    times = capacity / highest
    return f"{said}, {times:,.{0 if times >= 10 else 1}f} times the highest bar"


def stage_note(measure: Measure) -> str:
    """Return what all amounts are based on; empty if the layouts differ in that."""
    stages = {amount.stage for amount in measure.amounts if amount.stage}
    return stages.pop() if len(stages) == 1 else ""


def _highest(measure: Measure) -> float:
    """Return the end of the scale. An interval that is much longer than its bar is cut off there."""
    bars = max(max(amount.known, amount.value or 0) for amount in measure.amounts)
    intervals = max(amount.high or 0 for amount in measure.amounts)
    return max(bars, min(intervals, _LONGEST_INTERVAL * bars) if bars else intervals)


def _draws_limit(measure: Measure) -> bool:
    limits = [amount.limit for amount in measure.amounts if amount.limit is not None]
    return bool(limits) and _highest(measure) >= memory_bars.LEAST_SHARE * min(limits)


def _draw_names(sheet: _Sheet) -> None:
    most = labels.fitting(sheet.each - 8, _NAME_PX)
    small = labels.fitting(sheet.each - 8, frame.TICK_PX)
    lines = 0
    for place, column in enumerate(sheet.columns):
        name = labels.wrapped(column.name, most, 2)
        written = [f"<b>{labels.escape(line)}</b>" for line in name]
        mesh = labels.wrapped(mesh_text(column.mesh, max_axes_of_size_1=0), small, 2)
        written += [
            f'<span style="font-size:{frame.TICK_PX}px">{labels.escape(line)}</span>' for line in mesh
        ]
        settings = {"text": "<br>".join(written), "x": place, "font": {"size": _NAME_PX}}
        sheet.annotations.append((0, settings))
        lines = max(lines, len(written))
    sheet.y += lines * _NAME_PX * 1.3 + 2
    sheet.bands.append((0, sheet.y))
    sheet.y += _ROW_GAP_PX


def _draw_measure(sheet: _Sheet, measure: Measure) -> None:
    bars = measure.amounts
    stage, drawn = stage_note(measure), _draws_limit(measure)
    notes = (_NOTES[measure.kind], stage, limit_note(measure))
    head_px = sheet.heading([measure.title], notes)
    top = scale = _highest(measure)
    if drawn:
        top = max([top, *(bar.limit for bar in bars if bar.limit is not None)])
    written = [_label(measure, place, sheet.each) for place in range(len(bars))]
    below = [] if stage else [_stage_lines(bar, sheet.each) for bar in bars]
    above_px = _LINE_PX * max(map(len, written)) + 5
    below_px = _LINE_PX * max(map(len, below), default=0) + (7 if below else 1)
    names = [name for name in measure.part_names if _is_seen(measure, name, (top or 1) / _BAR_PX)]
    number = len(sheet.legends) + 1
    legend = "legend" if number == 1 else f"legend{number}"
    sheet.legends.append((legend, sheet.y + head_px))
    bar_px: float = _BAR_PX
    if sheet.beside:
        bar_px = max(bar_px, head_px + _ENTRY_PX * len(names) - above_px - below_px)
    elif names:
        # Plotly limits a legend beside the plot to half of its width.
        sheet.y += frame.legend_px(names, sheet.each * len(bars) / 2) + 6
    per_px = (top or 1) / bar_px
    axis = sheet.axis(below_px + bar_px + above_px, (-below_px * per_px, (bar_px + above_px) * per_px))
    yaxis = f"y{axis}"
    for name in names:
        sheet.traces.append(_bar(sheet, measure, name, per_px, yaxis, legend))
    _draw_intervals(sheet, bars, scale, yaxis)
    _draw_lines(sheet, measure, yaxis, drawn)
    # All labels are at the same height, where no bar and no line reaches.
    texts = ["<br>".join(lines) for lines in written]
    _text(sheet, [(bar_px + above_px) * per_px] * len(bars), texts, "bottom center", yaxis)
    if below:
        texts = ["<br>".join(map(labels.escape, lines)) for lines in below]
        _text(sheet, [-3 * per_px] * len(bars), texts, "bottom center", yaxis)
    for place, bar in enumerate(bars):
        if bar.value is None:
            _draw_unknown(sheet, place, bar, per_px, yaxis)
    sheet.y += _ROW_GAP_PX


def _label(measure: Measure, place: int, column_px: float) -> list[str]:
    """Return the lines above a bar, escaped: the amount, its interval, and how it compares."""
    amount = measure.amounts[place]
    value = amount.value if amount.value is not None else amount.known or None
    lines = []
    if value is not None:
        sign = "≥ " if amount.at_least or amount.value is None else ""
        lines.append(f"<b>{labels.escape(sign + measure.text(value))}</b>")
    if amount.low is not None and amount.high is not None and column_px >= _INTERVAL_PX:
        low, high = measure.text(amount.low), measure.text(amount.high)
        lines.append(labels.escape(f"{low} – {high}"))
    if amount.fits is False:
        lines.append("✗ does not fit")
    answer = measure.answers[place]
    said = mark(answer, column_px >= _WORDS_PX) or answer.verdict * (answer.verdict in ("baseline", "equal"))
    said *= len(measure.answers) > 1
    return [*lines, *([labels.escape(said)] if said else [])]


def _stage_lines(amount: Amount, column_px: float) -> list[str]:
    return (
        labels.wrapped(amount.stage, labels.fitting(column_px - 6, frame.TICK_PX), 4) if amount.stage else []
    )


def _bar(
    sheet: _Sheet,
    measure: Measure,
    name: str,
    per_px: float,
    yaxis: str,
    legend: str,
) -> go.Bar:
    """Return the part of this name in all columns."""
    fill = _fill(measure, name)
    places, sizes, bases, texts, hovers = [], [], [], [], []
    room = sheet.each * sheet.bar_share - 6
    for place, amount in enumerate(measure.amounts):
        base = 0.0
        for part in amount.parts:
            if part.name == name and part.amount > 0:
                said = measure.text(part.amount)
                fits = (
                    text
                    for text in (f"{name} {said}", said)
                    if part.amount / per_px >= _SMALLEST_LABELLED_PX
                    and labels.width_px(text, frame.TICK_PX) <= room
                )
                places.append(place)
                sizes.append(part.amount)
                bases.append(base)
                texts.append(labels.escape(next(fits, "")))
                hovers.append(_hover(sheet, measure, place, f"{name}: {said}"))
            base += part.amount
    return go.Bar(
        name=labels.escape(name),
        x=places,
        y=sizes,
        base=bases,
        width=sheet.bar_share,
        marker=fill.marker,
        text=None if fill.hatch else texts,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        constraintext="none",
        textfont={"size": frame.TICK_PX, "color": palette.text_on(fill.color)},
        customdata=hovers,
        hovertemplate=frame.HOVER_TEXT,
        yaxis=yaxis,
        legend=legend,
        showlegend=True,
    )


def _fill(measure: Measure, name: str) -> palette.Fill:
    """Return the fill of a part, which is one of time, of mesh axes, or of memory."""
    part = next(part for amount in measure.amounts for part in amount.parts if part.name == name)
    if part.of_step is not None:
        return fill_of_part(part.of_step)
    if part.axes:
        return palette.fill_of_axes(None if name == UNKNOWN_AXES else name.split(" × "))
    if measure.kind == "time":
        return _TIME_FILLS.get(name, palette.NOT_KNOWN)
    color = memory_bars.COLORS.get(name, palette.UNKNOWN)
    return palette.Fill(color, "/" if color == palette.UNKNOWN else "")


def _hover(sheet: _Sheet, measure: Measure, place: int, said: str) -> str:
    amount = measure.amounts[place]
    lines = [sheet.columns[place].name, said]
    if amount.value is not None:
        lines.append(f"{measure.title}: {measure.text(amount.value)}")
    if amount.low is not None and amount.high is not None:
        lines.append(f"80% interval: {measure.text(amount.low)} to {measure.text(amount.high)}")
    if amount.stage:
        lines.append(amount.stage)
    if measure.answers[place].remark:
        lines.append(measure.answers[place].remark)
    return frame.hover(lines)


def _draw_intervals(sheet: _Sheet, bars: Sequence[Amount], scale: float, yaxis: str) -> None:
    """Draw the intervals up to the end of the scale. One that goes on has an arrow there."""
    known = [
        (place, bar.value, bar.low, bar.high)
        for place, bar in enumerate(bars)
        if bar.value is not None and bar.low is not None and bar.high is not None
    ]
    if not known:
        return
    # At the right of the bar, where its colors do not hide the line.
    right = sheet.bar_share / 2 + 6 / sheet.each
    settings: dict[str, Any] = {
        "mode": "markers",
        "hoverinfo": "skip",
        "showlegend": False,
        "yaxis": yaxis,
    }
    line = {"width": 2, "color": frame.MIDDLE_GREY}
    sheet.traces.append(
        go.Scatter(
            x=[place + right for place, *_ in known],
            y=[value for _, value, _, _ in known],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [min(high, scale) - value for _, value, _, high in known],
                "arrayminus": [value - low for _, value, low, _ in known],
                "color": frame.MIDDLE_GREY,
                "thickness": 2,
                "width": 4,
            },
            marker={"symbol": "line-ew", "size": 8, "line": line},
            **settings,
        )
    )
    if cut := [place + right for place, _, _, high in known if high > scale]:
        arrow = {"symbol": "triangle-up", "size": 13, "color": frame.MIDDLE_GREY}
        sheet.traces.append(go.Scatter(x=cut, y=[scale] * len(cut), marker=arrow, **settings))
        sheet.is_cut = True


def _is_seen(measure: Measure, name: str, per_px: float) -> bool:
    return any(
        part.name == name and part.amount >= _SMALLEST_PX * per_px
        for amount in measure.amounts
        for part in amount.parts
    )


def _draw_lines(sheet: _Sheet, measure: Measure, yaxis: str, limit: bool) -> None:
    """Draw the ground of the bars, the level of the baseline, and the memory of the chip."""
    axes = {"xref": "x", "yref": yaxis}
    last = len(sheet.columns) - 0.5
    axes |= {"layer": "below"}
    sheet.shapes.append(frame.line(-0.5, last, 0, 0) | axes)
    level = measure.amounts[sheet.baseline].value
    if level is not None and len(sheet.columns) > 1:
        for place, amount in enumerate(measure.amounts):
            if amount.value is not None:  # otherwise it would cross the word unknown
                ends = place - 0.5, place + 0.5, level, level
                sheet.shapes.append(frame.line(*ends, dash="dot") | axes)
    if limit:
        for place, amount in enumerate(measure.amounts):
            if amount.limit is not None:
                ends = place - 0.5, place + 0.5, amount.limit, amount.limit
                sheet.shapes.append(frame.line(*ends, width=3) | axes | {"layer": "above"})


def _draw_unknown(sheet: _Sheet, place: int, amount: Amount, per_px: float, yaxis: str) -> None:
    """Draw an empty box with a dashed border above the known parts."""
    low, half = amount.known, sheet.bar_share / 2
    high = low + _UNKNOWN_PX * per_px
    if low == 0:
        middle = {"xref": "x", "yref": yaxis, "xanchor": "center", "yanchor": "middle"}
        font = {"size": frame.TICK_PX}
        text = "rejected" if amount.unknown == REJECTED else "unknown"
        box = frame.annotation(text, place, high / 2, **middle, font=font)
        sheet.annotations.append((None, box))
    sheet.shapes.append(
        {
            "type": "rect",
            **{"xref": "x", "yref": yaxis, "x0": place - half, "x1": place + half},
            **{"y0": low, "y1": high},
            "line": {"color": frame.MIDDLE_GREY, "width": 1, "dash": "dash"},
        }
    )


def _text(sheet: _Sheet, y: Sequence[float], text: Sequence[str], position: str, yaxis: str) -> None:
    """Add an escaped text in each column."""
    sheet.traces.append(
        go.Scatter(
            x=list(range(len(text))),
            y=list(y),
            mode="text",
            text=list(text),
            textposition=position,
            textfont={"size": frame.TICK_PX},
            cliponaxis=False,
            hoverinfo="skip",
            showlegend=False,
            yaxis=yaxis,
        )
    )


def _draw_maps(sheet: _Sheet, number: int, path: str) -> None:
    """Draw the meshes, colored by the blocks of an array, with its PartitionSpec below each of them."""
    notes = ("what each device holds; same color, same block",) if number == 0 else ()
    room = labels.fitting((_LEFT_PX if sheet.beside else sheet.width_px) - 12, frame.NOTE_PX)
    # Lines end after a slash, if there is one.
    title = labels.wrapped(path.replace("/", "/ "), max(room, 8), 3 if sheet.beside else 1)
    head_px = sheet.heading([line.replace("/ ", "/") for line in title], notes)
    wide = min(sheet.each - 24, _MAP_WIDTH_PX)
    arrays = [column.arrays[number] for column in sheet.columns]
    maps = [
        _map(array, column.mesh_of(array), wide, sheet.y)
        for array, column in zip(arrays, sheet.columns, strict=True)
    ]
    tallest = max(height for _, height in maps)
    most = labels.fitting(sheet.each - 8, frame.TICK_PX)
    captions = [
        draw if isinstance(draw, str) else spec_text(None if array is None else array.spec)
        for (draw, _), array in zip(maps, arrays, strict=True)
    ]
    said = [labels.wrapped(caption, most, 2) for caption in captions]
    top, below_px = sheet.y, _LINE_PX * max(map(len, said)) + 7
    bottom = top + max(tallest + below_px, head_px)
    name = sheet.axis(bottom - top, (bottom, top))
    on_map = {"xaxis": "x2", "yaxis": f"y{name}"}
    for place, (draw, _) in enumerate(maps):
        if not isinstance(draw, str):
            left = (place + 0.5) * sheet.each - wide / 2
            for trace in draw:
                trace.update(x=[left + x for x in trace.x], **on_map)
            sheet.traces += draw
    sheet.traces.append(
        cells.texts(
            [((place + 0.5) * sheet.each, top + height + 3) for place, (_, height) in enumerate(maps)],
            ["<br>".join(map(labels.escape, lines)) for lines in said],
            "bottom center",
            frame.TICK_PX,
            **on_map,
            showlegend=False,
        )
    )
    sheet.y += _ROW_GAP_PX


def _map(array: Array | None, mesh: Mesh | None, width: float, top: float) -> tuple[list[Any] | str, float]:
    """Return the traces of a map that begins at 0, or why there is none, and its height in pixels."""
    if array is None:
        return "no such array", 0
    if mesh is None or why_no_map(array, mesh) is not None:
        return "placement unknown", 0
    placement = sharding.place_array(array, mesh)
    assert placement is not None  # `why_no_map` has just placed it
    grid = mesh_layout.mesh_grid(mesh, [placement.block])
    laid, _, high, _ = mesh_layout.layout(grid, mesh, int(width) + mesh_layout.SIDES_PX)
    height = max(min(high, _MAP_PX), laid.rows.gaps_px + 2 * len(laid.rows.sizes))
    wide = max(width, laid.columns.gaps_px + len(laid.columns.sizes))
    downs = [(top + start, top + stop) for start, stop in laid.rows.edges(height)]
    held = [int(placement.block[place]) for place in grid.position.reshape(-1).tolist()]
    none = Text(("",) * len(held), frame.TICK_PX)
    across = laid.columns.edges(wide)
    colors = palette.colors_of_blocks(placement.block, mesh)
    return cells.heatmaps(laid, across, downs, held, colors, none, None), height


def _figure(sheet: _Sheet, heading: str) -> go.Figure:
    height = sheet.y
    plot_px = sheet.each * len(sheet.columns)
    right = sheet.width_px - sheet.left - plot_px
    layout: dict[str, Any] = {}
    for name, top, bottom, units in sheet.axes:
        layout[f"yaxis{name}"] = frame.axis(
            domain=[max(1 - bottom / height, 0), 1 - top / height],
            range=list(units),
            showticklabels=False,
            fixedrange=True,
            anchor="x2" if units[0] > units[1] else "x",
        )
    for name, top in sheet.legends:
        layout[name] = {
            **frame.LEGEND_BELOW,
            "bgcolor": frame.TRANSPARENT,
            # Beside the bars, the entries are in the order of the stack, the top one first.
            **(
                {"orientation": "v", "traceorder": "reversed"}
                if sheet.beside
                else {"orientation": "h", "traceorder": "normal"}
            ),
            **{"xref": "container", "x": 0, "y": 1 - top / height},
        }
    first_y = sheet.axes[0][0] if sheet.axes else ""
    layout["xaxis"] = frame.axis(
        range=[-0.5, len(sheet.columns) - 0.5],
        showticklabels=False,
        fixedrange=True,
        anchor=f"y{first_y}",
    )
    if any(units[0] > units[1] for *_, units in sheet.axes):
        last = sheet.axes[-1][0]
        layout["xaxis2"] = frame.axis(
            range=[0, plot_px], showticklabels=False, fixedrange=True, anchor=f"y{last}"
        )
    several = len(sheet.columns) > 1
    # Headings above the bars cross the columns, so the shade leaves them out.
    bands = [(0, height)] if sheet.beside else sheet.bands
    shades = [
        {
            "type": "rect",
            **{"xref": "x", "yref": "paper", "y0": 1 - bottom / height, "y1": 1 - top / height},
            **{"x0": sheet.baseline - 0.49, "x1": sheet.baseline + 0.49},
            "fillcolor": palette.faded(frame.MIDDLE_GREY, 0.12),
            "line": {"width": 0},
            "layer": "below",
        }
        for top, bottom in (bands if several else ())
    ]
    said = ["less is better in every row"] if several else []
    if several:
        said.append("shaded column and dotted lines: the baseline")
    if several and sheet.each < _WORDS_PX:
        said.append(", ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items()))
    if sheet.is_cut:
        said.append("an arrow at an interval: it goes on above the scale")
    return frame.plot(
        sheet.traces,
        sheet.width_px,
        height,
        heading=heading,
        notes=["; ".join(said)],
        left=sheet.left,
        right=max(right, 0),
        bottom=2,
        pad=0,
        # The left margin has room for the legends, whose texts a browser can draw wider.
        margin_autoexpand=False,
        annotations=[
            settings if top is None else _annotation(sheet, top, settings)
            for top, settings in sheet.annotations
        ],
        shapes=[*shades, *sheet.shapes],
        barmode="overlay",
        showlegend=True,
        **layout,
    )


def _annotation(sheet: _Sheet, top: float, settings: dict[str, Any]) -> dict[str, Any]:
    """Return a text `top` pixels below the top of the plot: in a column, or at the left edge."""
    text, x = settings["text"], settings["x"]
    places: dict[str, Any] = {"yref": "paper", "yanchor": "top"}
    if x is None:
        places |= {"xref": "paper", "xanchor": "left", "xshift": 2 - sheet.left}
    else:
        places |= {"xref": "x", "xanchor": "center", "align": "center"}
    if "font" in settings:
        places["font"] = settings["font"]
    return frame.annotation(text, x or 0, 1 - top / sheet.y, **places)
