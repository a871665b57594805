"""Colors that color-blind readers can distinguish, and the text color that can be read on each.

* Blocks of an array: Paul Tol's "light" scheme for up to eight, made for filled cells with black labels.
  For more, his "iridescent" scheme: its lightness falls evenly, so nearby blocks have similar colors
  (https://sronpersonalpages.nl/~pault/, technical note SRON/EPS/TN/09-002).
* PartitionSpecs: the scheme of Okabe and Ito (https://jfly.uni-koeln.de/color/), which shares no color
  with the blocks.
* Mesh axes: colors that no group of arrays in memory has (see `inspector.core.array_groups`), so that time
  and traffic can be next to memory. The first three differ in lightness too.
* Bytes: cividis (Nuñez, Anderton and Renslow 2018, https://doi.org/10.1371/journal.pone.0199239).
* Data that is the same on every device is always the same grey.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plotly.colors import hex_to_rgb, sequential

from inspector.core.snapshot import Array, Mesh, Spec

REPLICATED = "#DDDDDD"  # the pale grey of Tol's light scheme
UNKNOWN = "#8A8F98"
# What is not concerned, such as bytes that stay: calm on a white and on a black page, under black text.
REMAINING = "#9BA1A9"

TOL_LIGHT = (
    "#77AADD",  # light blue
    "#EE8866",  # orange
    "#EEDD88",  # light yellow
    "#FFAABB",  # pink
    "#99DDFF",  # light cyan
    "#44BB99",  # mint
    "#BBCC33",  # pear
    "#AAAA00",  # olive
)

# Without the three lightest and four darkest steps, which vanish on a white and on a black page.
TOL_IRIDESCENT = (
    "#EAF0B5", "#DDECBF", "#D0E7CA", "#C2E3D2", "#B5DDD8", "#A8D8DC", "#9BD2E1", "#8DCBE4",
    "#81C4E7", "#7BBCE7", "#7EB2E4", "#88A5DD", "#9398D2", "#9B8AC4", "#9D7DB2", "#9A709E",
)  # fmt: skip

OKABE_ITO = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # bluish green
    "#CC79A7",  # reddish purple
    "#56B4E9",  # sky blue
    "#D55E00",  # vermillion
    "#F0E442",  # yellow
)

# Of lines and dots: between the two blues of Okabe and Ito; can be seen on white and on black.
LINE = "#2B8CC4"
MESH_AXES = (
    "#8064D0",  # violet
    "#9ACD32",  # yellow-green
    "#8C510A",  # brown
    "#FF5C8A",  # rose
    "#00A5A5",  # teal
    "#2F5D1E",  # forest green
)
COMPUTE = "#66707D"  # slate

# Plotly's names of hatches, in the order in which they are used when the colors run out.
HATCHES = ("", "/", "x", ".", "-", "+", "|", "\\")

BLACK, WHITE = "#000000", "#FFFFFF"

# Lightest first, without the two darkest steps, which vanish on a black page.
CIVIDIS = tuple(reversed(sequential.Cividis[2:]))

Colorscale = list[tuple[float, str]]


@dataclass(frozen=True)
class SpecStyle:
    """The color and the hatch of one PartitionSpec, the same in every figure."""

    color: str
    hatch: str = ""


UNKNOWN_STYLE = SpecStyle(UNKNOWN, "/")


def style_of(spec: Spec | None, styles: Mapping[Spec | None, SpecStyle]) -> SpecStyle:
    """Return the style of a spec; a spec that `styles` lacks looks like an unknown one."""
    return styles.get(without_trailing(spec), UNKNOWN_STYLE)


@functools.lru_cache(64)
def colors_of_blocks(count: int) -> tuple[str, ...]:
    """Return a color for each of `count` blocks. A single block is grey: it is the same everywhere."""
    if count == 1:
        return (REPLICATED,)
    if count <= len(TOL_LIGHT):
        return TOL_LIGHT[:count]
    return tuple(_between(TOL_IRIDESCENT, number / (count - 1)) for number in range(count))


def coloring_of_blocks(count: int) -> dict[str, Any]:
    """Return the settings of a heatmap that give block z the color `colors_of_blocks(count)[z]`."""
    if count <= len(TOL_LIGHT):
        return coloring(colors_of_blocks(count))
    return {"colorscale": ramp(TOL_IRIDESCENT), "zmin": 0, "zmax": count - 1}


def coloring(colors: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a heatmap that give z the color `colors[z]`."""
    return {"colorscale": steps(colors), "zmin": -0.5, "zmax": len(colors) - 0.5}


