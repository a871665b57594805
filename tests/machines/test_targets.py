"""Targets as text, what they need, and the files that describe GPUs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.core.errors import InvalidInput
from inspector.machines import targets
from inspector.machines.hardware import CHIPS
from inspector.machines.slices import GENERATIONS, named_slices
from inspector.machines.targets import GPU_CHIPS, Target
from inspector.service.engine import Environment
from tests.paths import ROOT

GPU_FILES = ROOT / "inspector" / "machines" / "gpu_targets"


def test_every_named_slice_is_a_target_by_its_topology_and_by_its_name() -> None:
    for generation in GENERATIONS:
        for one in named_slices(generation):
            target = targets.parse(f"tpu:{one.name}")
            assert target == targets.parse(f"tpu:{generation}:{one.topology}")
            assert target == targets.parse(target.text)
            assert (target.devices, target.hosts) == (one.devices, one.hosts)


@pytest.mark.parametrize(
    ("text", "devices", "hosts", "chip"),
    [
        ("tpu:v5p:4x4x4", 64, 16, "v5p"),
        ("TPU:V5E:4X4 ", 16, 4, "v5e"),
        ("tpu:tpu7x:4x4x4", 128, 16, "tpu7x"),
        ("gpu:h100:8", 8, 1, "h100"),
        ("gpu:a100:1", 1, 1, "a100"),
        ("gpu:b200:16384", 16384, 2048, "b200"),
    ],
)
def test_a_target_has_the_devices_of_its_machine(
    text: str, devices: int, hosts: int, chip: str
) -> None:
    target = targets.parse(text)
    assert (target.devices, target.hosts, target.chip) == (devices, hosts, CHIPS[chip])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "tpu:<generation>:<topology> such as tpu:v5p:4x4x4"),
        ("cpu", "gpu:<chip>:<count> such as gpu:h100:8"),
        ("tpu:v5p", "must be tpu:<generation>"),
        ("tpu:v9:2x2", "generation is 'v9', but must be one of v3"),
        ("tpu:v5p:3x4x4", "'3x4x4', but must be"),
        ("gpu:h100", "must be tpu:<generation>"),
        ("gpu:rtx:8", "GPU is 'rtx', but must be one of a100, h100, h200, b200"),
        ("gpu:h100:0", "must be 1 to 8, or a multiple of 8"),
        ("gpu:h100:12", "must be 1 to 8, or a multiple of 8"),
        ("gpu:h100:99999999999", "must be 1 to 8, or a multiple of 8"),
    ],
)
def test_what_is_no_target_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        targets.parse(text)


@given(st.text(max_size=30) | st.from_regex(r"(tpu|gpu):[a-z0-9]{0,6}:[0-9x]{0,9}", fullmatch=True))
def test_any_text_is_a_target_or_a_sentence(text: str) -> None:
    try:
        target = targets.parse(text)
    except InvalidInput as refused:
        assert str(refused).startswith("target ")
    else:
        assert targets.parse(target.text) == target


def test_a_mesh_of_another_size_is_refused() -> None:
    target = targets.parse("tpu:tpu7x:2x2x1")
    targets.refuse_other_size(target, (2, 4))
    with pytest.raises(
        InvalidInput, match=r"mesh 2x2 has 4 devices, but .* has 8 \(4 chips with 2 devices each\)"
    ):
        targets.refuse_other_size(target, (2, 2))


def test_a_compiler_that_is_not_installed_is_one_sentence(tmp_path: Path) -> None:
    # An interpreter without any site-packages has neither compiler.
    code = (
        "from inspector.machines import targets\n"
        "for text in ('tpu:v5p:4x4x4', 'gpu:h100:8'):\n"
        "    print(targets.missing(targets.parse(text)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tpu, gpu = done.stdout.splitlines()
    assert tpu.endswith("pip install -r requirements-tpu.txt") and tpu.startswith("tpu:v5p:4x4x4")
    assert gpu.endswith("pip install -r requirements-gpu.txt") and gpu.startswith("gpu:h100:8")
    for name in ("requirements-tpu.txt", "requirements-gpu.txt"):
        assert (ROOT / name).is_file()


def test_asking_whether_a_compiler_is_there_imports_neither_it_nor_jax() -> None:
    code = (
        "import sys\nfrom inspector.machines import targets\n"
        "targets.missing(targets.parse('tpu:v5e:4x4')); targets.missing(targets.parse('gpu:h100:8'))\n"
        "sys.exit(str([m for m in sys.modules if m.startswith(('jax', 'libtpu'))] or 0))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == "0"


def test_all_targets_of_a_kind_share_a_worker_and_emulated_runs_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_mine=1")

    def worker(text: str) -> Environment:
        return Environment(1, targets.environment(targets.parse(text)))

    assert worker("tpu:v3:2x2") == worker("tpu:v5p:16x16x16")
    assert worker("gpu:a100:8") == worker("gpu:b200:8")
    assert len({worker("tpu:v3:2x2"), worker("gpu:a100:8"), Environment(1)}) == 3
    flags = dict(targets.environment(targets.parse("gpu:a100:8")))["XLA_FLAGS"]
    assert flags.split()[0] == "--xla_mine=1"  # the user's own stay


@pytest.mark.parametrize("name", GPU_CHIPS)
def test_the_file_of_a_gpu_agrees_with_what_is_known_of_the_chip(name: str) -> None:
    text = (GPU_FILES / f"{name}.textproto").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^\s*(\w+): ([0-9.]+)", text, re.M))
    chip = CHIPS[name]
    assert int(fields["device_memory_size"]) == chip.hbm_bytes
    # The chip's figures are rounded as the book has them.
    assert int(fields["memory_bandwidth"]) == pytest.approx(chip.hbm_bytes_per_second, rel=0.03)
    assert int(fields["pcie_bandwidth"]) == chip.pcie_bytes_per_second
    # Each link of NVLink carries 25 GB/s one way, of Blackwell 50 (NVIDIA).
    per_link = 50e9 if name == "b200" else 25e9
    assert int(fields["active_links"]) * per_link == chip.network.bytes_per_second
    # FLOP/s of the FP32 cores as NVIDIA's data sheets have them, two a cycle and core.
    fp32 = 2 * int(fields["core_count"]) * int(fields["fpus_per_core"])
    assert fp32 * float(fields["clock_rate_ghz"]) * 1e9 == pytest.approx(
        {"a100": 19.5e12, "h100": 67e12, "h200": 67e12, "b200": 75e12}[name], rel=0.01
    )


def test_there_is_a_file_for_each_gpu_and_no_other() -> None:
    assert {file.stem for file in GPU_FILES.iterdir()} == set(GPU_CHIPS)


def test_a_target_says_what_it_consists_of() -> None:
    assert targets.parse("gpu:h100:16").sentence == "16 GPUs (NVIDIA H100 SXM), 2 nodes of 8"
    assert isinstance(targets.parse("tpu:v4:2x2x1"), Target)
