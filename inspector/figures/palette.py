"""The one law of colors: every color of a figure, a page, a report and a terminal comes from here.

* **A mesh axis has a hue, decided by its name alone.** So no other axis, layout or page changes it. The names
  that JAX code commonly uses have their own hues, and their synonyms share them (`_KNOWN`). Other names
  take a hue by their last letters or digits, so that `x`, `y`, `z` and `axis_0`, `axis_1` differ. Nine names
  cannot have eight hues: a second axis of one mesh with the same hue is hatched (`fill_of_axis`).
* **Several axes together are stripes of their hues**, such as an all-reduce over `fsdp` and `tensor`. What
  crosses the network between TPU slices is dotted.
* **Blocks of an array are shades of the axes that cut it**, from pale to strong along each axis.
* **What no axis cuts or moves is neutral**: groups of arrays in memory, compute, HBM.
* **More is stronger**, from the ground of the page, on a light and on a dark page alike.

The hues have at least 3:1 contrast (WCAG 2.2, 1.4.11) with a white and with a dark page. Readers with each
kind of color vision deficiency can distinguish them; a test simulates it. Black can be read on all shades.
"""

import functools
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import hex_to_rgb

from inspector.records.snapshot import Mesh, Spec
from inspector.sharding.array_groups import USE_GROUPS
from inspector.text.formatting import axis_of

BLACK, WHITE = "#000000", "#FFFFFF"
# The grounds of pictures outside of a page, and the text colors on them.
LIGHT_PAGE, DARK_PAGE = ("#FFFFFF", "#1F2328"), ("#0E1117", "#F0F2F6")

REPLICATED = "#DDDDDD"  # data that is the same on every device
UNKNOWN = "#8A8F98"
# Unconcerned parts, such as bytes that stay: calm on a white and on a black page, under black text.
REMAINING = "#9BA1A9"
COMPUTE = "#66707D"
MIDDLE_GREY = "#808890"  # can be read on white and on black
MARK = "#5F7A99"  # lines and dots that belong to no axis
CHOSEN = "#F2C200"
GOOD, BAD = "#1A8F4C", "#D1242F"  # always together with a word or a sign

# As far apart in OKLab, for readers with each kind of color vision, as contrast with both pages allows.
HUES = {
    "blue": "#0868E8",
    "green": "#007050",
    "orange": "#E07000",
    "pink": "#CC1C60",
    "violet": "#B870F8",
    "cyan": "#00A0C0",
    "brown": "#945409",
    "plum": "#785890",
}
_KNOWN = {
    "blue": ("data", "batch", "dp"),
    "green": ("fsdp", "zero", "fsdp_transpose"),
    "orange": ("tensor", "tp", "mp", "tensor_transpose"),
    "pink": ("model", "mdl", "hidden", "tensor_sequence"),
    "violet": ("expert", "experts", "ep"),
    "cyan": ("sequence", "seq", "sp", "context", "cp"),
    "brown": ("stage", "pipeline", "pipe", "pp", "autoregressive", "context_autoregressive"),
    "plum": ("replica", "slice", "slices", "dcn", "hosts", "nodes"),
}
_HUE_OF = {name: HUES[hue] for hue, names in _KNOWN.items() for name in names}

# Plotly's names of hatches.
STRIPES = "/"
DOTS = "."  # so small that text can be read on them

_VIVID = 0.6  # more chroma for shades of several axes
_PALE = 0.76  # share of white in the palest shade
SHADES = 64  # of one array, at most: neighbors of more blocks share a shade
_READABLE = 4.6  # contrast of black on each shade
_NEUTRALS = "#464E59", "#C6CCD4"  # the ends of the greys

# Amounts, weakest first: from the ground of a page to what stands out most on it. The text that can be read
# on a step of one scale is white if that of the other is black.
AMOUNTS = ("#EDF0F4", "#D3DBE4", "#B4C1D0", "#93A5B9", "#5A6F88", "#43566E", "#2E3F56", "#1B2A40")
AMOUNTS_DARK = ("#1C232D", "#2A3441", "#3A4758", "#4D5D72", "#8FA3BC", "#AFC0D5", "#CFDBEA", "#F0F5FB")

Colorscale = list[tuple[float, str]]


