"""Axis names and PartitionSpecs in fields follow a change of the mesh's rank."""

from __future__ import annotations

import pytest

from inspector.layout.mesh_shapes import fit_axis_names, fitted_names, fitted_spec


@pytest.mark.parametrize(
    ("mesh", "names"),
    [("8", ["data"]), ("2x2x2", ["data", "model", "x"]), ("2×2×2x1", ["data", "model", "x", "y"])],
)
def test_another_rank_changes_the_names(mesh: str, names: list[str]) -> None:
    fields = {"mesh": mesh, "axes": "data, model"}
    assert fit_axis_names(fields, most=4) == names
    assert fields["axes"] == ", ".join(names)


@pytest.mark.parametrize("mesh", ["4x2", "1x1x1x1x1"])
def test_the_same_rank_or_too_large_a_one_changes_nothing(mesh: str) -> None:
    fields = {"mesh": mesh, "axes": "data, model"}
    assert fit_axis_names(fields, most=4) is None
    assert fields["axes"] == "data, model"


def test_a_spare_name_that_is_taken_is_left_out() -> None:
    assert fitted_names("x, data", 3) == ["x", "data", "y"]


def test_entries_of_absent_axes_become_none() -> None:
    assert fitted_spec("data + model, data, None", ["data"]) == "None, data, None"
