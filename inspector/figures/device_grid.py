"""Device × device maps: the bytes that go from each device to each other device.

The color of a cell shows its bytes. Bytes that stay on their device are grey. If there are many devices,
neighboring devices share a cell.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from inspector.compiled.device_traffic import ASSUMED, DeviceTraffic
from inspector.figures import cells, frame, labels, mesh_layout, palette, ticks
from inspector.guides.transfer import Transfer
from inspector.records.snapshot import Mesh
from inspector.text import formatting
from inspector.text.formatting import counted

MOST_DEVICES = 64  # more devices on one side share cells
_CELL_PX = (6, 34)  # the minimum and maximum height of a row
_ROWS_HEIGHT_PX = 520
_TEXT_PX = 11
_BORDER = palette.faded(frame.MIDDLE_GREY, 0.5)
_SEPARATED_PX = 12  # cells at least this large are separated by a gap
_COLORBAR_PX = 96
_FULL_NAMES_PX = 560  # a figure at least this wide has a color bar
_MOST_EXACT = 1024  # cells; of more, hover texts have short numbers


@dataclass(frozen=True)
class Grid:
    """Bytes between runs of devices: `moved` to others and `kept`, both (source runs, target runs)."""

    sources: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    moved: np.ndarray
    kept: np.ndarray

    @property
    def longest_run(self) -> int:
        return max(map(len, (*self.sources, *self.targets)), default=0)


Parts = Mapping[tuple[int, int], Sequence[Sequence[int]]]


def grid(
    sources: Sequence[int],
    targets: Sequence[int],
    rows: np.ndarray,
    columns: np.ndarray,
    sizes: np.ndarray,
    kept: np.ndarray | None = None,
    most: int = MOST_DEVICES,
) -> Grid:
    """Sum routes over runs of neighboring devices, at most `most` runs per side.

    Args:
      rows, columns: for each route, its places in `sources` and `targets`.
      sizes: for each route, its bytes; negative bytes count as 0.
      kept: for each route, whether the bytes stay on their device; False by default.
    """
    row_run, column_run = (max(-(-len(devices) // most), 1) for devices in (sources, targets))
    shape = (-(-len(sources) // row_run), -(-len(targets) // column_run))
    tables = np.zeros((2, *shape), dtype=np.int64)
    stays = np.zeros(len(sizes), dtype=np.int64) if kept is None else kept.astype(np.int64)
    np.add.at(tables, (stays, rows // row_run, columns // column_run), np.maximum(sizes, 0))
    return Grid(_runs(sources, row_run), _runs(targets, column_run), tables[0], tables[1])


def device_grid(
    grid: Grid,
    *,
    title: str,
    notes: Sequence[str],
    verb: str,
    parts: Parts | None = None,
    width_px: int = 760,
) -> go.Figure:
    """Return the map from each device (rows) to each device (columns), with the sums of each device.

    `verb` is the heading of the color bar. `parts` are the index ranges of one array, for the hover text.
    """
    rows, columns = grid.moved.shape
    row_names, column_names = [_name(r) for r in grid.sources], [_name(r) for r in grid.targets]
    sent = [_amount("sends", size) for size in grid.moved.sum(axis=1).tolist()]
    received = [_amount("gets", size) for size in grid.moved.sum(axis=0).tolist()]
    bar = bool(grid.moved.any()) and width_px >= _FULL_NAMES_PX
    left = 38 + _widest(row_names)
    right = 14 + _widest(sent) + (_COLORBAR_PX if bar else 8)
    across = max(width_px - left - right, 40) / columns
    low, high = _CELL_PX
    down = min(max(_ROWS_HEIGHT_PX / rows, low), high)
    with_received = _widest([*column_names, *received]) + 6 <= across
    if with_received:
        column_names = list(map("\n".join, zip(column_names, received, strict=True)))
    row_ticks, sent_ticks = (
        ticks.settings(*ticks.every_nth(range(rows), texts, down, upright=True))
        for texts in (row_names, sent)
    )
    row_range = [rows - 0.5, -0.5]
    return frame.plot(
        [
            *_heatmaps(grid, parts or {}, across, down, verb if bar else ""),
            frame.axis_anchor(yaxis="y2"),
        ],
        width_px,
        down * rows,
        heading=title,
        notes=[*notes, "" if bar else _scale_text(grid)],
        left=left,
        right=right,
        bottom=66 if with_received else 48,
        xaxis=frame.axis(
            range=[-0.5, columns - 0.5],
            **ticks.settings(*ticks.every_nth(range(columns), column_names, across)),
            title=frame.axis_title(f"to device{_order_text(grid.targets)}", 9),
        ),
        yaxis=frame.axis(
            range=row_range,
            **row_ticks,
            title=frame.axis_title(f"from device{_order_text(grid.sources)}", 9),
        ),
        yaxis2=frame.axis(range=row_range, overlaying="y", side="right", anchor="x", **sent_ticks),
        # A border, because cells without bytes show the page.
        shapes=[frame.rectangle(-0.5, columns - 0.5, -0.5, rows - 0.5, width=1, color=_BORDER)],
    )


def _widest(texts: Sequence[str]) -> float:
    return max(labels.width_px(text, frame.TICK_PX) for text in texts)


def _scale_text(grid: Grid) -> str:
    """Return the range of the colors in words; empty if all amounts are equal."""
    amounts = grid.moved[grid.moved > 0]
    least, most = (int(amounts.min()), int(amounts.max())) if amounts.size else (0, 0)
    if least == most:
        return ""
    return f"stronger contrast is more, from {formatting.bytes_text(least)} to {formatting.bytes_text(most)}"


def _order_text(runs: Sequence[Sequence[int]]) -> str:
    """Say so if the device ids do not increase."""
    devices = list(itertools.chain.from_iterable(runs))
    return "" if devices == sorted(devices) else ", in mesh order"


def _amount(verb: str, size: int) -> str:
    return f"{verb} {formatting.bytes_text(size)}" if size else "–"


def _heatmaps(grid: Grid, parts: Parts, across: float, down: float, verb: str) -> list[go.Heatmap]:
    """Return the cells that move and those that stay; `verb` is the heading of the color bar, if any."""
    moves = grid.moved > 0
    stays = (grid.kept > 0) & ~moves
    most = int(grid.moved.max(initial=0)) or 1
    text_on = np.array([palette.text_on(stop) for stop in palette.AMOUNTS], dtype=object)
    separator = 1.5 if min(across, down) >= _SEPARATED_PX else 0
    hover = np.full(moves.shape, "", dtype=object)
    for row, column in zip(*np.nonzero(moves | stays), strict=True):
        hover[row, column] = _hover(grid, parts, row, column)
    shared: dict[str, Any] = {
        "hover": hover,
        "zmin": 0,
        "zmax": most,
        "xgap": separator,
        "ygap": separator,
    }
    heatmaps = cells.by_text_color(
        np.where(moves, grid.moved, np.nan).astype(np.float32),
        _texts(grid.moved, moves, across, down),
        text_on[np.rint(grid.moved / most * (len(text_on) - 1)).astype(int)],
        _TEXT_PX,
        **shared,
    )
    for heatmap in heatmaps:
        palette.of_amounts(heatmap)
    if heatmaps and verb:
        texts = [formatting.bytes_text(size) for size in (most // 2, most)]
        colorbar = frame.colorbar(verb, [0, most / 2, most], ["0", *texts])
        heatmaps[0].update(showscale=True, colorbar=colorbar)
    return heatmaps + cells.by_text_color(
        np.where(stays, grid.kept, np.nan).astype(np.float32),
        _texts(grid.kept, stays, across, down),
        np.full(grid.kept.shape, palette.BLACK, dtype=object),
        _TEXT_PX,
        colorscale=palette.steps((palette.REMAINING,)),
        **shared,
    )


def _texts(sizes: np.ndarray, shown: np.ndarray, across: float, down: float) -> np.ndarray:
    """Return the bytes of each shown cell, "" if they do not fit."""
    texts = np.full(sizes.shape, "", dtype=object)
    for place in zip(*np.nonzero(shown), strict=True) if down >= _TEXT_PX + 4 else ():
        text = formatting.bytes_text(int(sizes[place]))
        if labels.width_px(text, _TEXT_PX) + 4 <= across:
            texts[place] = text
    return texts


def _hover(grid: Grid, parts: Parts, row: int, column: int) -> str:
    source, target = grid.sources[row], grid.targets[column]
    exact = grid.moved.size <= _MOST_EXACT
    size_text = formatting.exact_bytes_text if exact else formatting.bytes_text
    moved, kept = int(grid.moved[row, column]), int(grid.kept[row, column])
    lines = []
    if moved:
        lines += [f"{_devices(source)} → {_devices(target)}", f"{size_text(moved)} moves"]
    if kept:
        lines += [*([] if moved else [_devices(target)]), f"stays: {size_text(kept)}"]
    if len(source) == len(target) == 1 and (source[0], target[0]) in parts:
        lines.append(f"index {formatting.ranges_text(parts[source[0], target[0]])}")
    return frame.hover(lines)


def _devices(run: Sequence[int]) -> str:
    return f"device{'s' * (len(run) != 1)} {_name(run)}"


def _name(run: Sequence[int]) -> str:
    if len(run) > 1 and list(run) == list(range(run[0], run[0] + len(run))):
        return f"{run[0]}–{run[-1]}"
    return str(run[0]) if len(run) == 1 else f"{run[0]}, …"


def _runs(devices: Sequence[int], length: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(devices[start : start + length]) for start in range(0, len(devices), length))


def transfer_grid(transfer: Transfer, most: int = MOST_DEVICES) -> Grid:
    """Sum the routes over runs of neighboring devices, at most `most` runs per side."""
    row = {device: place for place, device in enumerate(transfer.sources)}
    column = {device: place for place, device in enumerate(transfer.targets)}
    # A file may name devices that it does not list.
    routes = [
        (row[source], column[target], size, source == target)
        for source, target, size in transfer.routes
        if source in row and target in column
    ]
    rows, columns, sizes, kept = np.array(routes, dtype=np.int64).reshape(-1, 4).T
    return grid(
        transfer.sources,
        transfer.targets,
        rows=rows,
        columns=columns,
        sizes=sizes,
        kept=kept.astype(bool),
        most=most,
    )


def transfer_map(
    transfer: Transfer,
    *,
    title: str = "Bytes from device to device",
    parts: Parts | None = None,
    width_px: int = 760,
) -> go.Figure | None:
    """Return the bytes from each device (rows) to each device (columns); None without devices.

    If there are more than `MOST_DEVICES` on one side, neighbors share a cell.
    """
    if not transfer.sources or not transfer.targets:
        return None
    runs = transfer_grid(transfer)
    note = "grey stays on its device, color moves to another device"
    if runs.longest_run > 1:
        note += f"; each cell side is {runs.longest_run} neighboring devices"
    notes = [note]
    old, new = set(transfer.sources), set(transfer.targets)
    for only, which in ((old - new, "old"), (new - old, "new")):
        if only:
            noun = "device" if len(only) == 1 else "devices"
            devices = formatting.devices_text(sorted(only))
            notes.append(f"{noun} {devices} only in the {which} layout")
    return device_grid(runs, title=title, notes=notes, verb="moved", parts=parts, width_px=width_px)


def traffic_map(
    traffic: DeviceTraffic,
    mesh: Mesh,
    *,
    of: str = "one run",
    width_px: int = 480,
    most_devices: int = MOST_DEVICES,
) -> go.Figure | None:
    """Return the bytes from each device (rows) to each device (columns), in mesh order.

    If there are more than `most_devices`, neighbors share a cell. Return None if nothing is sent.
    """
    if not traffic.sent.any() or not mesh_layout.has_devices(mesh):
        return None
    senders, receivers = np.nonzero(traffic.sent)
    runs = grid(
        mesh.devices,
        mesh.devices,
        senders * traffic.run,
        receivers * traffic.run,
        traffic.sent[senders, receivers],
        most=most_devices,
    )
    notes = [f"modelled: {ASSUMED}, every branch taken"]
    if runs.longest_run > 1:
        notes.append(f"each cell side is {runs.longest_run} neighboring devices")
    if traffic.left_out:
        total = counted(traffic.counted + traffic.left_out, "collective")
        notes.append(f"{traffic.left_out} of {total} left out: executions, devices or bytes unknown")
    return device_grid(
        runs,
        title=f"Bytes from device to device in {of}",
        notes=notes,
        verb="sent",
        width_px=width_px,
    )