@dataclass(frozen=True)
class Fill:
    """A color, with a hatch in `over`, by default in the color of the page."""

    color: str
    hatch: str = ""
    over: str = ""

    @property
    def marker(self) -> dict[str, Any]:
        """Return Plotly's settings of bars with this fill."""
        pattern: dict[str, Any] = {"shape": self.hatch, "fillmode": "overlay"}
        if self.over:
            pattern |= {"fgcolor": self.over, "fgopacity": 1, "solidity": 0.5}
        if self.hatch == DOTS:
            pattern |= {"fgopacity": 0.4, "solidity": 0.25, "size": 6}
        return {"color": self.color, "line": {"width": 0}, "pattern": pattern}


NOT_KNOWN = Fill(UNKNOWN, "/")
# The activity of a device in a step without others, by `StepPart.kind`.
WORK = {
    "compute": Fill("#6A7280"),
    "memory": Fill("#9AA2AD"),
    "copies": Fill("#9AA2AD", "x"),
    "rest": NOT_KNOWN,
}


@functools.cache
def color_of_axis(name: str) -> str:
    """Return the color of a mesh axis, also for a part of it. It depends on the name alone.

    >>> color_of_axis("data") == color_of_axis("dp") == HUES["blue"]
    True
    """
    name = axis_of(name)
    if (known := _HUE_OF.get(name.lower())) is not None:
        return known
    stem = name.lower().rstrip("0123456789")
    number = int(name[len(stem) :][-9:] or 0)
    if len(stem) == 1:  # neighbors in the alphabet differ
        number += ord(stem)
    else:
        number += zlib.crc32(stem.encode())
    return list(HUES.values())[number % len(HUES)]


def fill_of_axes(names: Sequence[str] | None) -> Fill:
    """Return the fill of what belongs to several mesh axes: stripes of two hues. None if they are unknown."""
    if not names:
        return NOT_KNOWN
    if len(names) == 1:
        return Fill(color_of_axis(names[0]))
    colors = list(dict.fromkeys(map(color_of_axis, names)))
    return Fill(colors[0], STRIPES, colors[-1]) if len(colors) > 1 else Fill(colors[0], "x")


def between_slices(fill: Fill) -> Fill:
    """Return the fill of what crosses the network between TPU slices: its hue, dotted."""
    return fill if fill.over else Fill(fill.color, DOTS, BLACK)


@functools.lru_cache(1024)
def color_of_axes(names: tuple[str, ...]) -> str:
    """Return one color for several axes, where stripes cannot be drawn: the mean of their hues."""
    return _hex(np.mean([_oklab(color_of_axis(name)) for name in names], axis=0)) if names else REPLICATED


@functools.lru_cache(256)
def shades_of(color: str, count: int) -> tuple[str, ...]:
    """Return shades of a color, from pale to strong."""
    pale, strong = _ends(color)
    return tuple(map(_hex, _between(pale, strong, _places(count, SHADES))))


