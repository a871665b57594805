"""The collectives that move an array, in real runs."""

from __future__ import annotations

import dataclasses

import pytest

from inspector import layout as layouts
from inspector.compiled.collective_roles import looked_for, moving
from inspector.compiling.run_layout import run_layout
from inspector.layout.plan import plan
from inspector.layout.presets import MLP_PRESETS as PRESETS
from inspector.records.snapshot import Snapshot
from inspector.tracing.model.abstract import abstract_state

LAYOUT = layouts.parse({"layers": "2", "depth": "64", "steps": "1"}).unwrap()
FSDP_TENSOR = next(preset for preset in PRESETS if preset.name == "FSDP + tensor")


@pytest.fixture(scope="module")
def found() -> Snapshot:
    return run_layout(FSDP_TENSOR.applied_to(LAYOUT), lambda *_, **__: None)


@pytest.mark.nightly
def test_arrays_and_collectives_are_consistent(found: Snapshot) -> None:
    there = {
        (program.name, collective.name, path)
        for program in found.programs
        for collective in program.collectives
        for path in collective.arrays
    }
    back = {
        (one.program, one.collective.name, array.path)
        for array in found.arrays
        for one in moving(array, found)
        if one.known_by == "followed" and array.group != "gradient"
    }
    assert there == back
    assert there


def test_parameter_and_gradient(found: Snapshot) -> None:
    kernel = found.array("params/DotReluDot_1/Dense_0/kernel")
    ops = {(one.program, one.collective.op) for one in moving(kernel, found)}
    assert ops == {
        ("train_step", "all-gather"),
        ("train_step", "all-reduce"),
        ("apply", "all-gather"),
    }
    gradient = found.array("gradient/DotReluDot_1/Dense_0/kernel")
    assert {(one.program, one.collective.op) for one in moving(gradient, found)} == {
        ("train_step", "all-reduce")
    }
    assert moving(found.array("opt_state/0/mu/DotReluDot_1/Dense_0/kernel"), found) == ()


def test_activation_is_found_by_module_and_size(found: Snapshot) -> None:
    (z,) = moving(found.array("activation/DotReluDot_0/z"), found)
    assert (z.program, z.collective.op, z.known_by) == ("train_step", "all-reduce", "place")
    assert z.collective.mesh_axes == ("tensor",)
    # It is in the same module, but sharded over the axis, so no collective moves it.
    assert moving(found.array("activation/DotReluDot_0/y"), found) == ()


def test_arrays_not_searched(found: Snapshot) -> None:
    planned = plan(LAYOUT, abstract_state(LAYOUT))
    assert not looked_for(planned) and looked_for(found)
    assert all(moving(array, planned) == () for array in planned.arrays)
    blind = dataclasses.replace(
        found,
        programs=tuple(
            dataclasses.replace(
                program,
                collectives=tuple(
                    dataclasses.replace(collective, arrays=None) for collective in program.collectives
                ),
            )
            for program in found.programs
        ),
    )
    assert not looked_for(blind)
    assert moving(blind.array("params/DotReluDot_1/W2"), blind) == ()
