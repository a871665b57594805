"""The mesh, or the machine: devices in their places, and those that the selected one exchanges data with."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from inspector import figures
from inspector.figures import labels
from inspector.figures.palette import color_of_axis
from inspector.figures.whole_model.record import WholeModel, along_axes, coordinates
from inspector.records.snapshot import Mesh
from inspector.sharding.meshes import crossing_axes, slices_of
from inspector.text.formatting import and_text, counted, some_text
from inspector.text.printable import one_line

INK = "currentColor"  # the text color of the page, light or dark
# On dark cells, texts have the color of the page.
_STYLE = (
    "<style>.whole-model{text-rendering:geometricPrecision}"
    ".whole-model .on{fill:var(--st-background-color,var(--ground,Canvas))}</style>"
)

_BOLD = 1.08  # the width of a bold text over that of a normal one


def width_px(text: str, size: float, bold: bool = False) -> float:
    """Return the width of a text in pixels in Arial; other fonts of pages and reports are narrower."""
    return labels.arial_px(text, size) * (_BOLD if bold else 1)


def cut(text: str, room: float, size: float, bold: bool = False) -> str:
    """Cut the end of a text to this room."""
    if width_px(text, size, bold) <= room:
        return text
    while text and width_px(f"{text}…", size, bold) > room:
        text = text[:-1]
    return f"{text}…"


def wrapped(text: str, room: float, size: float, most_lines: int) -> list[str]:
    """Wrap a text at its spaces to lines that have this room; what exceeds `most_lines` is cut."""
    lines = labels.wrapped_px(text, room, size)
    kept = [cut(line, room, size) for line in lines[:most_lines]]
    if len(lines) > most_lines:
        kept[-1] = cut(f"{lines[most_lines - 1]} {lines[most_lines]}", room, size)
    return kept


def number(value: float) -> str:
    """Return a length in pixels, or an opacity, with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Svg:
    """A drawing as SVG, its size in pixels, and its main statement in words."""

    text: str
    width: float
    height: float
    alternative: str


