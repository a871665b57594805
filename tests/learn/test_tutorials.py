"""Tests of tutorial requests and of the script of a tutorial."""

from __future__ import annotations

import ast

import pytest

from inspector.guides import tutorials
from inspector.guides.tutorials import TUTORIALS, TutorialRequest, TutorialRun, TutorialStep
from inspector.records import typed_json


@pytest.mark.parametrize("guide", TUTORIALS)
def test_defaults_have_the_mesh_of_the_guide(guide: str) -> None:
    request = tutorials.parse(guide, **tutorials.defaults(guide)).value
    assert request is not None
    assert (request.guide, request.mesh_shape, request.devices) == (guide, (2, 4), 8)
    assert request.axis_names == TUTORIALS[guide].axis_names


@pytest.mark.parametrize(
    ("guide", "mesh", "axes", "field", "sentence"),
    [
        ("nothing", "2x4", "a, b", "guide", "request is 'nothing', but must be one of scale_up"),
        ("scale_up", "2y4", "a, b", "mesh", "mesh is '2y4', but must be axis sizes joined by x"),
        ("scale_up", "8", "a", "mesh", "mesh 8 has 1 axis, but this tutorial needs 2"),
        ("pieces", "2x2x2", "a, b, c", "mesh", "mesh 2x2x2 has 3 axes, but this tutorial needs 2"),
        ("arrays", "2x2x2x2", "a", "mesh", "2x2x2x2 has 4 axes, but this tutorial needs 1 to 3"),
        ("scale_up", "13x5", "a, b", "mesh", "makes 65 devices, but this tutorial needs 1 to 64"),
        ("arrays", "1", "a", "mesh", "mesh 1 makes 1 device, but this tutorial needs 2 to 64"),
        ("scale_up", "2x4", "a", "axes", "axes gives 1 name (a), but mesh 2x4 has 2 axes"),
        ("scale_up", "2x4", "a, a", "axes", "names of mesh axes must differ"),
        ("scale_up", "2x4", "a, b'] + [", "axes", "must be ASCII letters, digits and _"),
    ],
)
def test_errors_belong_to_a_field(guide: str, mesh: str, axes: str, field: str, sentence: str) -> None:
    parsed = tutorials.parse(guide, mesh, axes)
    assert parsed.value is None
    assert list(parsed.problems) == [field]
    assert sentence in parsed.problems[field]


@pytest.mark.parametrize("mesh", ["1x1", "64x1", "8x8"])
def test_limits_are_inclusive(mesh: str) -> None:
    assert tutorials.parse("scale_up", mesh, "a, b").value is not None


def test_a_request_is_read_back_from_json() -> None:
    request = TutorialRequest("arrays", (2, 2, 2), ("a", "b", "c"))
    assert typed_json.decode(TutorialRequest, request.to_json()) == request


def test_different_requests_have_different_keys() -> None:
    same = [
        TutorialRequest("pieces", (2, 4), ("x", "y")),
        TutorialRequest("pieces", (2, 4), ("x", "y")),
    ]
    others = [
        TutorialRequest("pieces", (4, 2), ("x", "y")),
        TutorialRequest("pieces", (2, 4), ("y", "x")),
        TutorialRequest("scale_up", (2, 4), ("x", "y")),
    ]
    assert len({request.key() for request in same}) == 1
    assert len({request.key() for request in [*same, *others]}) == 4


def test_steps_are_read_back_from_json() -> None:
    result = TutorialRun((TutorialStep("a", "b", "c", refusal="d", problem="e"),), {"jax": "1"})
    assert typed_json.decode(TutorialRun, typed_json.encode(result)) == result
    assert not result.complete
    assert TutorialRun((TutorialStep("a", "b", "c"),)).complete


def test_the_script_has_the_mesh_and_a_cell_per_step() -> None:
    words = "Words. " * 30
    steps = (
        TutorialStep("First", words, "size = mesh_shape[0]"),
        TutorialStep("Second", "More.", "print(size)"),
    )
    text = tutorials.script(TutorialRequest("pieces", (3, 2), ("x", "y")), steps)
    ast.parse(text)
    assert 'os.environ["JAX_NUM_CPU_DEVICES"] = "6"' in text
    assert "mesh_shape = (3, 2)\naxis_names = ('x', 'y')\n" in text
    assert [line for line in text.splitlines() if line.startswith("# %%")] == [
        "# %% First",
        "# %% Second",
    ]
    assert max(map(len, text.splitlines())) <= tutorials.COMMENT_COLUMNS
    assert text.index("size = mesh_shape[0]") < text.index("# %% Second") < text.index("print(size)")
    one_axis = tutorials.script(TutorialRequest("arrays", (2,), ("x",)), ())
    assert "mesh_shape = (2,)\naxis_names = ('x',)\n" in one_axis