def colors_of_blocks(block: np.ndarray, mesh: Mesh) -> tuple[str, ...]:
    """Return the color of each block of an array: the mean of the shades of the axes that cut it.

    Args:
      block: (devices,) number of the block of each device in mesh order, as in `Placement`.
    """
    if block.size == 0 or not block.any():
        return (REPLICATED,)
    axes = [axis for axis in mesh.axes if axis.size > 1]  # a mesh can have more axes than NumPy supports
    grid = block.reshape([axis.size for axis in axes])
    cutting = [axis for axis in range(grid.ndim) if (np.diff(grid, axis=axis) != 0).any()]
    first = np.unique(block, return_index=True)[1]
    steps = {axis: grid.shape[axis] for axis in cutting}
    while math.prod(steps.values()) > SHADES and max(steps.values()) > 2:
        longest = max(steps, key=lambda axis: steps[axis])
        steps[longest] = -(-steps[longest] // 2)
    shades = []
    for axis in cutting:
        size, stride = grid.shape[axis], int(np.prod(grid.shape[axis + 1 :], dtype=np.int64))
        index = first // stride % size
        pale, strong = _ends(color_of_axis(axes[axis].name))
        shades.append(_between(pale, strong, _places(size, steps[axis])[index]))
    # The mean of several hues is dull.
    vivid = np.array([1, *[1 + _VIVID * (len(shades) > 1)] * 2])
    return tuple(map(_hex, np.mean(shades, axis=0) * vivid))


@functools.lru_cache(64)
def neutrals(count: int) -> tuple[str, ...]:
    """Return greys for what no mesh axis cuts, such as processes, from dark to pale."""
    return tuple(map(_hex, _between(_oklab(_NEUTRALS[0]), _oklab(_NEUTRALS[1]), _places(count, count))))


@functools.cache
def color_of_group(group: str) -> str:
    """Return the grey of a group of arrays in memory (`USE_GROUPS`); unknown ones have `UNKNOWN`.

    Dark, middle and pale greys take turns, because groups are stacked in this order.
    """
    names: list[str] = [*USE_GROUPS]
    if group not in names:
        return UNKNOWN
    dark_first = [name for turn in range(3) for name in names[turn::3]]
    return neutrals(len(names))[dark_first.index(group)]


def fill_of_spec(spec: Spec | None, mesh: Mesh | None) -> Fill:
    """Return the fill of a PartitionSpec: the hues of its mesh axes. It depends on nothing else.

    Replicated specs are light grey. Of two specs with the same axes, a dot pattern marks the one that cuts
    a later dimension first.

    Args:
      mesh: its axes of size 1 cut nothing. None to count every axis.
    """
    if spec is None:
        return NOT_KNOWN
    sizes = {} if mesh is None else {axis.name: axis.size for axis in mesh.axes}
    cuts = [[name for name in axes or () if sizes.get(name, 2) > 1] for axes in spec]
    names = [name for axes in cuts for name in axes]
    if not names:
        return Fill(REPLICATED)
    fill = fill_of_axes(names)
    later = next(place for place, axes in enumerate(cuts) if axes)
    return Fill(fill.color, DOTS, BLACK) if later and len(names) == 1 else fill


def amounts(dark: bool = False) -> Colorscale:
    """Return the scale of amounts for a page, weakest first."""
    return ramp(AMOUNTS_DARK if dark else AMOUNTS)


def of_amounts(heatmap: go.Heatmap) -> go.Heatmap:
    """Give a heat map the scale of amounts, and in its `meta.dark` the changes for a dark page."""
    dark: dict[str, Any] = {"colorscale": amounts(dark=True)}
    if heatmap.textfont.color in (BLACK, WHITE):
        other = WHITE if heatmap.textfont.color == BLACK else BLACK
        dark["textfont"] = heatmap.textfont.to_plotly_json() | {"color": other}
    return heatmap.update(colorscale=amounts(), meta={"dark": dark})


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
    darker, lighter = sorted(float(_linear(shade) @ _LUMINANCE) for shade in (color, other))
    return (lighter + 0.05) / (darker + 0.05)


@functools.cache
def _ends(color: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the palest shade of a color, and the strongest one that black can be read on, in OKLab."""
    white, base = _oklab(WHITE), _oklab(color)
    mixed = (base + (white - base) * share for share in np.arange(0, 1, 0.02))
    strong = next(shade for shade in mixed if contrast(_hex(shade), BLACK) >= _READABLE)
    return base + (white - base) * _PALE, strong


def _places(count: int, steps: int) -> np.ndarray:
    """Return (count,) places from 0 to 1, in at most this many steps; a single one is at the strong end."""
    steps = min(steps, count)
    return np.arange(count) * steps // count / (steps - 1) if steps > 1 else np.ones(count)


def _between(start: np.ndarray, stop: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return (places, 3) the colors between two, in OKLab."""
    mixed: np.ndarray = start + (stop - start) * places[:, None]
    return mixed


# OKLab, in which equal distances look equal (Björn Ottosson, https://bottosson.github.io/posts/oklab/).
_TO_CONES = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                      [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
_TO_LAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
                    [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])  # of linear red, green and blue


def _linear(color: str) -> np.ndarray:
    shares = np.array(hex_to_rgb(color)) / 255
    linear: np.ndarray = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return linear


def _oklab(color: str) -> np.ndarray:
    lab: np.ndarray = _TO_LAB @ np.cbrt(_TO_CONES @ _linear(color))
    return lab


def _hex(lab: np.ndarray) -> str:
    linear = np.clip(np.linalg.solve(_TO_CONES, np.linalg.solve(_TO_LAB, lab) ** 3), 0, 1)
    shares = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    red, green, blue = np.rint(shares * 255).astype(int).tolist()
    return f"#{red:02X}{green:02X}{blue:02X}"