class Canvas:
    """The elements of a drawing, in the order in which they are painted."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def add(self, name: str, content: str | None = None, **attributes: object) -> None:
        """Add an element. `_` in the name of an attribute is written as `-`; None leaves it out."""
        written = "".join(
            f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
            for key, value in attributes.items()
            if value is not None
        )
        end = "/>" if content is None else f">{content}</{name}>"
        self._parts.append(f"<{name}{written}{end}")

    def open(self, title: str | None = None, **attributes: object) -> None:
        """Begin a group, whose title is shown while the pointer is over it."""
        self.add("g", "", **attributes)
        self._parts[-1] = self._parts[-1].removesuffix("</g>")
        if title:
            self._parts.append(f"<title>{escape(one_line(title))}</title>")

    def close(self) -> None:
        """End a group."""
        self._parts.append("</g>")

    def rect(self, x: float, y: float, width: float, height: float, **attributes: object) -> None:
        """Add a rectangle."""
        self.add("rect", None, x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), **attributes)

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str, **attributes: object) -> None:
        """Add a line."""
        self.add("line", None, x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **attributes)

    def text(self, x: float, y: float, text: str, size: float = 11, **attributes: object) -> None:
        """Add a text that begins at x on the line y."""
        content = escape(one_line(text))
        self.add("text", content, x=x, y=y, font_size=size, **attributes)

    def svg(self, width: float, height: float, label: str, margin: float = 0) -> Svg:
        """Return the drawing, with a margin on the left and on the right."""
        width += 2 * margin
        wide, high = number(width), number(height)
        text = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="whole-model" role="img" '
            f'aria-label="{_value(label)}" viewBox="{number(-margin)} 0 {wide} {high}" '
            f'width="{wide}" height="{high}" '
            f'font-family="inherit" fill="{INK}">{_STYLE}{"".join(self._parts)}</svg>'
        )
        return Svg(text, width, height, label)


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else escape(one_line(str(value)), quote=True)


_CELL_PX = (9.0, 24.0)
_MOST_CELLS = 8  # along one side of a grid
_MOST_GRIDS = 4
_GAP_PX = 18
_TEXT_PX = 12
_MOST_LINES = 8  # of one text


def draw(canvas: Canvas, model: WholeModel, x: float, y: float, width: float) -> float:
    """Draw it below y, and return its lower end."""
    mesh = model.mesh
    grids, heading, notes = _grids(mesh)
    y = _lines(canvas, x, y, width, [heading], weight=600)
    y = _lines(canvas, x, y, width, notes, quiet=True) + 6
    partners = along_axes(mesh, model.device)
    chosen = _chosen(
        range(len(grids)), _MOST_GRIDS, next((n for n, g in enumerate(grids) if model.device in g), 0)
    )
    columns = max(len(_folded(grids[n], model.device)[1]) for n in chosen if n is not None)
    cell = min(max(width / max(columns, 1), _CELL_PX[0]), _CELL_PX[1])
    slices = slices_of(mesh)
    left, lowest = x, y
    between: tuple[tuple[float, float, float, float], int | None] | None = None
    for number in chosen:
        if number is None:
            canvas.text(left, y + cell, "…")
            left += _GAP_PX
            continue
        rows, across = _folded(grids[number], model.device)
        wide, high = len(across) * cell, len(rows) * cell
        if left > x and left + wide > x + width + 1:
            left, y = x, lowest + _GAP_PX
        slice_number = None if slices is None else int(slices[grids[number].max()])
        if between is not None and slice_number != between[1]:
            _dcn(canvas, between[0], (left, y, wide, high))
        between = (left, y, wide, high), slice_number
        if len(grids) > 1:
            canvas.rect(
                left - 3, y - 3, wide + 4, high + 4, rx=5, fill="none", stroke=INK, stroke_opacity=0.3
            )
        _cells(canvas, model, grids[number], (rows, across), (left, y, cell), partners)
        left += wide + _GAP_PX
        lowest = max(lowest, y + high)
    return _below(canvas, model, x, lowest + 16, width, partners)


def _grids(mesh: Mesh) -> tuple[list[np.ndarray], str, list[str]]:
    """Return grids of positions in the mesh, −1 for none, a heading and notes."""
    crossing = crossing_axes(mesh)
    crosses = f"{and_text(crossing)} {'cross' if len(crossing) > 1 else 'crosses'} the data center network"
    notes = [crosses] if crossing else []
    panels = figures.chip_panels.panels_of(mesh) if len(set(mesh.devices)) == mesh.size else None
    if panels is not None:
        return list(panels.cells), panels.heading, [*panels.notes, *notes]
    positions, slices = np.arange(mesh.size), slices_of(mesh)
    if slices is not None:
        parts = [positions[slices == number] for number in range(int(slices.max()) + 1)]
        return [_as_grid(part, mesh) for part in parts], f"{len(parts)} slices", notes
    heading = f"Mesh of {counted(mesh.size, 'device')}"
    sizes = [axis.size for axis in mesh.axes if axis.size > 1]
    if len(sizes) < 3:
        return [_as_grid(positions, mesh)], heading, notes
    return list(positions.reshape(-1, *sizes[-2:])), heading, notes


def _as_grid(positions: np.ndarray, mesh: Mesh) -> np.ndarray:
    """Return positions in rows along the last mesh axis; a single axis is wrapped."""
    last = next((axis.size for axis in reversed(mesh.axes) if axis.size > 1), 1)
    if last >= len(positions) or len(positions) % last:
        last = max(4, math.isqrt(len(positions)))
    filled = np.append(positions, np.full(-len(positions) % last, -1))
    return filled.reshape(-1, min(last, len(filled)))


def _chosen(numbers: Sequence[int], most: int, wanted: int) -> list[int | None]:
    """Return at most this many numbers, also the wanted and the last; None if some are left out."""
    if len(numbers) <= most:
        return list(numbers)
    first = max(most - 3, 1)
    kept = sorted({*numbers[:first], wanted, numbers[-1]})
    result: list[int | None] = []
    for number in kept:
        if result and result[-1] is not None and number - result[-1] > 1:
            result.append(None)
        result.append(number)
    return result


def _folded(grid: np.ndarray, device: int) -> tuple[list[int | None], list[int | None]]:
    """Return the rows and the columns that are drawn."""
    at = np.argwhere(grid == device)
    row, column = (int(at[0][0]), int(at[0][1])) if len(at) else (0, 0)
    return (
        _chosen(range(grid.shape[0]), _MOST_CELLS, row),
        _chosen(range(grid.shape[1]), _MOST_CELLS, column),
    )


def _cells(
    canvas: Canvas,
    model: WholeModel,
    grid: np.ndarray,
    drawn: tuple[list[int | None], list[int | None]],
    place: tuple[float, float, float],
    partners: dict[str, list[int]],
) -> None:
    left, top, cell = place
    axis_of = {position: axis for axis, positions in partners.items() for position in positions}
    for down, row in enumerate(drawn[0]):
        for across, column in enumerate(drawn[1]):
            x, y = left + across * cell, top + down * cell
            if row is None or column is None:
                canvas.text(x + cell / 2, y + cell / 2 + 2, "·", 10, text_anchor="middle", fill_opacity=0.6)
                continue
            position = int(grid[row, column])
            if position < 0:
                continue
            axis, mine = axis_of.get(position), position == model.device
            places = ", ".join(f"{name} {at}" for name, at in coordinates(model.mesh, position).items())
            device = model.mesh.devices[position]
            canvas.open(f"device {device}: {places}", class_="device", data_position=position, data_axis=axis)
            fill, opacity = color_of_axis(axis) if axis else INK, 0.72 if mine else 0.5 if axis else 0.1
            canvas.rect(x, y, cell - 2, cell - 2, rx=2, fill=fill, fill_opacity=opacity)
            if cell >= 16 and len(str(device)) * 5.5 < cell:
                canvas.text(x + (cell - 2) / 2, y + cell / 2 + 2, str(device), 9, text_anchor="middle",
                            class_="on" if mine else None)  # fmt: skip
            canvas.close()


def _dcn(
    canvas: Canvas, before: tuple[float, float, float, float], after: tuple[float, float, float, float]
) -> None:
    """Draw the data center network between two slices."""
    (x1, y1, wide, high), (x2, y2, _, other_high) = before, after
    ends = x1 + wide + 1, y1 + high / 2, x2 - 3, y2 + other_high / 2
    if y2 > y1:
        left = x1 + min(wide / 2, 20)  # so that the text is within the width of the machine
        ends = left, y1 + high + 1, left, y2 - 3
        canvas.text(ends[0] + 6, y2 - 6, "data center network", 10, fill_opacity=0.72)
    canvas.line(*ends, INK, stroke_width=2, stroke_dasharray="3 2", stroke_opacity=0.7)


def _below(
    canvas: Canvas,
    model: WholeModel,
    x: float,
    y: float,
    width: float,
    partners: dict[str, list[int]],
) -> float:
    mesh, device = model.mesh, model.mesh.devices[model.device]
    for axis, others in partners.items():
        silent, size = model.partners is not None and not model.partners.get(axis), mesh.sizes[axis]
        exchanges = "exchanges nothing with" if silent else "can exchange data with"
        title = f"Device {device} {exchanges} {some_text([str(mesh.devices[at]) for at in others])}."
        canvas.open(title, class_="axis", data_axis=axis)
        canvas.rect(x, y - 8, 9, 9, fill=color_of_axis(axis), rx=2)
        y = _lines(canvas, x + 14, y, width - 14, [f"{axis} {size}{', sends nothing' * silent}"], weight=600)
        canvas.close()
    y += 8
    return _lines(canvas, x, y, width, [*filter(None, (model.held, model.missing)), *model.facts], quiet=True)


def _lines(
    canvas: Canvas,
    x: float,
    y: float,
    width: float,
    texts: Sequence[str],
    weight: int | None = None,
    quiet: bool = False,
) -> float:
    """Write texts, wrapped, and return the line after the last one."""
    for text in texts:
        for line in wrapped(text, width, _TEXT_PX, _MOST_LINES):
            canvas.text(x, y, line, _TEXT_PX, font_weight=weight, fill_opacity=0.72 if quiet else None)
            y += 14
    return y
