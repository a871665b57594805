"""Partitioned programs against the programs that XLA compiles for emulated devices."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from inspector import layout as layouts
from inspector.compiled import program_text
from inspector.layout import Layout
from inspector.model.built_in.watching import Watched, listening
from inspector.partition import template
from inspector.partition.partition_layout import partition, partitioned_programs
from inspector.recording.inspected import inspect
from inspector.records.snapshot import Program
from inspector.tracing.leaves import mesh_record
from inspector.tracing.model.build import build_model, make_mesh, signatures, tracing

pytestmark = pytest.mark.close_to_jax

TENSOR = "vocab=tensor,mlp=tensor,heads=tensor,kv_heads=tensor"
SMALL = {"batch": "8", "seq": "32", "embed": "64", "mlp": "128", "vocab": "256", "layers": "1"}

# Fields of a layout, and whether the matrix FLOPs are equal, too: XLA folds some products of constants.
CASES = {
    "mlp, data and tensor": ({"mesh": "2x4", "depth": "64"}, False),
    "mlp, fsdp": (
        {"mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp", "depth": "64"},
        False,
    ),
    "mlp, optimizer state over the data axis": (
        {"mesh": "2x4", "depth": "64", "optimizer_axes": "data"},
        False,
    ),
    "mlp with device axes": ({"model": "mlp", "mesh": "2x4", "depth": "64"}, False),
    "mlp, fsdp and tensor: the backward pass gathers again": (
        {
            "mesh": "2x4", "axes": "fsdp,tensor", "rules": "batch=fsdp,embed=fsdp,hidden=tensor",
            "depth": "64",
        },
        True,
    ),
    "transformer, two dimensions of parameters and activations sharded": (
        {
            "model": "transformer", "mesh": "2x4", "axes": "data,model",
            "rules": "batch=data,vocab=model,mlp=model,heads=model,kv_heads=model,head_dim=,embed=model,"
            "embed=data,seq=,layers=",
            **SMALL,
        },
        False,
    ),
    "transformer, fsdp": (
        {
            "model": "transformer", "mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp",
            **SMALL,
        },
        True,
    ),
    "transformer, fsdp and tensor, scan": (
        {
            "model": "transformer", "mesh": "2x4", "axes": "fsdp,tensor",
            "rules": f"{TENSOR},batch=fsdp,embed=fsdp", "scan": "true", **SMALL, "layers": "2",
        },
        True,
    ),
    "transformer, data and tensor": (
        {
            "model": "transformer", "mesh": "2x4", "axes": "data,tensor",
            "rules": f"{TENSOR},batch=data", **SMALL,
        },
        True,
    ),
    "transformer, tensor and sequence": (
        {
            "model": "transformer", "mesh": "2x4", "axes": "data,tensor",
            "rules": f"{TENSOR},batch=data,seq=tensor", **SMALL,
        },
        True,
    ),
    "mlp, explicit data": ({"mesh": "2x4", "axes": "data:explicit,model", "depth": "64"}, False),
    "transformer, explicit axes, scan and remat": (
        {
            "model": "transformer", "mesh": "2x4", "axes": "fsdp:explicit,tensor:explicit",
            "rules": f"{TENSOR},batch=fsdp,embed=fsdp", "scan": "true", "remat": "true",
            **SMALL, "layers": "2",
        },
        True,
    ),
    "moe, explicit axes": (
        {
            "model": "moe", "mesh": "2x4", "axes": "data:explicit,expert:explicit",
            "rules": "expert=expert,batch=data", **SMALL,
        },
        False,
    ),
    "moe, data and expert, scan": (
        {
            "model": "moe", "mesh": "2x4", "axes": "data,expert",
            "rules": "expert=expert,batch=data", "scan": "true", **SMALL, "layers": "2",
        },
        False,
    ),
}  # fmt: skip


def layout_of(fields: Mapping[str, str]) -> Layout:
    return layouts.parse(dict(fields)).unwrap()


def wire_bytes(program: Program) -> Counter[tuple[str, ...] | None]:
    """Bytes that one device sends in one run, by mesh axes."""
    sent: Counter[tuple[str, ...] | None] = Counter()
    for collective in program.collectives or ():
        assert collective.executions is not None and collective.wire_bytes_per_device is not None
        sent[collective.mesh_axes] += collective.executions * collective.wire_bytes_per_device
    return +sent


def compiled(layout: Layout, name: str, watched: list[Watched] | None = None) -> Program:
    """The program as XLA compiles it for emulated devices. Its watched values are added to `watched`."""
    mesh = make_mesh(layout)
    with tracing(layout, mesh), listening((watched if watched is not None else []).append):
        signature = next(each for each in signatures(build_model(layout), layout, mesh) if each.name == name)
        wanted = tuple(signature.outputs.values())
        jitted = jax.jit(
            signature.function,
            in_shardings=tuple(sharding for _, sharding in signature.inputs.values()),
            out_shardings=wanted[0] if len(wanted) == 1 else wanted,
        )
        text = jitted.lower(*signature.arguments).compile().as_text()
    read = program_text.read(text, mesh_record(mesh))
    return Program(name, collectives=read.collectives, work=read.work)


def train_step(layout: Layout) -> Program:
    programs = partitioned_programs(layout).programs
    return next(program for program in programs if program.name == "train_step")


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("fields", "same_flops"), CASES.values(), ids=CASES)
def test_traffic_is_that_of_the_compiled_program(fields: dict[str, str], same_flops: bool) -> None:
    layout = layout_of(fields)
    program, expected = train_step(layout), compiled(layout, "train_step")
    assert program.stage == "partitioned"
    sent, sent_compiled = wire_bytes(program), wire_bytes(expected)
    assert sent.keys() == sent_compiled.keys()
    for axes, count in sent_compiled.items():
        assert sent[axes] == pytest.approx(count, rel=0.001)
    if same_flops:
        assert program.work is not None and expected.work is not None
        assert program.work.matmul is not None and expected.work.matmul is not None
        assert program.work.matmul[0].flops == expected.work.matmul[0].flops


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    ["transformer, fsdp and tensor, scan", "transformer, fsdp", "moe, data and expert, scan"],
)
def test_an_initialization_sends_what_is_compiled(name: str) -> None:
    """XLA removes the forward pass, whose results nothing uses."""
    layout = layout_of(CASES[name][0])
    (program,) = partitioned_programs(layout, only=("init",)).programs
    assert wire_bytes(program) == wire_bytes(compiled(layout, "init"))


@pytest.mark.first_jax_is_enough
@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", ["mlp, fsdp", "transformer, data and tensor", "moe, data and expert, scan"])
def test_activations_and_gradients_are_placed_as_compiled(name: str) -> None:
    layout = layout_of(CASES[name][0])
    arrays = partitioned_programs(layout).arrays
    watched: list[Watched] = []
    compiled(layout, "train_step", watched)
    placed = {each.path: each for each in reversed(watched)}  # of repeated values the first
    assert {array.path for array in arrays} == set(placed)
    assert {array.group for array in arrays} == {"activation", "gradient"}
    for array in arrays:
        value = placed[array.path]
        assert (array.shape, array.dtype) == (value.shape, str(jax.numpy.dtype(value.dtype)))
        assert array.shard_shape == value.sharding.shard_shape(value.shape), array.path
        axes = {axis for each in array.spec or () for axis in each or ()}
        assert {origin.mesh_axis for origin in array.origins or ()} == axes


@pytest.mark.first_jax_is_enough
def test_a_weight_that_is_gathered_for_a_product_is_a_conflict() -> None:
    program = train_step(layout_of(CASES["mlp, fsdp"][0]))
    named = {collective.name: collective for collective in program.collectives or ()}
    assert program.conflicts
    for conflict in program.conflicts:
        x, weight, _ = conflict.sides
        assert x.spec == x.used == (("fsdp",), None)
        assert ("fsdp",) in weight.spec and weight.used == (None, None)
        assert {origin.mesh_axis for origin in weight.origins or ()} == {"fsdp"}
        (gather,) = (named[name] for name in conflict.collectives)
        assert gather.op == "all-gather"
        assert gather.payload_bytes == math.prod(weight.shape) * 4
        # JAX 0.12 names the operation whose result is gathered.
        assert gather.source == conflict.source or gather.op_name.endswith("/sharding_constraint")


@pytest.mark.first_jax_is_enough
@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_equal_operands_the_one_that_the_partitioned_product_reads_is_gathered(swapped: bool) -> None:
    """Both are square and sharded by rows; XLA gathers the right one, whichever array that is."""
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",), axis_types=(AxisType.Auto,))
    square = jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, PartitionSpec("x")))
    function = jax.jit(
        lambda a, b: (b @ (2 * a)) if swapped else ((2 * a) @ b), out_shardings=square.sharding
    )
    snapshot = inspect(function, square, square)
    (conflict,) = snapshot.programs[0].conflicts or ()
    left, right, _ = conflict.sides
    assert left.spec == left.used == right.spec == (("x",), None) and right.used == (None, None)
    text = function.lower(square, square).compile().as_text()
    (operands,) = re.findall(r"= f32\[\S+ dot\((.*?)\)", text)
    shapes = dict(re.findall(r"(%\S+) = f32\[([\d,]+)\]", text))
    assert [shapes[name] for name in re.findall(r"%[\w.-]+", operands)] == ["16,64", "64,64"]


@pytest.mark.first_jax_is_enough
def test_a_path_leads_from_the_source_over_the_operations_to_the_value() -> None:
    """The hidden layer is sharded by its constraint; the product before it and its gradient follow."""
    program = train_step(layout_of({"mesh": "2x4", "depth": "64"}))
    steps = [
        step
        for collective in program.collectives or ()
        for origin in collective.origins or ()
        for step in origin.steps or ()
    ]
    assert {step.direction for step in steps} == {"forward"}
    assert {step.operation for step in steps} >= {"select"}
    assert all(step.source and step.source.startswith("logical_mlp.py:") for step in steps)


@pytest.mark.nightly
def test_another_mesh_and_other_rules_use_the_same_lowered_module() -> None:
    template.programs_of.cache_clear()
    first = layout_of({"mesh": "2x4", "depth": "64"})
    second = layout_of({"mesh": "4x4", "depth": "64", "rules": "batch=model,embed=data"})
    train_step(first)
    train_step(second)
    assert template.programs_of.cache_info().misses == 1


@pytest.mark.nightly
def test_a_mesh_may_have_more_devices_than_any_machine() -> None:
    fields = {"mesh": "64x64", "depth": "4096", "batch": "4096", "target": "tpu:v5p:16x16x16"}
    program = train_step(layout_of(fields))
    assert {collective.group_size for collective in program.collectives or ()} == {64}


@pytest.mark.nightly
@pytest.mark.parametrize("rule", ["hidden=model", "batch=data"])
def test_without_the_rule_behind_a_mesh_axis_its_collectives_disappear(rule: str) -> None:
    rules = ["batch=data", "hidden=model"]
    fields = {"mesh": "2x4", "depth": "64"}
    axis = rule.partition("=")[2]
    with_rule = compiled(layout_of({**fields, "rules": ",".join(rules)}), "train_step")
    rest = ",".join(each for each in rules if each != rule)
    without = layout_of({**fields, "rules": rest})
    assert (axis,) in wire_bytes(with_rule)
    assert (axis,) not in wire_bytes(compiled(without, "train_step"))
    assert (axis,) not in wire_bytes(train_step(without))


def test_origins_name_the_constraint_or_the_array_that_a_mesh_axis_came_from() -> None:
    program = train_step(layout_of({"mesh": "2x4", "depth": "64"}))
    for collective in program.collectives or ():
        assert collective.origins
        assert {origin.mesh_axis for origin in collective.origins} == set(collective.mesh_axes or ())
        for origin in collective.origins:
            assert origin.from_.startswith(("constraint logical_mlp.py:", "params/", "batch/"))
            assert origin.rule in ("batch → data", "hidden → model")


def test_the_job_gives_programs_as_json() -> None:
    layout = layout_of({"mesh": "2x4", "depth": "64"})
    answer = partition({"layout": layout.to_json(), "origins": True}, lambda *_, **__: None)
    assert [each["name"] for each in answer["programs"]] == ["init", "train_step", "apply"]
    assert {each["stage"] for each in answer["programs"]} == {"partitioned"}
