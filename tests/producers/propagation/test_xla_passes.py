"""Propagated programs for GPUs and TPUs against the programs that their compilers make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from inspector import layout as layouts
from inspector.core.snapshot import Program
from inspector.layout import Layout
from inspector.machines import targets
from inspector.producers.propagation.propagate import propagated_programs
from inspector.service.inspection import Inspection
from tests.producers.propagation.test_propagate import SMALL, wire_bytes

FSDP = {"axes": "fsdp", "rules": "batch=fsdp,embed=fsdp"}
TENSOR = {
    "model": "transformer", **SMALL, "axes": "data,model",
    "rules": "batch=data,vocab=model,mlp=model,heads=model,kv_heads=model",
}  # fmt: skip
CASES = {
    "gradients are scattered": {"target": "gpu:h100:8", "mesh": "8", "depth": "64", **FSDP},
    "gradients are scattered and reduced": {
        "target": "gpu:h100:8", "mesh": "2x4", "depth": "64", "axes": "data,fsdp",
        "rules": "batch=data+fsdp,embed=fsdp",
    },
    "partial sums are added before they are reduced": {
        "target": "gpu:h100:8", "mesh": "2x4", **TENSOR,
    },
    "v5e adds partial sums too": {
        "target": "tpu:v5e:2x4", "mesh": "2x4", "dtype": "bfloat16", **TENSOR,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def service() -> Iterator[Inspection]:
    with closing(Inspection(run_workers=1)) as service:
        yield service


def layout_of(fields: dict[str, str]) -> Layout:
    return layouts.parse({"steps": "1", **fields}).unwrap()


def propagated(layout: Layout) -> Program:
    programs = propagated_programs(layout, only=("train_step",)).programs
    return next(one for one in programs if one.name == "train_step")


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
def test_traffic_is_that_of_the_compiled_program(
    service: Inspection, fields: dict[str, str]
) -> None:
    layout = layout_of(fields)
    assert layout.machine is not None
    if lacking := targets.missing_compiler(layout.machine):
        pytest.skip(lacking)
    answer = service.start_run(layout, service.plan(layout)).wait().answer()
    compiled, found = answer.program("train_step"), propagated(layout)
    assert compiled is not None
    sent = wire_bytes(compiled)
    assert sent.keys() == wire_bytes(found).keys()
    for axes, count in wire_bytes(found).items():
        assert count == pytest.approx(sent[axes], rel=0.01)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name]["target"] == "gpu:h100:8"])
def test_collectives_have_the_same_origins_as_without_the_passes(name: str) -> None:
    def origins(target: str) -> set[tuple[str, str]]:
        program = propagated(layout_of({**CASES[name], "target": target}))
        return {
            (origin.mesh_axis, origin.from_)
            for one in program.collectives or ()
            for origin in one.origins or ()
        }

    assert origins("gpu:h100:8") == origins("plan")
