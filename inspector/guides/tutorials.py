"""The guides as walks: what can be asked for, and the steps that were found by running one.

A Walk is frozen and valid; `parse` reads one from the text of its fields and says of each field what is
wrong with it. A Walked is its steps, each with the code that ran, what it printed, and the arrays to draw.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inspector import layout as layouts
from inspector.core import typed_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.field_parser import Parsed
from inspector.core.snapshot import Array, Mesh
from inspector.core.typed_json import NonNegativeInt, Record

MOST_DEVICES = 64  # the code is the guides', which keep copies of everything on each device
DEFAULT_MESH = (2, 4)
COMMENT_COLUMNS = 100


@dataclass(frozen=True)
class Guide:
    """A walk that there is: what it follows, the numbers of mesh axes and devices it makes sense on."""

    title: str
    follows: str
    axis_names: tuple[str, ...]
    axis_counts: tuple[int, ...]
    least_devices: int = 1


GUIDES: Mapping[str, Guide] = {
    "scale_up": Guide(
        "Scale up a Flax module",
        "After Flax's guide *Scale up Flax Modules on multiple devices*. The first mesh axis splits the "
        "batch, the second one the parameters.",
        ("data", "model"),
        (2,),
    ),
    "arrays": Guide(
        "Arrays across devices and processes",
        "After JAX's guide *jax.Array migration*. Any mesh of one to three axes and at least two devices.",
        ("data", "model"),
        (1, 2, 3),
        least_devices=2,
    ),
    "pieces": Guide(
        "Build an array from pieces",
        "After JAX's reference of `make_array_from_single_device_arrays`, on a mesh of two axes.",
        ("x", "y"),
        (2,),
    ),
}
DEFAULT_GUIDE = "scale_up"


@dataclass(frozen=True)
class Walk(Record):
    """A valid request: which guide, on which mesh."""

    guide: str
    mesh_shape: tuple[NonNegativeInt, ...]
    axis_names: tuple[str, ...]

    @property
    def devices(self) -> int:
        return math.prod(self.mesh_shape)

    def to_json(self) -> dict[str, Any]:
        return typed_json.encode(self)

    def key(self) -> str:
        """Text that two walks share only if they are equal."""
        return json.dumps(self.to_json(), sort_keys=True)


@dataclass(frozen=True)
class Drawn(Record):
    """An array of a step, under the name that the code gives it, and the mesh it lies on."""

    array: Array
    mesh: Mesh


@dataclass(frozen=True)
class Step(Record):
    """One cell, run.

    words: Markdown.
    output: what it printed.
    refusal: JAX's error in its own words, where the step is about one.
    problem: why the step failed or was not run; None if it went well.
    """

    title: str
    words: str
    code: str
    output: str = ""
    drawn: tuple[Drawn, ...] = ()
    refusal: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Walked(Record):
    """The steps in order, and the versions of the packages that took them."""

    steps: tuple[Step, ...]
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return all(step.problem is None for step in self.steps)


def defaults(guide: str) -> dict[str, str]:
    """The text of the mesh's fields as the guide has them."""
    return {"mesh": layouts.print_mesh(DEFAULT_MESH), "axes": ", ".join(GUIDES[guide].axis_names)}


def parse(guide: str, mesh: str, axes: str) -> Parsed[Walk]:
    """Read a Walk from the text of its fields."""
    if guide not in GUIDES:
        return Parsed(
            None, {"guide": f"walk is {shown(guide)}, but must be one of {', '.join(GUIDES)}"}
        )
    try:
        shape = _parse_mesh(mesh, GUIDES[guide])
    except InvalidInput as refused:
        return Parsed(None, {"mesh": str(refused)})
    try:
        return Parsed(Walk(guide, shape, layouts.parse_axes(axes, shape)))
    except InvalidInput as refused:
        return Parsed(None, {"axes": str(refused)})


def from_json(value: Any) -> Walk:
    """Read a Walk from parsed JSON.

    Raises:
      InvalidInput: it is not a walk; the sentence names the field, the value and what is allowed.
    """
    read = typed_json.decode(Walk, value, "the walk")
    mesh, axes = layouts.print_mesh(read.mesh_shape), ",".join(read.axis_names)
    return parse(read.guide, mesh, axes).unwrap()


def script(walk: Walk, steps: tuple[Step, ...]) -> str:
    """All steps as one Python script that runs by itself and prints the same.

    Its cells are marked as editors know them, so that it also opens as a notebook.
    """
    guide = GUIDES[walk.guide]
    parts = [
        f'"""{guide.title}, on a mesh of {walk.devices} emulated devices."""\n\n'
        "import os\n\n"
        "# Leave these two lines out where there are real devices.\n"
        'os.environ["JAX_PLATFORMS"] = "cpu"\n'
        f'os.environ["JAX_NUM_CPU_DEVICES"] = "{walk.devices}"\n\n'
        f"mesh_shape = {walk.mesh_shape}\n"
        f"axis_names = {walk.axis_names}\n"
    ]
    for step in steps:
        words = textwrap.fill(
            step.words, COMMENT_COLUMNS, initial_indent="# ", subsequent_indent="# "
        )
        parts.append(f"# %% {step.title}\n{words}\n\n{step.code}\n")
    return "\n".join(parts)


def _parse_mesh(text: str, guide: Guide) -> tuple[int, ...]:
    shape = layouts.parse_mesh(text)
    mesh = f"mesh {layouts.print_mesh(shape)}"
    if len(shape) not in guide.axis_counts:
        least, most = min(guide.axis_counts), max(guide.axis_counts)
        needed = f"{most}" if least == most else f"{least} to {most}"
        axes = "axis" if len(shape) == 1 else "axes"
        raise InvalidInput(f"{mesh} has {len(shape)} {axes}, but this walk needs {needed}")
    devices = math.prod(shape)
    if not guide.least_devices <= devices <= MOST_DEVICES:
        raise InvalidInput(
            f"{mesh} makes {devices} device{'s' * (devices != 1)}, "
            f"but this walk needs {guide.least_devices} to {MOST_DEVICES}"
        )
    return shape