def steps(colors: Iterable[str]) -> Colorscale:
    """Return a colorscale of bands: with zmin −½ and zmax `len(colors)` − ½, z has the color `colors[z]`."""
    colors = tuple(colors)
    return [
        (edge / len(colors), color) for number, color in enumerate(colors) for edge in (number, number + 1)
    ]


def ramp(colors: Sequence[str]) -> Colorscale:
    """Return a colorscale that runs evenly through these colors."""
    return [(number / (len(colors) - 1), color) for number, color in enumerate(colors)]


def faded(color: str, opacity: float = 0.22) -> str:
    """Return the color with this opacity, so that the page shows through."""
    red, green, blue = hex_to_rgb(color)
    return f"rgba({red},{green},{blue},{opacity})"


@functools.lru_cache(4096)
def text_on(color: str) -> str:
    """Return black or white, whichever contrasts more with a fill (WCAG 2 contrast ratio)."""
    return max(BLACK, WHITE, key=lambda text: contrast(color, text))


def contrast(color: str, other: str) -> float:
    """Return the WCAG 2 contrast ratio of two colors, from 1 to 21."""
    darker, lighter = sorted((_luminance(color), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def without_trailing(spec: Spec | None) -> Spec | None:
    """Return the spec without trailing Nones: P('data', None) means P('data')."""
    if spec is None:
        return None
    length = max((place + 1 for place, axes in enumerate(spec) if axes), default=0)
    return spec[:length]


def splits_nothing(spec: Spec, mesh: Mesh | None) -> bool:
    """Return whether the spec replicates: it names no mesh axis larger than 1."""
    sizes = {} if mesh is None else {axis.name: axis.size for axis in mesh.axes}
    return not any(sizes.get(name, 2) > 1 for axes in spec for name in axes or ())


def styles_of_specs(arrays: Iterable[Array], mesh: Mesh | None) -> Mapping[Spec | None, SpecStyle]:
    """Return a style for each PartitionSpec of these arrays, by spec without trailing Nones.

    Compute it once from all arrays of a Snapshot and pass it to every figure: a spec then has the same
    color everywhere. Replicated specs are light grey, an unknown spec is dark grey. The other specs
    take the colors of the scheme in the order of their text, and then the same colors with a hatch.
    """
    specs = {without_trailing(array.spec) for array in arrays}
    styles: dict[Spec | None, SpecStyle] = {}
    splitting = []
    for spec in specs:
        if spec is None:
            styles[spec] = UNKNOWN_STYLE
        elif splits_nothing(spec, mesh):
            styles[spec] = SpecStyle(REPLICATED)
        else:
            splitting.append(spec)
    for number, spec in enumerate(sorted(splitting, key=repr)):
        turn, place = divmod(number, len(OKABE_ITO))
        styles[spec] = SpecStyle(OKABE_ITO[place], HATCHES[turn % len(HATCHES)])
    return styles


def _between(stops: Sequence[str], place: float) -> str:
    """Return the color at `place`, from 0 to 1, interpolated linearly between the stops."""
    lower = min(int(place * (len(stops) - 1)), len(stops) - 2)
    within = place * (len(stops) - 1) - lower
    mixed = (
        round(start + (stop - start) * within)
        for start, stop in zip(hex_to_rgb(stops[lower]), hex_to_rgb(stops[lower + 1]), strict=True)
    )
    return "#" + "".join(f"{channel:02X}" for channel in mixed)


def _luminance(color: str) -> float:
    def linear(channel: int) -> float:
        share = channel / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, hex_to_rgb(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
