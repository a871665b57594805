"""Compile targets: parsing, compilers, and the descriptions of GPUs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from inspector.jobs.engine import Environment
from inspector.machines import targets
from inspector.machines.compiler_options import NO_CUDA_FOLDER
from inspector.machines.hardware import CHIPS
from inspector.machines.slices import GENERATIONS, named_slices
from inspector.machines.targets import GPU_CHIPS, Target
from inspector.text.errors import InvalidInput
from tests.checkout_command import run_py
from tests.paths import ROOT


def test_slice_name_and_topology_are_the_same_target() -> None:
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
        ("tpu:v5e:16x16*2", 512, 128, "v5e"),
        ("tpu:v5p-128*4", 256, 64, "v5p"),
        ("tpu:tpu7x:4x4x4*3", 384, 48, "tpu7x"),
        ("gpu:h100:8", 8, 1, "h100"),
        ("gpu:a100:1", 1, 1, "a100"),
        ("gpu:b200:16384", 16384, 2048, "b200"),
    ],
)
def test_devices_and_hosts(text: str, devices: int, hosts: int, chip: str) -> None:
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
        ("tpu:v5e:4x4*1", "number of slices is '1', but for 4x4 it must be 2 to 512"),
        ("tpu:v5e:4x4*513", "must be 2 to 512"),
        ("tpu:v5e:4x4*", "number of slices is ''"),
        ("tpu:v5e:4x4*2*2", "number of slices is '2\\*2'"),
        ("tpu:v5p:16x16x24*22", "must be 2 to 21"),
        ("gpu:h100:8*2", "number of GPUs is '8\\*2'"),
        ("gpu:h100:0", "must be 1 to 8, or a multiple of 8"),
        ("gpu:h100:12", "must be 1 to 8, or a multiple of 8"),
        ("gpu:h100:99999999999", "must be 1 to 8, or a multiple of 8"),
    ],
)
def test_invalid_target(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        targets.parse(text)


@given(st.text(max_size=30) | st.from_regex(r"(tpu|gpu):[a-z0-9]{0,6}:[0-9x*]{0,9}", fullmatch=True))
def test_arbitrary_text(text: str) -> None:
    try:
        target = targets.parse(text)
    except InvalidInput as refused:
        assert str(refused).startswith("target ")
    else:
        assert targets.parse(target.text) == target


def test_slices_are_alike() -> None:
    target, two = targets.parse("tpu:v5e:4x4"), targets.parse("TPU:v5e:4x4*2")
    assert two.text == "tpu:v5e:4x4*2" and targets.parse(two.text) == two
    assert (two.slice, two.slices, target.slices) == (target.slice, 2, 1)
    assert (two.chips, two.devices) == (2 * target.chips, 2 * target.devices)
    assert target.sentence in two.sentence
    targets.require_size(two, (2, 16))
    with pytest.raises(InvalidInput, match="has 16 devices, but tpu:v5e:4x4\\*2 has 32"):
        targets.require_size(two, (4, 4))


def test_require_size() -> None:
    target = targets.parse("tpu:tpu7x:2x2x1")
    targets.require_size(target, (2, 4))
    with pytest.raises(
        InvalidInput, match=r"mesh 2x2 has 4 devices, but .* has 8 \(4 chips with 2 devices each\)"
    ):
        targets.require_size(target, (2, 2))


@pytest.mark.parametrize(("text", "kind"), [("tpu:v5p:4x4x4", "tpu"), ("gpu:h100:8", "gpu")])
def test_missing_compiler_has_a_command_for_this_python_and_its_jax(
    text: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = targets.missing_compiler(targets.parse(text))
    assert message is not None and message.startswith(text)
    *command, requirement = shlex.split(message.partition(": ")[2])
    assert command == [sys.executable, "-m", "pip", "install"]
    given = Requirement(requirement)
    assert given.specifier.contains(importlib.metadata.version("jax"))
    # The same as the extra of this project.
    (own,) = set(run_py()._requirements(kind)) - set(run_py()._requirements())
    assert (given.name, given.extras) == (Requirement(own).name, Requirement(own).extras)


def test_missing_compiler_imports_neither_compiler_nor_jax() -> None:
    code = (
        "import sys\nfrom inspector.machines import targets\n"
        "for text in ('tpu:v5e:4x4', 'gpu:h100:8'): targets.missing_compiler(targets.parse(text))\n"
        "sys.exit(str([m for m in sys.modules if m.startswith(('jax', 'libtpu'))] or 0))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == "0"


def test_targets_of_a_kind_share_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_mine=1")

    def worker(text: str) -> Environment:
        return Environment(1, targets.environment(targets.parse(text)))

    assert worker("tpu:v3:2x2") == worker("tpu:v5p:16x16x16")
    assert worker("gpu:a100:8") == worker("gpu:b200:8")
    assert len({worker("tpu:v3:2x2"), worker("gpu:a100:8"), Environment(1)}) == 3
    flags = dict(targets.environment(targets.parse("gpu:a100:8")))["XLA_FLAGS"]
    # The flags of the user come before those that a compile needs, and can name a folder of CUDA.
    assert flags.split()[:2] == [NO_CUDA_FOLDER, "--xla_mine=1"]


@pytest.mark.parametrize("name", GPU_CHIPS)
def test_gpu_description_agrees_with_the_chip_table(name: str) -> None:
    text = targets.gpu_description(name)
    fields = dict(re.findall(r"^\s*(\w+): ([0-9.]+)", text, re.M))
    chip = CHIPS[name]
    assert int(fields["device_memory_size"]) == chip.hbm_bytes
    # The figures of the chip table are rounded.
    assert int(fields["memory_bandwidth"]) == pytest.approx(chip.hbm_bytes_per_second, rel=0.03)
    assert int(fields["pcie_bandwidth"]) == chip.pcie_bytes_per_second
    # One NVLink carries 25 GB/s per direction, on Blackwell 50 (NVIDIA).
    per_link = 50e9 if name == "b200" else 25e9
    assert int(fields["active_links"]) * per_link == chip.network.bytes_per_second
    # FP32 FLOP/s of NVIDIA's data sheets: two per core and cycle.
    fp32 = 2 * int(fields["core_count"]) * int(fields["fpus_per_core"])
    assert fp32 * float(fields["clock_rate_ghz"]) * 1e9 == pytest.approx(
        {"a100": 19.5e12, "h100": 67e12, "h200": 67e12, "b200": 75e12}[name], rel=0.01
    )


def test_every_gpu_description_has_a_chip() -> None:
    assert {file.stem for file in targets.GPU_DESCRIPTIONS.iterdir()} == set(GPU_CHIPS)


def test_sentence() -> None:
    assert targets.parse("gpu:h100:16").sentence == "16 GPUs (NVIDIA H100 SXM), 2 nodes of 8"
    assert isinstance(targets.parse("tpu:v4:2x2x1"), Target)
