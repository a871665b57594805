"""Files of published runs: the layout of each run, the reasons against it, and bad files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inspector.compare.measured import published_runs
from inspector.compare.measured.published_runs import PublishedRun
from inspector.text.errors import InvalidInput
from tests.paths import CASES

ROW: dict[str, Any] = {
    "id": "a-run",
    "source": {"repo": "someone/something", "config": "a.sh"},
    "hardware": {"chip": "v5p", "topology": "v5p-128", "slices": 1, "chips": 64, "devices": 64},
    "model": {
        **{"name": "a-model", "layers": 4, "d_model": 512, "heads": 8, "kv_heads": 2, "d_ff": 2048},
        **{"head_dim": 64, "vocab": 32000, "mlp_activations": '["relu"]', "tied_logits": "True"},
    },
    "seq": 2048,
    "layout": {"framework": "MaxText", "axes": {"ici": {"fsdp": 16, "tensor": 4}, "dcn": {}}},
    "batch": {"global_sequences": 128, "tokens": 262144},
    "remat": {"policy": "custom", "out_proj": "offload", "context": "device", "mlpwi": "remat"},
    "dtype": {"activations": "bfloat16", "weights": "float32", "mu": "bfloat16"},
    "optimizer": "adamw",
    "measured": {"step_seconds": 1.5},
}


def read(tmp_path: Path, *rows: Any) -> tuple[PublishedRun, ...]:
    file = tmp_path / "runs.json"
    file.write_text(json.dumps({"rows": rows}))
    return published_runs.read(file)


def changed(part: str, **values: Any) -> dict[str, Any]:
    return ROW | {part: ROW[part] | values}


def test_a_run_as_a_layout(tmp_path):
    (run,) = read(tmp_path, ROW)
    assert (run.chip, run.model, run.chips, run.seconds, run.reason) == (
        "v5p",
        "a-model",
        64,
        1.5,
        None,
    )
    layout = run.layout
    assert layout is not None
    assert (layout.target, layout.mesh_shape, layout.axis_names) == (
        *("tpu:v5p:4x4x4", (16, 4), ("fsdp", "tensor")),
    )
    assert layout.device_order == "torus"
    expected = {
        **{"layers": 4, "embed": 512, "mlp": 2048, "heads": 8, "kv_heads": 2, "head_dim": 64},
        **{"vocab": 32000, "seq": 2048, "batch": 128, "activation": "relu", "gated": False},
        **{"tied": True, "remat": "save:context,offload:out_proj", "optimizer": "adamw"},
        **{"dtype": "bfloat16", "weight_dtype": "float32", "optimizer_dtype": "bfloat16"},
    }
    assert {name: layout.sizes[name] for name in expected} == expected
    assert dict(layout.rules[:-1])["mlp"] == ("tensor",)
    # Activations, whose batch is on fsdp, are sharded over tensor by the last rule.
    assert layout.rules[-1] == ("embed", ("tensor",))


def test_a_row_that_contradicts_its_source(tmp_path):
    first = changed("model", name="fuji-7B") | {
        "layout": {"framework": "AXLearn", "axes": {"data": 4, "fsdp": 64}},
        "hardware": {"chip": "v5e", "topology": "v5e-256", "chips": 256, "devices": 256},
        "remat": {"policy": "dots_saveable"},
        "attention": "flash",
        "source": {"repo": "apple/axlearn", "config": "fuji.py"},
        "measured": {"step_seconds": 2.44},
        "xla_flags": [],
    }
    second = first | {"seq": 4096}
    wrong, right = read(tmp_path, first, second)
    assert wrong.layout is not None and right.layout is not None
    assert wrong.correction is not None and right.correction is None
    assert wrong.layout.mesh_shape == (16, 16) and right.layout.mesh_shape == (4, 64)
    sizes = ("attention", "remat")
    kept = "save:query_proj+key_proj+value_proj+context+out_proj"
    assert [wrong.layout.sizes[name] for name in sizes] == ["plain", kept]
    assert [right.layout.sizes[name] for name in sizes] == ["flash", "minimal"]
    # A row that says what the source says is not corrected again.
    (as_source,) = read(tmp_path, first | {"attention": "plain"})
    assert as_source.correction is None
    # Nor is a run of somebody else with the same model.
    (own,) = read(tmp_path, first | {"measured": {"step_seconds": 1.7}})
    assert own.correction is None


def test_a_row_without_the_options_of_its_launch_script(tmp_path):
    """MaxText/configs/v5p/*.sh at 76bd53b, and AXLearn's defaults by chip and number of slices."""
    maxtext = {"repo": "AI-Hypercomputer/maxtext", "commit": "76bd53b0", "config": "MaxText/configs/x.sh"}
    axlearn = {"repo": "apple/axlearn", "config": "fuji.py"}

    def options(source: dict[str, str], chip: str, **more: object) -> dict[str, str]:
        hardware = {"chip": chip, "slices": 1, **more}
        (run,) = read(tmp_path, ROW | {"source": source, "hardware": ROW["hardware"] | hardware})
        assert run.layout is not None
        given = dict(run.layout.compiler_options)
        assert bool(given) is (run.correction is not None)
        return given

    v5e, v5p = options(maxtext, "v5e"), options(maxtext, "v5p", topology="4x8x8")
    assert v5e["xla_tpu_enable_async_collective_fusion_fuse_all_gather"] == "true"
    assert v5p["xla_tpu_megacore_fusion_allow_ags"] == "false"
    assert all(one["xla_tpu_enable_data_parallel_all_reduce_opt"] == "true" for one in (v5e, v5p))
    assert options(axlearn, "v5e") == {"xla_tpu_enable_latency_hiding_scheduler": "true"}
    assert options(axlearn, "v6e")["xla_tpu_host_transfer_overlap_limit"] == "24"
    # Other commits, repositories and chips are not known here.
    assert not options(maxtext | {"commit": "0123456"}, "v5e")
    assert not options({"repo": "me/mine"}, "v5e")
    (own,) = read(tmp_path, ROW | {"source": maxtext, "xla_flags": ["--xla_gpu_ftz=true"]})
    assert own.layout is not None and own.correction is None
    assert dict(own.layout.compiler_options) == {"xla_gpu_ftz": "true"}


def test_the_options_of_the_compiler(tmp_path):
    flags = ["DENSE_VMEM_LIMIT_FLAG", "ADD_PROXY", "--xla_gpu_ftz=true", "--xla_gpu_ftz=false"]
    (run,) = read(tmp_path, ROW | {"xla_flags": flags})
    assert run.layout is not None
    assert run.layout.compiler_options == (
        ("xla_gpu_ftz", "false"),
        ("xla_tpu_scoped_vmem_limit_kib", "98304"),
    )


def test_the_scaled_models_of_maxtext_have_parallel_blocks(tmp_path):
    for name, parallel in (("maxtext-64b", True), ("llama2-70b", False)):
        (run,) = read(tmp_path, changed("model", name=name))
        assert run.layout is not None and run.layout.sizes["parallel"] == parallel


@pytest.mark.parametrize(
    ("hardware", "attention", "target"),
    [
        # The word says which of the slices of 256 chips it is. A name means the most compact one.
        ({"chip": "v5p", "topology": "4x4x16 (v5p-512)", "chips": 256}, None, "tpu:v5p:4x4x16"),
        ({"chip": "v5p", "topology": "v5p-512", "chips": 256}, None, "tpu:v5p:4x8x8"),
        ({"chip": "v5p", "topology": "4x8x8", "slices": 2, "chips": 512}, None, "tpu:v5p:4x8x8*2"),
        ({"chip": "h100", "topology": "two nodes", "chips": 16}, "plain", "gpu:h100:16"),
        ({"chip": "h100", "topology": "two nodes", "chips": 16}, "flash", "gpu:h100:16"),
        ({"chip": "v100-16gb", "topology": "one node", "chips": 8}, "plain", None),
    ],
)
def test_the_machine_of_a_run(tmp_path, hardware, attention, target):
    machine = {"slices": 1, "devices": hardware["chips"]} | hardware
    layout = {"framework": "MaxText", "axes": {"fsdp": machine["devices"]}}
    row = changed("batch", global_sequences=1024)
    (run,) = read(tmp_path, row | {"hardware": machine, "layout": layout, "attention": attention})
    assert (run.layout.target if run.layout else None) == target, run.reason
    assert (run.reason is None) == (target is not None)


@pytest.mark.parametrize(
    ("name", "window", "expected"),
    [("gemma3-12b", 1024, (1024, 6)), ("gpt-oss-120b", 128, (128, 2)), ("mistral-7b", 1024, (1024, 0))],
)
def test_sliding_windows(tmp_path, name, window, expected):
    (run,) = read(tmp_path, changed("model", name=name, sliding_window_size=window, layers=12))
    assert run.layout is not None, run.reason
    assert (run.layout.sizes["window"], run.layout.sizes["global_every"]) == expected
    # A sequence that is not longer than the window has none.
    (run,) = read(tmp_path, changed("model", name=name, sliding_window_size=2048, layers=12))
    assert run.layout is not None and run.layout.sizes["window"] == 0
    if "gemma" in name:
        assert read(tmp_path, changed("model", name=name))[0].layout is None


def test_a_mixture_of_experts(tmp_path):
    experts = {"num_experts": 32, "num_experts_per_tok": 4, "moe_mlp_dim": 256}
    deepseek = {"first_num_dense_layers": 1, "shared_experts": 2, "q_lora_rank": 96, "kv_lora_rank": 64}
    dropless, dense_first = (
        read(tmp_path, changed("model", **experts, **more))[0].layout for more in ({}, deepseek)
    )
    assert dropless is not None and dense_first is not None
    expected = {
        "experts": 32,
        "experts_per_token": 4,
        "mlp": 256,
        "routing": "sorted",
        "capacity_factor": 1.0,
    }
    assert {name: dropless.sizes[name] for name in expected} == expected
    expected |= {"dense_layers": 1, "dense_mlp": 2048, "shared_mlp": 512, "q_rank": 96, "kv_rank": 64}
    assert {name: dense_first.sizes[name] for name in expected} == expected
    layout = {**ROW["layout"], "flags": {"megablox": "False", "sparse_matmul": "False"}}
    (drops,) = read(tmp_path, changed("model", **experts) | {"layout": layout})
    assert drops.layout is not None
    assert [drops.layout.sizes[name] for name in ("routing", "capacity_factor")] == ["masks", 1.25]


@pytest.mark.parametrize(("published", "name"), [("fp8_full", "fp8"), ("int8", "int8"), (None, "none")])
def test_quantized_products(tmp_path, published, name):
    (run,) = read(tmp_path, changed("dtype", quantization=published))
    assert run.layout is not None and run.layout.sizes["quantization"] == name


def test_levanter_shards_parameters_over_its_data_axis(tmp_path):
    row = changed("batch", grad_accumulation=2)
    for framework, axes in (("Levanter", ("data",)), ("AXLearn", ())):
        layout = {"framework": framework, "axes": {"data": 64}}
        (run,) = read(tmp_path, row | {"layout": layout})
        assert run.layout is not None, run.reason
        assert dict(run.layout.rules).get("embed", ()) == axes
        assert run.layout.sizes["accumulate"] == 2


@pytest.mark.parametrize(
    ("measured", "seconds"),
    [
        ({"step_seconds_derived": 2.0}, 2.0),
        ({"tokens_per_s_per_chip": 2048}, 2.0),
        ({"sequences_per_s": 64}, 2.0),
        ({"step_seconds_upper_bound": 2.0}, None),
        ({"step_seconds": -1}, None),
        ({"step_seconds": "2"}, None),
    ],
)
def test_the_measured_step(tmp_path, measured, seconds):
    (run,) = read(tmp_path, ROW | {"measured": measured})
    assert run.seconds == seconds
    assert (run.layout is None) == (seconds is None)


NOT_REPRODUCIBLE = {
    "incomplete": ROW | {"complete": False},
    "quantized to an unknown type": changed("dtype", quantization="int1"),
    "windows of an unknown size": changed("model", name="gemma3-12b"),
    "an unknown chip": changed("hardware", chip="abacus"),
    "no chips": changed("hardware", chips=None),
    "a mesh that does not fit": changed("layout", axes={"fsdp": 7}),
    "an axis without a size": changed("layout", axes={"fsdp": "all"}),
    "a strange axis": changed("layout", axes={"fsdp": 32, "stage": 2}),
    "no width": changed("model", d_model=None),
    "no vocabulary": changed("model", vocab="unknown"),
    "a strange activation": changed("model", mlp_activations='["swish"]'),
    "a strange policy": changed("remat", policy="see elsewhere"),
    "a strange compiler flag": ROW | {"xla_flags": ["FASTER"]},
    "an option that starts a program": ROW | {"xla_flags": ["--xla_gpu_cuda_data_dir=/tmp/a"]},
    "a value outside of the range": ROW | {"xla_flags": ["--xla_latency_hiding_scheduler_rerun=99"]},
    "nothing": {"id": "nothing"},
    "wrong types": {"id": "wrong", "hardware": [], "model": 3, "measured": "x", "layout": None},
}


@pytest.mark.parametrize("name", NOT_REPRODUCIBLE)
def test_what_cannot_be_reproduced_has_a_reason(tmp_path, name):
    (run,) = read(tmp_path, NOT_REPRODUCIBLE[name])
    assert run.layout is None and run.reason


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"rows": 3}', '{"rows": [3]}', '{"rows": [{}]}', "[" * 10**5]
)
def test_bad_files(tmp_path, text):
    file = tmp_path / "runs.json"
    file.write_text(text)
    with pytest.raises(InvalidInput):
        published_runs.read(file)
    with pytest.raises(InvalidInput):
        published_runs.read(tmp_path)


@pytest.mark.skipif(not CASES.is_dir(), reason="needs the third-party cases beside the checkout")
def test_most_dense_runs_of_the_shared_file_are_layouts():
    runs = published_runs.read(CASES / "measured" / "published_runs.json")
    layouts = [run for run in runs if run.layout is not None]
    assert len(layouts) >= 45
    assert len({run.chip for run in layouts}) >= 4 and len({run.model for run in layouts}) >= 6
    assert all(run.reason for run in runs if run.layout is None)
