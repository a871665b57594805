"""The state as an icicle: the tree of paths, sized by bytes, colored by PartitionSpec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.folding import fold
from inspector.core.snapshot import Array, Mesh, Spec
from inspector.figures import frame, labels, palette, path_tree
from inspector.figures.palette import SpecStyle
from inspector.figures.path_tree import Node

# Inner nodes; white reads on it, and it stands off a white and a black page.
_INNER = "#5B6472"
_LEAF_PX = 48  # room for three lines
_VISIBLE_SHARE = 0.01
_LINE_PX = 16
_HEIGHT_PX = (160, 900)
_LEGEND_LINE_PX = 22
_TEXT_PX = 12

MOST_LEAVES = 150  # more cannot be told apart, and a browser needs long for them

Size = Literal["bytes", "bytes_per_device"]


@dataclass(frozen=True)
class Sector:
    """One rectangle of the icicle. `parent` is an id, "" for a root; `spec` is of leaves only."""

    id: str
    parent: str
    node: Node
    value: int


def sectors(
    arrays: Iterable[Array], size: Size = "bytes", most_leaves: int = MOST_LEAVES
) -> tuple[Sector, ...]:
    """The rectangles of folded arrays, each parent before its children.

    An array whose size is not known has the value 0, and the sums leave it out. Of more than
    `most_leaves` folds the smaller ones are joined in each parent.
    """
    folds = fold(arrays)
    ranked = sorted((getattr(one, size) or 0 for one in folds), reverse=True)
    least = ranked[most_leaves - 1] if len(ranked) > most_leaves else 0
    found: list[Sector] = []

    def add(node: Node, parent: str) -> int:
        name, place = str(len(found)), len(found)
        found.append(Sector(name, parent, node, 0))
        value = (
            sum(add(child, name) for child in _joined(node.children, size, least))
            if node.children
            else _known(node, size)
        )
        found[place] = Sector(name, parent, node, value)
        return value

    add(path_tree.rooted(path_tree.grow(folds), "all"), "")
    return tuple(found)


def _joined(nodes: Sequence[Node], size: Size, least: int) -> list[Node]:
    """The nodes of at least a size, and one node for all smaller ones if there are several."""
    small = [node for node in nodes if _known(node, size) < least]
    if len(small) < 2:
        return list(nodes)
    kept = [node for node in nodes if _known(node, size) >= least]
    count = sum(node.arrays for node in small)
    return [*kept, path_tree.without_children(small, f"{count:,} smaller")]


def _known(node: Node, size: Size) -> int:
    """The sum of the sizes under a node that are known."""
    if node.children:
        return sum(_known(child, size) for child in node.children)
    return getattr(node, size) or 0


def depth(found: Iterable[Sector]) -> int:
    """How many rectangles stand side by side at the deepest place."""
    below: dict[str, int] = {}
    for sector in found:
        below[sector.id] = below.get(sector.parent, 0) + 1
    return max(below.values(), default=0)


def spec_tree(
    arrays: Iterable[Array],
    mesh: Mesh | None,
    styles: Mapping[Spec | None, SpecStyle] | None = None,
    *,
    size: Size = "bytes",
    width_px: int = 1000,
) -> go.Figure | None:
    """The icicle of these arrays; None if no array has a known size. Selecting gives `id`.

    The `id` of a leaf is the path of its first array, of an inner rectangle `tree:` and its number.

    Args:
      arrays: of the groups to show.
      styles: the colors of PartitionSpecs, from `palette.styles_of_specs` of all arrays.
      size: what the area shows: bytes in all, or bytes on each device.
    """
    arrays = tuple(arrays)
    found = sectors(arrays, size)
    if not any(sector.value for sector in found):
        return None
    styles = styles or palette.styles_of_specs(arrays, mesh)
    looks = [_look(sector.node, styles) for sector in found]
    names = {sector.id: _public_id(sector) for sector in found}
    total = max(found[0].value, 1)
    column_px = (width_px - 4) / depth(found) - 10
    visible = sum(
        sector.node.fold is not None and sector.value / total >= _VISIBLE_SHARE for sector in found
    )
    low, high = _HEIGHT_PX
    height = min(max(visible * _LEAF_PX, low), high)
    used = {palette.without_trailing(array.spec) for array in arrays}
    legend = [(spec, look) for spec, look in styles.items() if spec in used]
    lines = _legend_lines(legend, width_px)
    notes = frame.note_lines(_notes(arrays, size), width_px)
    top, bottom = frame.heading_px(len(notes)), 10 + _LEGEND_LINE_PX * lines
    return frame.figure(
        [
            go.Icicle(
                ids=[names[sector.id] for sector in found],
                parents=[names.get(sector.parent, "") for sector in found],
                labels=[_name(sector.node) for sector in found],
                values=[sector.value for sector in found],
                branchvalues="total",
                text=[
                    _text(sector, size, column_px, sector.value / total * height)
                    for sector in found
                ],
                texttemplate="%{text}",
                textfont={
                    "size": _TEXT_PX,
                    "color": [palette.text_on(look.color) for look in looks],
                },
                textposition="middle left",
                customdata=[_hover(sector.node) for sector in found],
                hovertemplate="%{customdata}<extra></extra>",
                marker={
                    "colors": [look.color for look in looks],
                    "pattern": {
                        "shape": [look.hatch for look in looks],
                        "fillmode": "overlay",
                        "size": 9,
                        "solidity": 0.25,
                    },
                    "line": {"width": 1, "color": frame.TRANSPARENT},
                },
                tiling={"orientation": "h", "pad": 2},
                pathbar={"visible": True, "thickness": 18},
                leaf={"opacity": 1},  # Plotly's 0.7 would change colors and contrast
                sort=False,
            ),
            *(_legend_entry(spec, look) for spec, look in legend),
        ],
        width_px,
        top + height + bottom,
        title=frame.title(_TITLES[size], width_px),
        margin={"l": 2, "r": 2, "t": top, "b": bottom},
        # Text that does not fit is hidden instead of shrunk to a pixel.
        uniformtext={"minsize": 9, "mode": "hide"},
        annotations=[frame.notes_above(notes, 2)],
        xaxis={"visible": False, "fixedrange": True},
        yaxis={"visible": False, "fixedrange": True},
        showlegend=True,
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 0,
            "yanchor": "top",
            "itemclick": False,
            "itemdoubleclick": False,
            "font": {"size": frame.NOTE_PX},
        },
    )


_TITLES = {
    "bytes": "PartitionSpecs by bytes",
    "bytes_per_device": "PartitionSpecs by bytes per device",
}


def _public_id(sector: Sector) -> str:
    one = sector.node.fold
    return one.first.path if one is not None else f"tree:{sector.id}"


def _look(node: Node, styles: Mapping[Spec | None, SpecStyle]) -> SpecStyle:
    if node.fold is None:
        return SpecStyle(_INNER)
    return styles[palette.without_trailing(node.fold.first.spec)]


def _name(node: Node) -> str:
    count = f" ×{node.fold.count}" if node.fold is not None and node.fold.count > 1 else ""
    return f"{labels.escape(node.name)}{count}"


def _text(sector: Sector, size: Size, column_px: float, height_px: float) -> str:
    """What stands in a rectangle: its name, its axes and spec if it is a leaf, its bytes.

    Of the forms with as many lines as there is room for, the first that needs no cutting; what is too
    long is cut, and stands whole in the hover.
    """
    known = getattr(sector.node, size)
    amount = formatting.bytes_text(known if known is not None else sector.value)
    most = max(int(column_px / labels.width_px("x", _TEXT_PX)), 1)
    name = sector.node.name
    if sector.node.fold is None:
        forms = [[name, amount], [name]]
    else:
        one, count = sector.node.fold.first, sector.node.fold.count
        name += f" ×{count}" if count > 1 else ""
        spec = formatting.spec_text(one.spec)
        logical = formatting.logical_text(one.logical_axes)
        arrow = f"{logical} → {spec}" if logical else spec
        forms = [
            [name, arrow, amount],
            [name, spec, amount],
            [f"{name} · {amount}", arrow],
            [name, arrow],
            [name, spec],
            [f"{name} · {arrow} · {amount}"],
            [f"{name} · {arrow}"],
            [f"{name} · {spec}"],
            [name],
        ]
    room = max(int(height_px / _LINE_PX), 1)
    forms = [form for form in forms if len(form) <= room]
    lines = next((form for form in forms if max(map(len, form)) <= most), forms[-1])
    return "<br>".join(labels.escape(labels.middle_cut(line, most)) for line in lines)


def _hover(node: Node) -> str:
    rows = [f"<b>{labels.escape(node.fold.path if node.fold else node.path)}</b>"]
    if node.fold is not None:
        one = node.fold.first
        times = f"{node.fold.count} × " if node.fold.count > 1 else ""
        rows.append(labels.escape(f"{times}{formatting.shape_text(one.shape)} {one.dtype}"))
        logical = formatting.logical_text(one.logical_axes)
        if logical:
            rows.append(labels.escape(f"logical axes {logical}"))
        rows.append(labels.escape(formatting.spec_text(one.spec)))
        if one.replicas is not None:
            rows.append(f"each element on {one.replicas} device{'s' * (one.replicas != 1)}")
    else:
        rows.append(f"{node.arrays:,} array{'s' * (node.arrays != 1)}")
    rows.append(f"{formatting.exact_bytes_text(node.bytes)} in all")
    rows.append(f"{formatting.exact_bytes_text(node.bytes_per_device)} on each device")
    return "<br>".join(rows)


def _notes(arrays: tuple[Array, ...], size: Size) -> list[str]:
    unknown = sum(getattr(array, size) is None for array in arrays)
    total = sum(getattr(array, size) or 0 for array in arrays)
    where = "in all, without copies" if size == "bytes" else "on each device"
    counted = (
        f"{len(arrays):,} array{'s' * (len(arrays) != 1)}, {formatting.bytes_text(total)} {where}"
    )
    return [counted + (f"; {unknown} of unknown size are not drawn" if unknown else "")]


def _legend_text(spec: Spec | None) -> str:
    if spec is None:
        return "unknown"
    return f"{formatting.spec_text(spec)}{'' if any(spec) else ' replicated'}"


def _legend_entry(spec: Spec | None, look: SpecStyle) -> go.Bar:
    return go.Bar(
        x=[None],
        y=[None],
        name=labels.escape(_legend_text(spec)),
        marker={"color": look.color, "pattern": {"shape": look.hatch, "fillmode": "overlay"}},
        hoverinfo="skip",
    )


def _legend_lines(legend: list[tuple[Spec | None, SpecStyle]], width_px: float) -> int:
    """How many lines Plotly needs: it gives every entry the width of the widest."""
    widest = max(labels.width_px(_legend_text(spec), frame.NOTE_PX) for spec, _ in legend) + 46
    return -(-len(legend) // max(1, int(width_px / widest)))
