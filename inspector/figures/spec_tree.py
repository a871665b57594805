"""The state as an icicle: the tree of paths, sized by bytes, colored by PartitionSpec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.folding import fold
from inspector.core.formatting import counted
from inspector.core.snapshot import Array, Mesh, Spec
from inspector.figures import frame, holdings, labels, palette, path_tree
from inspector.figures.palette import SpecStyle
from inspector.figures.path_tree import Node

_INNER = "#5B6472"  # inner nodes: white text can be read on it, and it differs from both pages
_LEAF_PX = 48  # room for three lines
_VISIBLE_SHARE = 0.01
_LINE_PX = 16
_HEIGHT_PX = (160, 900)
_TEXT_PX = 12

MOST_LEAVES = 150  # more are too small to see and slow to draw

Size = Literal["bytes", "bytes_per_device"]

_TITLES = {
    "bytes": "PartitionSpecs by bytes",
    "bytes_per_device": "PartitionSpecs by bytes per device",
}


@dataclass(frozen=True)
class Sector:
    """One rectangle of the icicle. `parent` is an id, "" for a root."""

    id: str
    parent: str
    node: Node
    value: int


def sectors(
    arrays: Iterable[Array], size: Size = "bytes", most_leaves: int = MOST_LEAVES
) -> tuple[Sector, ...]:
    """Return the rectangles of folded arrays, each parent before its children.

    An array of unknown size has the value 0, and sums leave it out. If there are more than `most_leaves`
    folds, the smaller ones share one rectangle in each parent.
    """
    folds = fold(arrays)
    ranked = sorted((getattr(one, size) or 0 for one in folds), reverse=True)
    least = ranked[most_leaves - 1] if len(ranked) > most_leaves else 0
    found: list[Sector] = []

    def add(node: Node, parent: str) -> int:
        place = len(found)
        name = f"tree:{place}" if node.fold is None else node.fold.first.path
        found.append(Sector(name, parent, node, 0))
        children = _joined(node.children, size, least)
        value = sum(add(child, name) for child in children) if children else _known(node, size)
        found[place] = Sector(name, parent, node, value)
        return value

    add(path_tree.rooted(path_tree.grow(folds), "all"), "")
    return tuple(found)


def spec_tree(
    arrays: Iterable[Array],
    mesh: Mesh | None,
    styles: Mapping[Spec | None, SpecStyle] | None = None,
    *,
    size: Size = "bytes",
    width_px: int = 1000,
) -> go.Figure | None:
    """Return the icicle of these arrays; None if no array has a known size.

    Selecting gives an id: the path of the first array for a leaf, else `tree:` and a number.

    The area is bytes in total, or bytes on each device.
    """
    arrays = tuple(arrays)
    found = sectors(arrays, size)
    if not any(sector.value for sector in found):
        return None
    styles = styles or palette.styles_of_specs(arrays, mesh)
    looks = [
        SpecStyle(_INNER)
        if sector.node.fold is None
        else palette.style_of(sector.node.fold.first.spec, styles)
        for sector in found
    ]
    total = max(found[0].value, 1)
    column_px = (width_px - 4) / _depth(found) - 10
    visible = sum(
        sector.node.fold is not None and sector.value / total >= _VISIBLE_SHARE for sector in found
    )
    low, high = _HEIGHT_PX
    height = min(max(visible * _LEAF_PX, low), high)
    used = {palette.without_trailing(array.spec) for array in arrays}
    legend = [(spec, style) for spec, style in styles.items() if spec in used]
    names = [_legend_text(spec) for spec, _ in legend]
    icicle = go.Icicle(
        ids=[sector.id for sector in found],
        parents=[sector.parent for sector in found],
        labels=[labels.escape(sector.node.title) for sector in found],
        values=[sector.value for sector in found],
        branchvalues="total",
        text=[_text(one, size, column_px, one.value / total * height) for one in found],
        texttemplate="%{text}",
        textfont={"size": _TEXT_PX, "color": [palette.text_on(look.color) for look in looks]},
        textposition="middle left",
        customdata=[_hover(sector.node) for sector in found],
        hovertemplate=frame.HOVER_TEXT,
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
    )
    return frame.plot(
        [
            icicle,
            *(_legend_entry(name, style) for name, (_, style) in zip(names, legend, strict=True)),
        ],
        width_px,
        height,
        heading=_TITLES[size],
        notes=[_note(arrays, size)],
        bottom=10 + (frame.legend_px(names, width_px, 46) if names else 0),
        # Text that does not fit is hidden instead of shrunk to a pixel.
        uniformtext={"minsize": 9, "mode": "hide"},
        xaxis={"visible": False, "fixedrange": True},
        yaxis={"visible": False, "fixedrange": True},
        showlegend=bool(names),
        legend=frame.LEGEND_BELOW | {"itemclick": False, "itemdoubleclick": False},
    )


def _joined(nodes: Sequence[Node], size: Size, least: int) -> list[Node]:
    """Return the nodes of at least this size, and one node for all smaller ones."""
    small = [node for node in nodes if _known(node, size) < least]
    if len(small) < 2:
        return list(nodes)
    kept = [node for node in nodes if _known(node, size) >= least]
    count = sum(node.arrays for node in small)
    return [*kept, path_tree.without_children(small, f"{count:,} smaller")]


def _known(node: Node, size: Size) -> int:
    """Return the sum of the known sizes below a node; negative sizes count as 0."""
    if node.children:
        return sum(_known(child, size) for child in node.children)
    return max(getattr(node, size) or 0, 0)


def _depth(found: Iterable[Sector]) -> int:
    """Return the number of columns of rectangles."""
    below: dict[str, int] = {}
    for sector in found:
        below[sector.id] = below.get(sector.parent, 0) + 1
    return max(below.values(), default=1)


def _text(sector: Sector, size: Size, column_px: float, height_px: float) -> str:
    """Return the first form that fits into a rectangle, with most lines first; else cut the last."""
    known = getattr(sector.node, size)
    amount = formatting.bytes_text(known if known is not None else sector.value)
    name = sector.node.title
    forms = [[name, amount], [name]]
    if sector.node.fold is not None:
        one = sector.node.fold.first
        spec = formatting.spec_text(one.spec)
        _, arrow = holdings.about(one)
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
    most = max(labels.fitting(column_px, _TEXT_PX), 1)
    room = max(int(height_px / _LINE_PX), 1)
    forms = [form for form in forms if len(form) <= room]
    lines = next((form for form in forms if max(map(len, form)) <= most), forms[-1])
    return labels.lines("\n".join(labels.middle_cut(line, most) for line in lines))


def _hover(node: Node) -> str:
    lines = [node.fold.path if node.fold else node.path]
    if node.fold is not None:
        one = node.fold.first
        lines += holdings.about(one, node.fold.count)
        if one.replicas is not None:
            lines.append(f"each element on {counted(one.replicas, 'device')}")
    else:
        lines.append(counted(node.arrays, "array"))
    lines.append(f"{formatting.exact_bytes_text(node.bytes)} in total")
    lines.append(f"{formatting.exact_bytes_text(node.bytes_per_device)} on each device")
    return frame.hover(lines)


def _note(arrays: tuple[Array, ...], size: Size) -> str:
    unknown = sum(getattr(array, size) is None for array in arrays)
    total = sum(getattr(array, size) or 0 for array in arrays)
    where = "in total, without copies" if size == "bytes" else "on each device"
    rest = f"; {unknown} of unknown size not drawn" if unknown else ""
    return f"{counted(len(arrays), 'array')}, {formatting.bytes_text(total)} {where}{rest}"


def _legend_text(spec: Spec | None) -> str:
    if spec is None:
        return "unknown"
    return f"{formatting.spec_text(spec)}{'' if any(spec) else ' replicated'}"


def _legend_entry(name: str, style: SpecStyle) -> go.Bar:
    return go.Bar(
        x=[None],
        y=[None],
        name=labels.escape(name),
        marker={"color": style.color, "pattern": {"shape": style.hatch, "fillmode": "overlay"}},
        hoverinfo="skip",
    )
