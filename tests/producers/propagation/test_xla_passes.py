"""Propagated programs for GPUs and TPUs against the programs that their compilers make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from jax.interpreters import mlir
from jaxlib.mlir import ir

from inspector import layout as layouts
from inspector.core.snapshot import Program
from inspector.layout import Layout
from inspector.machines import targets
from inspector.machines.hardware import Kind
from inspector.producers.propagation import xla_passes
from inspector.producers.propagation.propagate import propagated_programs
from inspector.producers.propagation.walk import operations
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
    "v5e gathers weights as bfloat16": {
        "target": "tpu:v5e:2x2", "mesh": "4", "depth": "256", "layers": "1", "batch": "64", **FSDP,
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


DEFAULT = "precision = [DEFAULT, DEFAULT]"
# As JAX writes `DotAlgorithmPreset.F32_F32_F32`.
IN_FLOAT32 = (
    "algorithm = <lhs_precision_type = f32, rhs_precision_type = f32, accumulation_type = f32, "
    "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, "
    "allow_imprecise_accumulation = false>"
)


@pytest.mark.parametrize(
    ("kind", "settings", "uses", "sent"),
    [
        ("tpu", DEFAULT, "", "bf16"),
        ("tpu", "precision = [HIGHEST, HIGHEST]", "", "f32"),
        ("tpu", f"{DEFAULT}, {IN_FLOAT32}", "", "f32"),
        ("tpu", DEFAULT, "%more = stablehlo.add %gathered, %gathered : tensor<8x8xf32>", "f32"),
        ("gpu", DEFAULT, "", "f32"),
        (None, DEFAULT, "", "f32"),
    ],
)
def test_only_operands_of_products_are_narrowed(
    kind: Kind | None, settings: str, uses: str, sent: str
) -> None:
    text = f"""
        sdy.mesh @mesh = <["x"=4]>
        func.func @main(
            %batch: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{}}]>}},
            %weight: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}}
        ) -> tensor<8x8xf32> {{
            %sent = sdy.collective_permute %weight out_sharding=<@mesh, [{{"x"}}, {{}}]>
                : tensor<8x8xf32>
            %gathered = sdy.all_gather [{{"x"}}, {{}}] %sent out_sharding=<@mesh, [{{}}, {{}}]>
                : tensor<8x8xf32>
            {uses}
            %turned = stablehlo.transpose %gathered, dims = [1, 0]
                : (tensor<8x8xf32>) -> tensor<8x8xf32>
            %product = stablehlo.dot_general %batch, %turned, contracting_dims = [1] x [0], {settings}
                : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
            return %product : tensor<8x8xf32>
        }}"""
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        xla_passes.run(module.operation, kind)
        assert module.operation.verify()
        found = {
            one.name: str(ir.RankedTensorType(one.results[0].type).element_type)
            for one in operations(module.operation)
            if one.name.startswith("sdy.") and len(one.results) == 1
        }
    assert found == {"sdy.collective_permute": sent, "sdy.all_gather": sent}
