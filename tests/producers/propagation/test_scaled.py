"""Programs scaled to other sizes of the mesh axes, against the propagation of these meshes."""

from __future__ import annotations

from collections import Counter

import pytest

from inspector import layout as layouts
from inspector.core.snapshot import Program
from inspector.layout import Layout
from inspector.producers.propagation.evaluate import costs
from inspector.producers.propagation.propagate import Setting, propagated_programs
from inspector.producers.propagation.scaled import ScaledProgram, scaled_program
from inspector.producers.propagation.template import template_of
from tests.producers.propagation.test_propagate import SMALL, TENSOR, wire_bytes

CASES = {
    "mlp": ({"axes": "data,model", "depth": "64", "batch": "64"}, ("2x4", "8x2", "4x8", "16x1")),
    "mlp with device axes": (
        {"model": "mlp", "axes": "data,model", "depth": "64", "batch": "64"},
        ("2x4", "8x2", "4x8"),
    ),
    "mlp, optimizer state over more axes": (
        {"axes": "data,model", "depth": "64", "batch": "64", "optimizer_axes": "data"},
        ("2x4", "8x2", "4x8"),
    ),
    "mlp on two slices": (
        {"target": "tpu:v5e:2x2*2", "axes": "data,fsdp", "depth": "64", "batch": "64",
         "rules": "batch=data+fsdp,embed=fsdp"},
        ("2x4", "4x2"),
    ),
    "mlp on GPUs, whose gradients are scattered": (
        {"target": "gpu:h100:8", "axes": "data,fsdp", "depth": "64", "batch": "64",
         "rules": "batch=data+fsdp,embed=fsdp"},
        ("2x4", "4x2"),
    ),
    "transformer, fsdp and tensor": (
        {"model": "transformer", "axes": "fsdp,tensor", **SMALL, "batch": "64", "heads": "8",
         "rules": f"{TENSOR},batch=fsdp,embed=fsdp"},
        ("2x4", "8x2", "16x4", "4x2"),
    ),
}  # fmt: skip


def scaled(layout: Layout) -> ScaledProgram:
    template = template_of(layout)
    lowered = next(one for one in template.programs if one.name == "train_step")
    return scaled_program(lowered, Setting.of(layout), template.logical)


def propagated_step(layout: Layout) -> Program:
    programs = propagated_programs(layout, origins=False, only=("train_step", "apply")).programs
    return next(one for one in programs if one.name == "train_step")


def executions(program: Program) -> Counter:
    """Count the executions of collectives by what each moves and between which devices."""
    found: Counter = Counter()
    for one in program.collectives:
        found[
            one.op, one.mesh_axes, one.payload_bytes, one.wire_bytes_per_device, one.group_size,
            one.groups,
        ] += one.executions  # fmt: skip
    return found


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", CASES)
def test_bytes_and_flops_are_those_of_the_other_mesh(name):
    fields, meshes = CASES[name]
    every = [layouts.parse({"target": "plan", **fields, "mesh": mesh}).unwrap() for mesh in meshes]
    first = scaled(every[0])
    assert first.scalable
    own = first.on(every[0].mesh().sizes)
    use = propagated_step(every[0]).memory_use
    assert use is not None and first.peak(every[0].mesh().sizes) == use.peak_bytes
    # Equal collectives are one, with the executions of all.
    assert executions(own) == executions(first.program)
    for layout in every[1:]:
        sizes = layout.mesh().sizes
        other = scaled(layout)
        exact, found = other.program, first.on(sizes)
        assert wire_bytes(found) == wire_bytes(exact), layout.mesh_shape
        assert sum(one.flops for one in found.work.matmul) == pytest.approx(
            sum(one.flops for one in exact.work.matmul)
        )
        # On another mesh, other values can fit into the memory of results.
        assert first.peak(sizes) == pytest.approx(other.peak(sizes), rel=0.1)


def test_a_mesh_on_which_arrays_are_sharded_otherwise_is_propagated_itself():
    # The state's 64 rows are sharded over 2 or 16 devices of `data`, and not over 128.
    fields = {"target": "plan", "axes": "data,model", "depth": "64", "optimizer_axes": "data"}
    meshes = {"2x4": False, "16x2": True, "8x4": True, "128x2": False}
    every = [layouts.parse({**fields, "batch": "128", "mesh": mesh}).unwrap() for mesh in meshes]
    found = costs(every, None, first=True)
    assert [each.scaled for each in found] == list(meshes.values())
    assert found[0].state_bytes is not None and found[3].state_bytes is not None
    assert found[3].state_bytes > found[1].state_bytes
