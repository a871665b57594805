"""Colors that a color-blind reader can tell apart, and the text color that reads on each.

Blocks of an array: Paul Tol's "light" scheme, made for filled cells with black labels, and beyond its
eight colors his "iridescent" scheme, which falls evenly in lightness, so that nearby colors are nearby
blocks (https://sronpersonalpages.nl/~pault/, technical note SRON/EPS/TN/09-002). PartitionSpecs: the
scheme of Okabe and Ito (https://jfly.uni-koeln.de/color/), so that a spec is never taken for a block.
Bytes: cividis (Nuñez, Anderton and Renslow 2018, https://doi.org/10.1371/journal.pone.0199239). What is
the same on every device is always the same grey.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plotly.colors import sequential

from inspector.core.snapshot import Array, Mesh, Spec

REPLICATED = "#DDDDDD"  # the pale grey of Tol's light scheme
UNKNOWN = "#8A8F98"

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

# Without its three lightest and four darkest steps, which are lost on a white and on a black page.
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

# Plotly's names for hatches, in the order in which they are given out when the colors run out.
HATCHES = ("", "/", "x", ".", "-", "+", "|", "\\")

BLACK, WHITE = "#000000", "#FFFFFF"

# Lightest first; without its two darkest steps, which are lost on a black page.
CIVIDIS = tuple(reversed(sequential.Cividis[2:]))

Colorscale = list[tuple[float, str]]


@dataclass(frozen=True)
class SpecStyle:
    """How one PartitionSpec is drawn wherever it stands: a fill, and a hatch if fills run out."""

    color: str
    hatch: str = ""


def colors_of_blocks(count: int) -> tuple[str, ...]:
    """A color for each of `count` blocks; one block, being the same everywhere, is grey."""
    if count == 1:
        return (REPLICATED,)
    if count <= len(TOL_LIGHT):
        return TOL_LIGHT[:count]
    return tuple(_between(TOL_IRIDESCENT, number / (count - 1)) for number in range(count))


def colorscale_of_blocks(count: int) -> tuple[Colorscale, float, float]:
    """(colorscale, zmin, zmax) that give block number z the color `colors_of_blocks(count)[z]`."""
    if count <= len(TOL_LIGHT):
        return steps(colors_of_blocks(count)), -0.5, count - 0.5
    return ramp(TOL_IRIDESCENT), 0, count - 1


def steps(colors: Iterable[str]) -> Colorscale:
    """A colorscale of bands: number z from 0 has band z when zmin is -½ and zmax the last plus ½."""
    colors = tuple(colors)
    return [
        (edge / len(colors), color)
        for number, color in enumerate(colors)
        for edge in (number, number + 1)
    ]


def ramp(colors: Sequence[str]) -> Colorscale:
    """A colorscale that runs evenly through these colors."""
    return [(number / (len(colors) - 1), color) for number, color in enumerate(colors)]


def faded(color: str, opacity: float = 0.22) -> str:
    """The color made so transparent that the page shows through, light or dark."""
    red, green, blue = _channels(color)
    return f"rgba({red},{green},{blue},{opacity})"


def text_on(color: str) -> str:
    """Black or white, whichever contrasts more with a fill (WCAG 2 contrast ratio)."""
    luminance = _luminance(color)
    return BLACK if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else WHITE


def contrast(one: str, other: str) -> float:
    """The WCAG 2 contrast ratio of two colors, from 1 to 21."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def without_trailing(spec: Spec | None) -> Spec | None:
    """The spec without trailing Nones, which mean nothing: P('data', None) is P('data')."""
    if spec is None:
        return None
    length = max((place + 1 for place, axes in enumerate(spec) if axes), default=0)
    return spec[:length]


def splits_nothing(spec: Spec, mesh: Mesh | None) -> bool:
    """Whether every device holds the whole array: nothing named, or only mesh axes of size 1."""
    return not any(axes and (mesh is None or mesh.ways(axes) > 1) for axes in spec)


def styles_of_specs(arrays: Iterable[Array], mesh: Mesh | None) -> Mapping[Spec | None, SpecStyle]:
    """A style for each PartitionSpec of these arrays, by spec without trailing Nones.

    Make it once from all arrays of a Snapshot and hand it to every picture, so that a spec has one
    color everywhere. Specs that split nothing are grey, an unknown spec is a darker grey; the rest
    take the scheme's colors in the order of their text, then again with a hatch.
    """
    specs = {without_trailing(array.spec) for array in arrays}
    styles: dict[Spec | None, SpecStyle] = {}
    splitting = []
    for spec in specs:
        if spec is None:
            styles[spec] = SpecStyle(UNKNOWN, "/")
        elif splits_nothing(spec, mesh):
            styles[spec] = SpecStyle(REPLICATED)
        else:
            splitting.append(spec)
    for number, spec in enumerate(sorted(splitting, key=repr)):
        turn, place = divmod(number, len(OKABE_ITO))
        styles[spec] = SpecStyle(OKABE_ITO[place], HATCHES[turn % len(HATCHES)])
    return styles


def _between(stops: Sequence[str], place: float) -> str:
    """The color at `place`, from 0 to 1, on the straight ways from stop to stop."""
    lower = min(int(place * (len(stops) - 1)), len(stops) - 2)
    within = place * (len(stops) - 1) - lower
    mixed = (
        round(start + (stop - start) * within)
        for start, stop in zip(_channels(stops[lower]), _channels(stops[lower + 1]), strict=True)
    )
    return "#" + "".join(f"{channel:02X}" for channel in mixed)


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _luminance(color: str) -> float:
    def linear(channel: int) -> float:
        share = channel / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, _channels(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
