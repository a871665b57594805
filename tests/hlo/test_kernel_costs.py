"""What a kernel states about its cost, against XLA's own cost analysis of the text of a TPU compiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inspector import hlo
from inspector import layout as layouts
from inspector.assessment import assess
from inspector.hlo import kernel_costs
from inspector.machines import targets
from inspector.machines.hardware import CHIPS
from inspector.model import Model
from inspector.model.built_in import catalogue
from inspector.partition.partition_layout import partitioned_programs
from inspector.prediction.predicted import predicted
from inspector.records import snapshot as snapshots
from inspector.text.errors import InvalidInput
from inspector.tracing.model.describe import costs_of_kernels, entry_of
from tests.media.terminal.command import inspector
from tests.model.importable import importable

TEXT = """HloModule m

ENTRY main {{
  x = f32[64,128] parameter(0)
  ROOT k = bf16[64,128] custom-call(x), custom_call_target="tpu_custom_call", backend_config={config}
}}
"""
STATED = (
    '{"custom_call_config":{"body":"TUzv","cost_estimate":{"flops":"12345","transcendentals":"4",'
    '"bytes_accessed":"777"}}}'
)
FLOPS, MOVED = 12_345, 777
WHOLE = 64 * 128 * (4 + 2)  # bytes of the operand and the result


@pytest.mark.parametrize(
    ("config", "flops", "moved"),
    [
        (STATED, FLOPS, MOVED),
        (STATED.replace('"', "").replace("TUzv", "x"), None, WHOLE),
        (STATED.replace('"777"', '"0"'), FLOPS, WHOLE),
        (STATED.replace('"777"', "777").replace('"12345"', "12345"), FLOPS, MOVED),
        (STATED.replace("12345", "9" * 30), None, MOVED),
        ('{"custom_call_config":{"body":"TUzv"}}', None, WHOLE),
    ],
)
def test_a_stated_cost_counts(config: str, flops: int | None, moved: int) -> None:
    (module,) = hlo.parser.parse(TEXT.format(config=config))
    work = hlo.work.work(module)
    assert work.bytes_accessed == moved
    if flops is None:
        assert work.flops == 0 and work.not_counted == ("tpu_custom_call",)
    else:
        assert work.flops == flops and not work.not_counted
        assert [(matmul_flops.dtype, matmul_flops.flops) for matmul_flops in work.matmul or ()] == [
            ("f32", flops)
        ]


def test_other_instructions_state_nothing() -> None:
    (module,) = hlo.parser.parse(TEXT.format(config=STATED))
    entry = module.by_name["main"]
    assert kernel_costs.stated(entry.by_name["x"]) is None
    assert kernel_costs.stated(entry.by_name["k"]) == (FLOPS, MOVED)


KERNEL = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.sharding import PartitionSpec as P

from inspector.model import Model, by_regex


def doubled(ref, result):
    result[...] = ref[...] * 2


def of_mesh(sizes):
    return {"twice": (4e10 / sizes["data"], 7e6), "another": (1, 1)}


def build(*, rows: int = 1024, stated: bool = True, costs: bool = False):
    cost = pl.CostEstimate(flops=123_456_789, bytes_accessed=1_000_000, transcendentals=0)
    kernel = pl.pallas_call(
        doubled, out_shape=jax.ShapeDtypeStruct((rows // 8, 512), jnp.float32),
        cost_estimate=cost if stated else None, name="twice",
    )

    def apply(params, batch):
        mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
        mapped = jax.shard_map(
            kernel, mesh=mesh, in_specs=P("data", None), out_specs=P("data", None), check_vma=False
        )
        return mapped(batch["x"] @ params["w"])

    return Model(
        init=lambda key, batch: {"w": jnp.ones((512, 512))}, programs={"forward": apply},
        batch={"x": jax.ShapeDtypeStruct((rows, 512), jnp.float32)}, batch_axes={"x": ("data", None)},
        mesh={"data": 8}, state_specs=by_regex([(".*", P())]),
        kernel_costs=of_mesh if costs else {},
    )
"""


@pytest.fixture(scope="module")
def kernel_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with importable(tmp_path_factory.mktemp("kernel"), "their_kernel", KERNEL):
        yield "their_kernel:build"


@pytest.mark.nightly
@pytest.mark.parametrize("stated", [True, False])
def test_the_estimate_of_a_pallas_kernel_reaches_the_step(
    kernel_model: str, stated: bool, tmp_path: Path
) -> None:
    """Each device multiplies 128 rows with 512 × 512 weights, and runs the kernel once."""
    target = targets.parse("tpu:v5e:2x4")
    if missing := targets.missing_compiler(target):
        pytest.skip(missing)
    path = tmp_path / "s.json"
    options = ("--target", target.text, "--set", f"stated={stated}".lower(), "-o", str(path))
    done = inspector("inspect", "--model", kernel_model, *options)
    assert done.returncode == 0, done.stderr
    snapshot = snapshots.read(path)
    (program,) = (one for one in snapshot.programs if one.name == "forward")
    products = 2 * 128 * 512 * 512
    step = assess(snapshot).step
    assert step is not None
    if stated:
        assert program.flops_per_device == products + 123_456_789
        assert step.at_least is None and step.low < step.seconds < step.high
    else:
        assert program.flops_per_device == products
        assert step.at_least is not None and "twice" in step.at_least
        assert (step.low, step.high) == (None, None)


PRODUCTS = 2 * 128 * 512 * 512  # FLOPs of one device
V5E = CHIPS["v5e"]


def test_a_kernel_is_counted_before_a_compile(kernel_model: str) -> None:
    """With its author's cost, with that of the model, and else as a lower bound that names it."""
    catalogue.register(entry_of(kernel_model))
    for sizes, flops, known in (
        ({}, PRODUCTS + 123_456_789, True),
        ({"stated": "false"}, PRODUCTS, False),
        ({"stated": "false", "costs": "true"}, PRODUCTS + 5e9, True),
    ):
        layout = layouts.parse({"model": kernel_model, "target": "tpu:v5e:2x4", **sizes}).unwrap()
        (program,) = (one for one in partitioned_programs(layout).programs if one.name == "forward")
        assert program.flops_per_device == flops, sizes
        step = predicted(program, layout.mesh(), V5E)
        assert bool(step.at_least) != known
        assert program.work is not None and bool(program.work.not_counted) != known
        if not known:
            assert program.work.not_counted == ("twice",)
            (calls,) = program.work.kernels
            assert (calls.calls, calls.bytes, calls.dtype) == (1, 2 * 128 * 512 * 4, "f32")
            assert any("twice" in reason for reason in step.at_least)
        assert bool(program.assumptions) == ("costs" in sizes)


@pytest.mark.parametrize("cost", [3, (1,), (1, -1), ("1", 2), (1e19, 1), None])
def test_a_cost_of_a_model_is_two_numbers(cost: Any) -> None:
    model = Model(init=lambda key, batch: {}, batch={}, kernel_costs={"mine": cost})
    with pytest.raises(InvalidInput, match="kernel_costs has"):
        costs_of_kernels(model, "models:build", {})
    of_mesh = replace(model, kernel_costs=lambda sizes: {"mine": (sizes["x"], 2.0)})
    assert costs_of_kernels(of_mesh, "models:build", {"x": 4}) == (("mine", 4.0, 2),)
