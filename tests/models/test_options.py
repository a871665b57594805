"""Options of the language models on explicit mesh axes, and the names of MaxText's policies."""

from __future__ import annotations

import pytest

from inspector.assessment.assess import traffic_of
from inspector.compiling.run_layout import run_layout
from inspector.model.built_in import remat_names
from inspector.partition.partition_layout import partitioned_programs
from inspector.text.errors import InvalidInput
from tests.models.language_models import small

LATENT = {"kv_rank": "8", "q_rank": "8", "rotary_dim": "4", "kv_heads": "4"}


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("transformer", LATENT),
        ("transformer", {"quantization": "fp8"}),
        ("transformer", {"window": "4", "global_every": "2"}),
        ("moe", {"routing": "sorted", "shared_mlp": "16", "dense_layers": "1"}),
    ],
)
def test_an_option_shards_on_explicit_axes(model: str, options: dict[str, str]) -> None:
    rules = "batch=fsdp,embed=fsdp,heads=tensor,kv_heads=tensor,mlp=tensor"
    layout = small(
        model, scan="true", mesh="2x2", axes="fsdp:explicit,tensor:explicit", rules=rules, **options
    )
    stages = {program.name: program.stage for program in partitioned_programs(layout, origins=False).programs}
    assert stages == dict.fromkeys(("init", "train_step", "apply"), "partitioned")


def test_the_policies_of_maxtext() -> None:
    """By MaxText's get_remat_policy: what is saved on the device, and what in host memory."""
    kept = {name: remat_names.kept(remat_names.normalized(name)) for name in remat_names.OF_MAXTEXT}
    projections = {"query_proj", "key_proj", "value_proj"}
    assert {name for name, (_, offloaded) in kept.items() if offloaded} == {
        *("qkv_proj_offloaded", "minimal_offloaded")
    }
    assert set(kept["qkv_proj_offloaded"][1]) == projections
    assert set(kept["save_dot_with_context_except_mlp"][0]) == {*projections, "context", "out_proj"}
    # `minimal_with_context` is `minimal` and the result of attention.
    saved, _ = remat_names.kept("minimal")
    assert set(kept["minimal_with_context"][0]) == {*saved, "context"} - {"mlpwi_0", "mlpwi_1"}


RING = {"attention": "ring", "mesh": "2x4", "axes": "data,context", "rules": "batch=data,seq=context"}


@pytest.mark.parametrize(
    ("options", "blocks"),
    [({"scan": "true"}, 4), ({"window": "3"}, 2), ({"scan": "true", "kv_rank": "8"}, 4)],
)
def test_a_ring_passes_blocks_along_the_axis_of_the_sequence(options: dict[str, str], blocks: int) -> None:
    """A layer passes the keys and values, and in the backward pass their gradients, too, and those home."""
    latent = {"kv_heads": "4", "q_rank": "8", "rotary_dim": "4"} if "kv_rank" in options else {}
    layout = small("transformer", **RING, **options, **latent)
    (program,) = partitioned_programs(layout, origins=False, only=("train_step",)).programs
    sent = [collective for collective in program.collectives or () if collective.op == "collective-permute"]
    assert {collective.mesh_axes for collective in sent} == {("context",)}
    layers = 2
    assert sum(collective.executions or 0 for collective in sent) == layers * (3 * 2 * (blocks - 1) + 2)
    if not latent:
        # Of 8 sequences with 16 tokens, a device has 4 with 4: two heads with 8 elements of 4 bytes.
        assert {collective.payload_bytes for collective in sent} == {4 * 4 * 2 * 8 * 4}
    # No device has all keys: nothing else crosses the axis but sums of gradients.
    others = {
        collective.op for collective in program.collectives or () if "context" in (collective.mesh_axes or ())
    }
    assert others == {"collective-permute", "all-reduce"}
    assert not program.pipelines


def test_a_ring_needs_blocks_of_one_size() -> None:
    layout = small("transformer", **RING, seq="18")
    with pytest.raises(InvalidInput, match="seq is 18, but must be a multiple of 4 for ring attention"):
        partitioned_programs(layout, origins=False, only=("train_step",))


def test_a_ring_needs_microbatches_that_devices_can_share() -> None:
    needed = (
        "batch is 2, but must be a multiple of 4 for ring attention, also in each microbatch: data shards it"
    )
    ring = RING | {"mesh": "4x2"}
    with pytest.raises(InvalidInput, match=needed):
        partitioned_programs(small("transformer", **ring, stages="2", microbatches="4"), origins=False)
    # Inference has the whole batch.
    answer = partitioned_programs(small("transformer", **ring, accumulate="4"), origins=False)
    assert [program.name for program in answer.programs] == ["init", "apply"]
    assert [finding.message for finding in answer.findings] == [f"train_step: {needed}"]


def test_a_ring_on_more_devices_than_can_be_emulated_is_unknown() -> None:
    layout = small(
        "transformer", **RING | {"mesh": "64x64", "target": "plan"}, seq="1024", batch="64", scan="true"
    )
    with pytest.raises(InvalidInput, match=r"the mesh has 4,096 devices, .* its shard_map"):
        partitioned_programs(layout, origins=False, only=("train_step",))


def test_a_sequence_on_one_device_needs_no_ring() -> None:
    layout = small("transformer", **RING | {"rules": "batch=data"})
    (program,) = partitioned_programs(layout, origins=False, only=("train_step",)).programs
    assert "collective-permute" not in {collective.op for collective in program.collectives or ()}


@pytest.mark.nightly
def test_the_costs_of_a_ring_are_those_of_the_compiled_program() -> None:
    layout = small("transformer", **RING, scan="true")
    (partitioned,) = partitioned_programs(layout, origins=False, only=("train_step",)).programs
    compiled = run_layout(layout, lambda *_, **__: None).program("train_step")
    assert compiled is not None and compiled.work is not None and partitioned.work is not None
    assert traffic_of(partitioned, layout.mesh()) == traffic_of(compiled, layout.mesh()) is not None
    assert partitioned.work.matmul_flops == pytest.approx(compiled.work.matmul_flops, rel=0.01)
    assert not compiled.pipelines
