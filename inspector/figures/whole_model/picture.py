"""The picture of a whole model: tiles in the order of the data flow, what moves below them, and the machine.

Width decides the layout: groups of tiles are wrapped into lines, texts keep their size.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inspector.figures import labels, palette
from inspector.figures.whole_model import machine, tiles
from inspector.figures.whole_model.machine import INK, Canvas, Svg
from inspector.figures.whole_model.record import Move, Tile, TileGroup, WholeModel
from inspector.figures.whole_model.tiles import Scale
from inspector.hlo.op_name import PHASES, phase_text
from inspector.records.collectives import REDUCTIONS
from inspector.records.statistics import sum_known
from inspector.sharding.meshes import DCN, crossing_axes
from inspector.text.formatting import (
    and_text,
    axis_of,
    bytes_text,
    counted,
    mesh_axes_text,
    shape_text,
    some_text,
)

_BESIDE_PX = 760  # at least this wide, headings are left and the machine is right of the tiles
_HEAD_PX, _MACHINE_PX = 122, 140
_GAP_PX = 14  # between groups
# The longest side and the narrowest column, for texts; the first with which the lines are fewest.
_LONGEST_PX = (
    (150, 104),
    (136, 88),
    (120, 76),
    (108, 72),
    (92, 70),
    (78, 68),
    (64, 66),
    (52, 64),
    (44, 62),
    (36, 60),
)
_FRAME_PX = 8  # inside of a frame
_STAGES_PX = 10  # by which the boxes of stages stand out behind the first one
_NAME_PX, _TEXT_PX, _SMALL_PX, _LINE_PX = 12.5, 12, 12, 15
_MOST_RADIUS_PX, _ROW_RADIUS_PX, _LEAST_RADIUS_PX = 11.0, 6.0, 1.5
_MOST_ROWS = 5
_LANE_TILE_PX = 38
_LANE_LEAST_PX = 118
_MOST_LISTED = 4
_LEAST_SHARE = 25  # moves with less of the traffic are only counted
_LONGEST_WORD = 16
_MOST_LINES = 6  # of one text
_ONCE = "1 copy"
_DOT = "\u00a0· "
_MARGIN_PX = 4

_Kind = tuple[str, str, tuple[str, ...] | None, str | None]
_SUBJECTS = ("weights", "parts of weights", "gradients", "optimizer state", "updated weights")
_OTHERS: _Kind = ("", "others", None, None)


@dataclass
class _Column:
    """A tile with its place: its group, and the room that it needs."""

    group: TileGroup
    tile: Tile
    width: float
    size: tuple[float, float]
    left: float


@dataclass
class _Sheet:
    """The settings of all lines."""

    canvas: Canvas
    model: WholeModel
    scale: Scale
    lane_scale: Scale
    kinds: list[_Kind]
    # Bytes of the largest circle, and the least that have a circle.
    most_bytes: float
    least_bytes: float
    head: float
    width: float
    column: float


def draw(model: WholeModel, *, width_px: int = 960, titled: bool = True) -> Svg:
    """Return the picture in this width. A page that has model and mesh in its heading needs no title."""
    canvas = Canvas()
    width_px -= 2 * _MARGIN_PX
    beside = width_px >= _BESIDE_PX
    head = _HEAD_PX if beside else 0
    flow = width_px - head - (_MACHINE_PX + 16 if beside else 0)
    all_tiles = [tile for group in model.groups for tile in group.tiles]
    moves = [move for tile in all_tiles for move in tile.moves]
    lane = [move for group in model.groups for move in group.moves] + list(model.elsewhere)
    activations = [group.activation for group in model.groups if group.activation is not None]
    least = sum(move.bytes or 0 for move in (*moves, *lane)) / _LEAST_SHARE
    most, lane_most = (max((move.bytes or 0 for move in some), default=0) for some in (moves, lane))
    sheet = _Sheet(
        canvas,
        model,
        scale=Scale.of(all_tiles, _LONGEST_PX[0][0]),
        lane_scale=Scale.of(activations, _LANE_TILE_PX),
        kinds=_kinds(moves, least),
        most_bytes=max(lane_most, most * (_MOST_RADIUS_PX / _ROW_RADIUS_PX) ** 2),
        least_bytes=least,
        head=head,
        width=flow,
        column=_LONGEST_PX[0][1],
    )
    y = _heading(sheet, width_px, titled)
    top = y
    lines: list[list[_Column]] = []
    for longest, column in _LONGEST_PX:
        fitting = replace(sheet, scale=Scale.of(all_tiles, longest), column=column)
        if not lines or (len(lines) > 1 and len(_line_up(fitting)) < len(lines)):
            sheet, lines = fitting, _line_up(fitting)
    for line in lines:
        y = _draw_line(sheet, line, y) + 6
    y = _elsewhere(sheet, y)
    y = _written(sheet, 0, y + 16, head + flow, _DOT.join(_legend(sheet)))
    if beside:
        y = max(y, machine.draw(canvas, model, width_px - _MACHINE_PX, top + 10, _MACHINE_PX))
    else:
        y = machine.draw(canvas, model, 0, y + 18, width_px)
    return canvas.svg(width_px, y + 6, alternative(model), _MARGIN_PX)


def alternative(model: WholeModel) -> str:
    """Return the main statement of the picture."""
    cut = [
        f"{tile.label} over {mesh_axes_text(tile.axes)}" if tile.axes else f"{tile.label} not cut"
        for group in model.groups
        for tile in group.tiles
    ]
    return f"{model.title}: {'; '.join(cut[:6])}"


def _heading(sheet: _Sheet, width: float, titled: bool) -> float:
    """Write the title, and why JAX rejects the layout."""
    canvas, model = sheet.canvas, sheet.model
    y = 16.0 if titled else 12.0
    for line in machine.wrapped(model.title, width, 15, 2) if titled else ():
        canvas.text(0, y, line, 15, font_weight=600)
        y += 18
    for line in machine.wrapped(model.rejected, width, _NAME_PX, 2) if model.rejected else ():
        canvas.text(0, y, line, _NAME_PX, font_weight=600)
        y += _LINE_PX
    return y


def _legend(sheet: _Sheet) -> list[str]:
    model = sheet.model
    places = ", ".join(f"{axis} {at}" for axis, at in model.coordinates.items() if model.mesh.sizes[axis] > 1)
    device = model.mesh.devices[model.device]
    at = f" ({places})" if places else ""
    all_tiles = [tile for group in model.groups for tile in group.tiles]
    dtypes = {tile.dtype for tile in all_tiles}
    dense = any(tiles.is_tinted(tile, sheet.scale.size(tile)) for tile in all_tiles)
    return [
        f"Filled: device {device}{at}",
        "edge: mesh axis that cuts",
        "sheet: doubles the copies",
        *(["tint: many parts"] if dense else []),
        *([f"circle: bytes sent in {model.step}"] if sheet.most_bytes else []),
        "not to scale",
        *([dtypes.pop()] if len(dtypes) == 1 else []),
        *([model.more] if model.more else []),
    ]


def _kinds(moves: Sequence[Move], least: float) -> list[_Kind]:
    """Return the kinds of moves that have a row; those with fewer bytes share one."""
    sizes: dict[_Kind, int] = {}
    for move in moves:
        kind = _kind(move)
        sizes[kind] = sizes.get(kind, 0) + (move.bytes or 0)
    ranked = sorted(sizes, key=lambda kind: -sizes[kind])
    order = {subject: number for number, subject in enumerate(_SUBJECTS)}
    kept = [kind for kind in ranked if sizes[kind] >= least]
    kept = kept[: _MOST_ROWS if len(ranked) <= _MOST_ROWS else _MOST_ROWS - 1]
    kept.sort(key=lambda kind: (order.get(kind[0].partition(" gathered")[0], 9), -sizes[kind]))
    # The rest has a row only if it is worth one.
    return [*kept, _OTHERS] if sum(sizes[kind] for kind in ranked if kind not in kept) > least else kept


def _kind(move: Move) -> _Kind:
    return move.subject, move.op, move.axes, move.network


def _line_up(sheet: _Sheet) -> list[list[_Column]]:
    """Return the columns of each line. Groups are divided only if that saves a line."""
    whole, divided = _filled(sheet, True), _filled(sheet, False)
    return divided if len(divided) < len(whole) else whole


def _filled(sheet: _Sheet, keep_whole: bool) -> list[list[_Column]]:
    lines: list[list[_Column]] = [[]]
    x = 0.0
    *_, last = sheet.model.groups
    for group in sheet.model.groups:
        columns = [_column(sheet, group, tile) for tile in group.tiles]
        least = _LANE_LEAST_PX if (group.moves or group.activation) and group is not last else 0
        missing = least - sum(column.width for column in columns)
        if missing > 0:
            for column in columns:
                column.width += missing / len(columns)
        pad = _FRAME_PX if group.title else 0
        whole = sum(column.width for column in columns) + 2 * pad
        if keep_whole and lines[-1] and x + whole > sheet.width:
            lines.append([])
            x = 0.0
        x += pad
        for column in columns:
            if lines[-1] and x + column.width > sheet.width + 1:
                lines.append([])
                x = pad
            column.left = sheet.head + x
            lines[-1].append(column)
            x += column.width
        x += pad + _GAP_PX
    return [line for line in lines if line]


def _column(sheet: _Sheet, group: TileGroup, tile: Tile) -> _Column:
    size = sheet.scale.size(tile)
    edge = tiles.EDGE_PX if any(dimension.axes for dimension in tile.sides()[0]) else 0
    drawn = size[0] + edge + tiles.stack_px(tile) + 10
    texts = (
        max(machine.width_px(word.rstrip(), _NAME_PX, bold=True) for word in _words(tile.label)) + 6,
        machine.width_px(_shape(tile), _SMALL_PX) + 5,
        edge + min(tiles.name_px(tile.sides()[1]), _LANE_LEAST_PX) + 4,
        *(
            2 * _ROW_RADIUS_PX + 6 + machine.width_px(bytes_text(move.bytes), _TEXT_PX)
            for move in tile.moves
            if _row_of(sheet, move) in sheet.kinds
        ),
    )
    return _Column(group, tile, max(drawn, sheet.column, *texts), size, 0.0)


def _draw_line(sheet: _Sheet, line: list[_Column], y: float) -> float:
    canvas = sheet.canvas
    groups = _spans(line)
    titled = any(group.title for group, _, _ in groups)
    sections = any(column.tile.section for column in line)
    top = y + 6
    y = top + (18 if titled else 0) + (16 if sections else 0)
    stack = max(tiles.stack_px(column.tile) for column in line)
    height = max(column.size[1] for column in line)
    across = any(d.axes for column in line for d in column.tile.sides()[1])
    base = y + stack + (tiles.EDGE_PX if across else 0) + 4 + height
    _sections(sheet, line, y - 13)
    for column in line:
        edge = tiles.EDGE_PX if any(d.axes for d in column.tile.sides()[0]) else 2
        canvas.open(_tile_title(column.tile), **_of_tile(column.tile))
        texts = column.width - edge - 2, base - y
        tiles.draw(canvas, column.tile, column.left + edge, base - column.size[1], column.size, texts)
        canvas.close()
    y = _names(sheet, line, base + 14)
    y = _holdings(sheet, line, y)
    for kind in sheet.kinds:
        moves = [
            (column, move) for column in line for move in column.tile.moves if _row_of(sheet, move) == kind
        ]
        if moves:
            y = _row(sheet, moves, kind, y)
    bottom = y + 1
    for group, left, right in groups:
        if group.title and sheet.head:
            x, width = left - _FRAME_PX, right - left + 2 * _FRAME_PX - 4
            for stage in range(group.stages):  # a box behind the other for each
                beside = _STAGES_PX * stage / group.stages
                canvas.rect(x + beside, top - beside, width, bottom - top, rx=8, fill_opacity=0.03,
                            stroke=INK, stroke_opacity=0.18, pointer_events="none")  # fmt: skip
        elif group.title:
            canvas.line(left, top, right - 6, top, INK, stroke_opacity=0.4)
        if group.title:
            room = right - left if sheet.head else sheet.width - left
            canvas.text(left, top + 15, *_fitting_title(group, room), font_weight=600)
    last = {id(group): group.tiles[-1] for group, _, _ in groups}
    drawn = {id(column.tile) for column in line}
    ended = [
        (group if id(last[id(group)]) in drawn else replace(group, moves=(), activation=None), left, right)
        for group, left, right in groups
    ]
    return _lane(sheet, ended, bottom + 5)


def _fitting_title(group: TileGroup, room: float) -> tuple[str, float]:
    title = group.title
    if group.layers is not None and group.layers.axes:
        over = mesh_axes_text(group.layers.axes)
        parts = counted(group.stages, "stage") if group.stages > 1 else f"{group.layers.parts}"
        title += f" × {group.count}, cut into {parts} by {over}"
    elif group.count > 1:
        title += f" × {group.count}"
    together = ", summed" if group.count > 1 else ""
    if machine.width_px(title + together, _NAME_PX, bold=True) <= room:
        title += together
    return machine.cut(title, room, _NAME_PX, bold=True), _NAME_PX


def _spans(line: Sequence[_Column]) -> list[tuple[TileGroup, float, float]]:
    """Return the groups of a line with their left and right ends."""
    spans: list[tuple[TileGroup, float, float]] = []
    for column in line:
        if spans and spans[-1][0] is column.group:
            spans[-1] = column.group, spans[-1][1], column.left + column.width
        else:
            spans.append((column.group, column.left, column.left + column.width))
    return spans


def _sections(sheet: _Sheet, line: Sequence[_Column], y: float) -> None:
    """Write the module of tiles that follow each other above them."""
    last = None
    for number, column in enumerate(line):
        key = (id(column.group), column.tile.section)
        if column.tile.section and key != last:
            others = (c.left for c in line[number:] if c.tile.section and c.tile.section != key[1])
            room = next(others, sheet.head + sheet.width) - column.left
            text = machine.cut(column.tile.section, room - 4, _TEXT_PX)
            sheet.canvas.text(column.left, y + 9, text, _TEXT_PX, fill_opacity=0.72)
        last = key


def _names(sheet: _Sheet, line: Sequence[_Column], y: float) -> float:
    """Write names, shapes and numbers of arrays below tiles. Return the lower end."""
    columns = [(column, _label_lines(column.tile.label, column.width - 2)) for column in line]

    def wrapped(column: _Column, *details: str) -> list[str]:
        return [
            text
            for detail in details
            if detail
            for text in machine.wrapped(detail, column.width - 4, _SMALL_PX, 2)
        ]

    def lower(names: Sequence[str], details: Sequence[str]) -> float:
        return y + _LINE_PX * len(names) + 13 * len(details)

    lowest = max(lower(names, wrapped(c, _shape(c.tile), c.tile.place)) for c, names in columns)
    most = y
    for column, names in columns:
        shape, count, place = _shape(column.tile), _count(column), column.tile.place
        details = wrapped(column, shape, place)
        if count:
            enough = max(lowest, lower(names, details) + (13 if len(names) == 1 else 0))
            details = wrapped(column, shape, count, place)
            whole = [f"{shape} · {count}"]
            if lower(names, details) > enough:
                whole.append(f"{len(column.tile.paths) * column.tile.layers} of {shape}")
            for text in whole:
                if machine.width_px(text, _SMALL_PX) <= column.width - 4:
                    details = wrapped(column, text, place)
                    break
        at = y
        for name in names:
            sheet.canvas.text(column.left, at, name, _NAME_PX, font_weight=600)
            at += _LINE_PX
        for text in details:
            sheet.canvas.text(column.left, at, text, _SMALL_PX, fill_opacity=0.72)
            at += 13
        most = max(most, at)
    return most + 2


def _count(column: _Column) -> str:
    """Return the number of arrays of this shape in a tile; "" if each name is one in each layer."""
    tile, layers = column.tile, column.group.count
    arrays = len(tile.paths) * tile.layers
    return "" if arrays == layers * len(tile.label.split(", ")) else counted(arrays, "array")


def _words(label: str) -> list[str]:
    """Return the names of a tile, which stay whole in a line."""
    return [labels.middle_cut(word, _LONGEST_WORD) for word in re.findall(r".*?, |.+", label)]


def _label_lines(label: str, room: float) -> list[str]:
    """Return the names of a tile in at most three lines."""
    lines = [""]
    for word in _words(label):
        if lines[-1] and machine.width_px(f"{lines[-1]}{word}".rstrip(), _NAME_PX, bold=True) > room:
            lines.append("")
        lines[-1] += word
    lines = [line.strip() for line in lines]
    return lines if len(lines) < 4 else [*lines[:2], machine.cut(f"{lines[2]} …", room, _NAME_PX, bold=True)]


def _shape(tile: Tile) -> str:
    """Return the shape of one array in one layer: `8 experts of 256×512`."""
    shape = shape_text(tuple(dimension.size for dimension in tile.dimensions))
    return f"{tile.experts} experts of {shape}" if tile.experts > 1 else shape


def _head(sheet: _Sheet, y: float, texts: Sequence[str]) -> tuple[float, float]:
    """Write the heading of a row on its left, or above it on a narrow page.

    Return the upper end of the row, and the least lower end.
    """
    canvas = sheet.canvas
    if not sheet.head:
        canvas.text(0, y + 10, ", ".join(texts), _SMALL_PX, fill_opacity=0.85)
        return y + 14, y + 14
    at = y + 11
    for number, text in enumerate(texts):
        for line in machine.wrapped(text, sheet.head - 4, _SMALL_PX, 4):
            canvas.text(0, at, line, _SMALL_PX, font_weight=None if number else 600,
                        fill_opacity=0.72 if number else None)  # fmt: skip
            at += 13
    return y, at - 9


def _holdings(sheet: _Sheet, line: Sequence[_Column], y: float) -> float:
    """Write what each device holds of the arrays, and of their optimizer state if that has other copies."""
    everywhere = [axis.name for axis in sheet.model.mesh.axes if axis.size > 1]

    def copies(tile: Tile) -> str:
        if list(tile.copied_over) == everywhere:
            return _copies(sheet, tile.copies)
        over = f" over {mesh_axes_text(tile.copied_over)}" if tile.copied_over else ""
        return f"{_copies(sheet, tile.copies)}{over}"

    every = [tile for group in sheet.model.groups for tile in group.tiles]
    own = {id(tile): (tile.bytes, copies(tile)) for tile in every}
    y = _amounts(sheet, line, y, "each device holds", own)
    state = {id(tile): (tile.state[0], _copies(sheet, tile.state[1])) for tile in every if tile.state}
    return _amounts(sheet, line, y, "optimizer state", state) if state else y


def _amounts(
    sheet: _Sheet,
    line: Sequence[_Column],
    y: float,
    head: str,
    of_tiles: Mapping[int, tuple[int | None, str]],
) -> float:
    """Write the bytes and copies of tiles in a row; the copies of most tiles are in its heading."""
    ((shared, number),) = Counter(copies for _, copies in of_tiles.values()).most_common(1)
    shared = shared if 2 * number > len(of_tiles) else ""
    most = "" if shared == _ONCE else f"{shared} unless noted" if number < len(of_tiles) else shared
    y, lowest = _head(sheet, y, [head, *filter(None, [most if shared else ""])])
    for column in line:
        if id(column.tile) not in of_tiles:
            continue
        size, copies = of_tiles[id(column.tile)]
        at = y + 11
        sheet.canvas.text(column.left, at, bytes_text(size), _TEXT_PX)
        for text in machine.wrapped(copies, column.width - 2, _SMALL_PX, 4) if copies != shared else ():
            at += 13
            sheet.canvas.text(column.left, at, text, _SMALL_PX, fill_opacity=0.72)
        lowest = max(lowest, at + 4)
    return lowest + 3


def _copies(sheet: _Sheet, copies: int | None) -> str:
    """Return `1 copy`, `2 copies`, or `on all 8 devices`; "" if their number is unknown."""
    if copies is None or sheet.model.mesh.size < 2:
        return ""
    if copies == 1:
        return _ONCE
    return f"on all {copies} devices" if copies == sheet.model.mesh.size else f"{copies} copies"


def _row_of(sheet: _Sheet, move: Move) -> _Kind:
    kind = _kind(move)
    return kind if kind in sheet.kinds else _OTHERS


def _row(sheet: _Sheet, moves: Sequence[tuple[_Column, Move]], kind: _Kind, y: float) -> float:
    """Draw one kind of moves: a circle of its bytes below each tile."""
    every = {phase for _, move in moves for phase in move.phases}
    phases = [phase for phase in PHASES if phase in every]
    if kind == _OTHERS:
        heading = ["other moves", "of these arrays"]
    else:
        when = f", {and_text(list(map(phase_text, phases)))}" if phases and kind[0] != "gradients" else ""
        heading = [f"{kind[1]} over {_over(sheet, kind[2], kind[3])}", f"{kind[0]}{when}"]
    y, lowest = _head(sheet, y, heading)
    by_column: dict[int, tuple[_Column, list[Move]]] = {}
    for column, move in moves:
        by_column.setdefault(id(column), (column, []))[1].append(move)
    for column, of_tile in by_column.values():
        size = sum_known(move.bytes for move in of_tile)
        times = sum_known(move.executions for move in of_tile) or 0
        times *= times != len(column.tile.paths) * column.tile.layers  # the tile has their number
        title = " ".join(map(_move_title, of_tile))
        sheet.canvas.open(title, class_="move", data_collective=of_tile[0].collectives[0])
        radius = _ROW_RADIUS_PX
        _circle(sheet, column.left + radius, y + 7, _radius(sheet, size), of_tile[0].axes)
        x, room = column.left + 2 * radius + 3, column.width - 2 * radius - 5
        size_text, more = bytes_text(size), f"in {times}" if times > 1 else ""
        if more and machine.width_px(f"{size_text} {more}", _TEXT_PX) <= room:
            size_text, more = f"{size_text} {more}", ""
        sheet.canvas.text(x, y + 11, size_text, _TEXT_PX)
        if more:
            sheet.canvas.text(x, y + 24, more, _SMALL_PX, fill_opacity=0.72)
            lowest = max(lowest, y + 28)
        sheet.canvas.close()
    return max(lowest, y + 18) + 3


def _over(sheet: _Sheet, axes: tuple[str, ...] | None, network: str | None) -> str:
    inside = " inside a slice" if {*map(axis_of, axes or ())} & {*crossing_axes(sheet.model.mesh)} else ""
    return mesh_axes_text(axes) + (" between slices" if network == DCN else inside)


def _radius(sheet: _Sheet, size: int | None) -> float:
    """Return the radius of a circle whose area is proportional to these bytes."""
    return max(_MOST_RADIUS_PX * math.sqrt((size or 0) / max(sheet.most_bytes, 1)), _LEAST_RADIUS_PX)


def _circle(sheet: _Sheet, x: float, y: float, radius: float, axes: tuple[str, ...] | None) -> None:
    """Draw the bytes of a move in the colors of its mesh axes."""
    names = list(map(axis_of, axes or ()))
    for number, axis in enumerate(names or [""]):
        share = math.sqrt(1 - number / max(len(names), 1))
        fill = palette.color_of_axis(axis) if axis else INK
        sheet.canvas.add("circle", cx=x, cy=y, r=radius * share, fill=fill, data_axis=axis or None)


def _lane(sheet: _Sheet, groups: Sequence[tuple[TileGroup, float, float]], y: float) -> float:
    """Draw the activations of the groups of a line, and what moves because of them."""
    groups = [part for part in groups if part[0].activation or part[0].moves]
    if not groups:
        return y
    y, lowest = _head(sheet, y, [sheet.model.lane])
    if not sheet.head:  # each in the whole width
        for group, _, _ in groups:
            y = _lane_cell(sheet, group, (0, sheet.width), y)[0]
        return y
    ends = [*(left - _GAP_PX for _, left, _ in groups[1:]), sheet.head + sheet.width]
    middle = y + 11 + _LANE_TILE_PX / 2
    at = sheet.head
    for (group, left, _), end in zip(groups, ends, strict=True):
        below, stop = _lane_cell(sheet, group, (left, end), y)
        lowest = max(lowest, below)
        sheet.canvas.line(at, middle, max(left - 4, at), middle, INK, stroke_opacity=0.35, stroke_width=1.5)
        at = stop
    end = max(at, min(groups[-1][2], ends[-1]))
    sheet.canvas.line(at, middle, end, middle, INK, stroke_opacity=0.35, stroke_width=1.5)
    path = f"M{end:.1f} {middle - 4:.1f}l7 4l-7 4"
    sheet.canvas.add("path", None, d=path, fill="none", stroke=INK, stroke_opacity=0.5)
    return lowest


def _lane_cell(sheet: _Sheet, group: TileGroup, ends: tuple[float, float], y: float) -> tuple[float, float]:
    """Draw the activations of one group. Return their lower end, and that of the tile."""
    left, right = ends
    middle = y + 11 + _LANE_TILE_PX / 2
    tile = group.activation
    x, at, stop = left, middle + 8 if tile is not None or sheet.head else y, left
    if tile is not None:
        size = sheet.lane_scale.size(tile)
        edge = tiles.EDGE_PX if any(d.axes for d in tile.sides()[0]) else 2
        sheet.canvas.open(_tile_title(tile), **_of_tile(tile))
        room = right - x - edge, middle + size[1] / 2 - y + 6
        tiles.draw(sheet.canvas, tile, x + edge, middle - size[1] / 2, size, room)
        sheet.canvas.close()
        x = stop = x + edge + size[0] + tiles.stack_px(tile) + 8
        copies = f", {tile.copies} copies over {mesh_axes_text(tile.copied_over)}" if tile.copied_over else ""
        tile_text = f"{tile.label}: {_shape(tile)}, {bytes_text(tile.bytes)} on each device{copies}"
        if right - x < _LANE_LEAST_PX:
            x, at = left, middle + _LANE_TILE_PX / 2 + 14
        else:
            at = middle + 17
        at = _written(sheet, x, at, right - x, tile_text)
    at = _listed(sheet, group.moves, x, at, right - x)
    return max(at, middle + _LANE_TILE_PX / 2 + 4 if tile is not None else at), stop


def _listed(sheet: _Sheet, moves: Sequence[Move], x: float, y: float, room: float) -> float:
    """Draw the largest moves below each other, and the sum of the others. Return their lower end."""
    least = sheet.least_bytes
    shown = [move for move in moves[:_MOST_LISTED] if move.bytes is None or move.bytes >= least]
    for move in shown:
        y = _draw_lane_move(sheet, move, x, y + 1, room)
    rest = moves[len(shown) :]
    size = sum(move.bytes or 0 for move in rest)
    if rest and (size >= least or any(move.bytes is None for move in rest)):
        total = bytes_text(sum_known(move.bytes for move in rest))
        rest_text = f"{counted(len(rest), 'smaller move')}, total {total}"
        y = _written(sheet, x + 2 * _MOST_RADIUS_PX + 5, y + 11, room, rest_text) - 9
    return y


def _draw_lane_move(sheet: _Sheet, move: Move, x: float, y: float, room: float) -> float:
    radius = _radius(sheet, move.bytes)
    sheet.canvas.open(_move_title(move), class_="move", data_collective=move.collectives[0])
    _circle(sheet, x + _MOST_RADIUS_PX, y + max(radius, 6), radius, move.axes)
    operations = f"in {move.executions} {move.op}s" if (move.executions or 0) > 1 else move.op
    amount = bytes_text(move.bytes)
    if move.bytes is None and move.of_iteration is not None:
        amount, operations = bytes_text(move.of_iteration), f"in each iteration: {move.op}"
    elif move.bytes is None:
        amount = "unknown bytes:"
    statement = f"{amount} {operations} over {_over(sheet, move.axes, move.network)}"
    x, room = x + 2 * _MOST_RADIUS_PX + 5, room - 2 * _MOST_RADIUS_PX - 5
    lower = _written(sheet, x, y + 10, room, statement, quiet=False)
    lower = _written(sheet, x, lower, room, _because(move))
    sheet.canvas.close()
    return max(lower - 9, y + 2 * radius + 1)


def _because(move: Move) -> str:
    """Return why activations move, in short."""
    when = f"{and_text([phase_text(phase) for phase in move.phases])}: " if move.phases else ""
    if move.because:
        sums = "partial sums of " if move.op in REDUCTIONS else "for "
        return f"{when}{sums}products with {some_text(move.because)}"
    return f"{when}{(move.reason or 'the cause is unknown').partition(': ')[0]}"


def _elsewhere(sheet: _Sheet, y: float) -> float:
    folded = [
        move
        for group in sheet.model.groups
        for tile in group.tiles
        for move in tile.moves
        if _row_of(sheet, move) not in sheet.kinds
    ]
    moves = sorted((*sheet.model.elsewhere, *folded), key=lambda move: -(move.bytes or 0))
    small = sum(move.bytes or 0 for move in moves) < sheet.least_bytes
    if not moves or (small and all(move.bytes is not None for move in moves)):
        return y
    start, lowest = _head(sheet, y, ["other moves"])
    at = _listed(sheet, moves, sheet.head + 8, start, sheet.width - 16)
    return max(at + 4, lowest)


def _written(sheet: _Sheet, x: float, y: float, room: float, text: str, quiet: bool = True) -> float:
    for line in machine.wrapped(text, max(room, 80), _SMALL_PX if quiet else _TEXT_PX, _MOST_LINES):
        sheet.canvas.text(x, y, line, _SMALL_PX if quiet else _TEXT_PX, fill_opacity=0.72 if quiet else None)
        y += 13.5
    return y


def _of_tile(tile: Tile) -> dict[str, str]:
    """Return the attributes by which a page knows a tile."""
    return {"class_": "tile", "data_path": tile.paths[0], "data_cuts": tiles.cuts_text(tile)}


def _tile_title(tile: Tile) -> str:
    paths = ", ".join(tile.paths[:3]) + (f" and {len(tile.paths) - 3} more" if len(tile.paths) > 3 else "")
    cuts = [
        f"{d.name or f'dimension {n}'} of {d.size} ÷ {d.parts} over {mesh_axes_text(d.axes)}"
        for n, d in enumerate(tile.dimensions)
        if d.axes
    ]
    return f"{paths}: {shape_text(tile.shape)} {tile.dtype}; {'; '.join(cuts) or 'not cut'}"


def _move_title(move: Move) -> str:
    names = ", ".join(move.collectives[:2]) + (" …" if len(move.collectives) > 2 else "")
    times = f", {counted(move.executions, 'execution')}" if move.executions is not None else ""
    what = f"{move.op} over {mesh_axes_text(move.axes)}: {bytes_text(move.bytes)}{times}"
    once = ", ".join(move.once[:2]) + (f" and {len(move.once) - 2} more" if len(move.once) > 2 else "")
    if once:
        once = f" Not gathered again for the backward pass: {once}."
    return f"{what} ({names}). {move.reason or ''}{once}"
