"""Tutorials that run JAX step by step on emulated devices: requests, results and the exported script."""

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

from inspector import layout as layouts
from inspector.guides.array_fields import MeshRequest
from inspector.records.snapshot import Array, Mesh
from inspector.records.typed_json import NonNegativeInt, Record
from inspector.text.errors import InvalidInput, shown
from inspector.text.field_parser import FieldParser, Parsed
from inspector.text.formatting import counted

MOST_DEVICES = 64  # the tutorials keep copies of most arrays on each device
DEFAULT_MESH = (2, 4)
COMMENT_COLUMNS = 100


@dataclass(frozen=True)
class Tutorial:
    """A tutorial, the guide that it follows, and the meshes that it supports."""

    title: str
    follows: str
    axis_names: tuple[str, ...]
    axis_counts: tuple[int, ...]
    least_devices: int = 1


TUTORIALS: Mapping[str, Tutorial] = {
    "scale_up": Tutorial(
        "Scale up a Flax module",
        "After Flax's guide *Scale up Flax Modules on multiple devices*. The first mesh axis splits the "
        "batch, the second one the parameters.",
        ("data", "model"),
        (2,),
    ),
    "arrays": Tutorial(
        "Arrays across devices and processes",
        "After JAX's guide *jax.Array migration*. Any mesh of one to three axes and at least two devices.",
        ("data", "model"),
        (1, 2, 3),
        least_devices=2,
    ),
    "pieces": Tutorial(
        "Build an array from pieces",
        "After JAX's reference of `make_array_from_single_device_arrays`, on a mesh of two axes.",
        ("x", "y"),
        (2,),
    ),
}
DEFAULT_TUTORIAL = "scale_up"


@dataclass(frozen=True)
class TutorialRequest(MeshRequest, Record):
    """A valid request for a tutorial on a mesh."""

    guide: str
    mesh_shape: tuple[NonNegativeInt, ...]
    axis_names: tuple[str, ...]


@dataclass(frozen=True)
class DrawnArray(Record):
    """An array to draw, with its variable name as path, and its mesh."""

    array: Array
    mesh: Mesh


@dataclass(frozen=True)
class TutorialStep(Record):
    """The result of one step.

    Attributes:
      words: Markdown text.
      output: The printed output of the code.
      drawn: The arrays to draw.
      mesh: The mesh to draw, for a step without arrays.
      refusal: JAX's error message if the step demonstrates an error; otherwise None.
      problem: Why the step failed or was skipped. None if it succeeded.
    """

    title: str
    words: str
    code: str
    output: str = ""
    drawn: tuple[DrawnArray, ...] = ()
    mesh: Mesh | None = None
    refusal: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class TutorialRun(Record):
    """The results of all steps, and the versions of the libraries."""

    steps: tuple[TutorialStep, ...]
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return all(step.problem is None for step in self.steps)


def defaults(guide: str) -> dict[str, str]:
    """Return the default text of the mesh fields."""
    return {
        "mesh": layouts.print_mesh(DEFAULT_MESH),
        "axes": ", ".join(TUTORIALS[guide].axis_names),
    }


def parse(guide: str, mesh: str, axes: str) -> Parsed[TutorialRequest]:
    """Parse a request from the text of its fields."""
    if guide not in TUTORIALS:
        return Parsed(
            None, {"guide": f"request is {shown(guide)}, but must be one of {', '.join(TUTORIALS)}"}
        )
    parser = FieldParser({"mesh": mesh, "axes": axes})
    shape: tuple[int, ...] = parser.parse("mesh", lambda text: _parse_mesh(text, TUTORIALS[guide]), ())
    names: tuple[str, ...] = parser.parse("axes", lambda text: layouts.parse_axes(text, shape), (), ("mesh",))
    if parser.problems:
        return Parsed(None, parser.problems)
    return Parsed(TutorialRequest(guide, shape, names))


def script(request: TutorialRequest, steps: tuple[TutorialStep, ...]) -> str:
    """Return all steps as one Python script with notebook cell markers (`# %%`)."""
    guide = TUTORIALS[request.guide]
    parts = [
        f'"""{guide.title}, on a mesh of {request.devices} emulated devices."""\n\n'
        "import os\n\n"
        "# Delete these two lines to run on real devices.\n"
        'os.environ["JAX_PLATFORMS"] = "cpu"\n'
        f'os.environ["JAX_NUM_CPU_DEVICES"] = "{request.devices}"\n\n'
        f"mesh_shape = {request.mesh_shape}\n"
        f"axis_names = {request.axis_names}\n"
    ]
    for step in steps:
        words = textwrap.fill(step.words, COMMENT_COLUMNS, initial_indent="# ", subsequent_indent="# ")
        parts.append(f"# %% {step.title}\n{words}\n\n{step.code}\n")
    return "\n".join(parts)


def _parse_mesh(text: str, guide: Tutorial) -> tuple[int, ...]:
    shape = layouts.parse_mesh(text)
    mesh = f"mesh {layouts.print_mesh(shape)}"
    if len(shape) not in guide.axis_counts:
        needed = " to ".join(map(str, sorted({min(guide.axis_counts), max(guide.axis_counts)})))
        axes = counted(len(shape), "axis", "axes")
        raise InvalidInput(f"{mesh} has {axes}, but this tutorial needs {needed}")
    devices = math.prod(shape)
    if not guide.least_devices <= devices <= MOST_DEVICES:
        raise InvalidInput(
            f"{mesh} makes {counted(devices, 'device')}, "
            f"but this tutorial needs {guide.least_devices} to {MOST_DEVICES}"
        )
    return shape
