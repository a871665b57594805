"""Options of the language models on explicit mesh axes, and the names of MaxText's policies."""

from __future__ import annotations

import pytest

from inspector.model.built_in import remat_names
from inspector.producers.partition.partition_layout import partitioned_programs
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
