"""Profiles that lack something or are damaged: what is there is read, what is missing is named."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector.answers import measured, subject
from inspector.machines import targets
from inspector.readers import hlo_text, limits, profile
from inspector.records.snapshot import Snapshot, dumps
from inspector.text.errors import InvalidInput
from tests.readers.profiles import programs, tpu_files
from tests.readers.profiles.tpu_files import Profile, usual

pytestmark = pytest.mark.first_jax_is_enough

GPU = """
planes {{ id: 1 name: "/device:GPU:0"
  stat_metadata {{ key: 1 value {{ id: 1 name: "hlo_op" }} }}
  stat_metadata {{ key: 2 value {{ id: 2 name: "hlo_module" }} }}
  stat_metadata {{ key: 3 value {{ id: 3 name: "program_id" }} }}
  stat_metadata {{ key: 4 value {{ id: 4 name: "sine.5" }} }}
  stat_metadata {{ key: 5 value {{ id: 5 name: "jit_step" }} }}
  event_metadata {{ key: 1 value {{ id: 1 name: "wrapped_sine" }} }}
  event_metadata {{ key: 2 value {{ id: 2 name: "graph_kernel" }} }}
  lines {{ id: 7 name: "Stream #13(Compute)" timestamp_ns: 10
    events {{ metadata_id: 1 offset_ps: 1000 duration_ps: 5000 {named} }}
    events {{ metadata_id: 1 offset_ps: 9000 duration_ps: 7000 {named} }}
    {unnamed} }}
  lines {{ id: 8 name: "XLA Ops" timestamp_ns: 10 events {{ metadata_id: 1 duration_ps: 99000 {named} }} }} }}
"""
NAMED = (
    "stats { metadata_id: 1 ref_value: 4 } stats { metadata_id: 2 ref_value: 5 } "
    "stats { metadata_id: 3 uint64_value: 77 }"
)


def codes(snapshot: Snapshot) -> set[str]:
    return {finding.code for finding in snapshot.findings}


def read_bytes(content: bytes, folder: Path) -> Snapshot:
    path = folder / "host.xplane.pb"
    path.write_bytes(content)
    return profile.read(path, path.name)


def totals(snapshot: Snapshot) -> dict[tuple[str, str, str], float]:
    return {
        (program.name, time.name, device): seconds
        for program in snapshot.programs
        if program.trace is not None
        for time in program.trace.instructions
        for device, seconds in zip(program.trace.devices, time.by_device, strict=True)
    }


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("profile")
    programs.profiled(programs.mlp, folder)
    (path,) = folder.rglob("*.xplane.pb")
    return path.read_bytes()


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.99, 0.9999])
def test_of_a_file_that_ends_early_whole_planes_are_read(share: float, cpu: bytes, tmp_path: Path) -> None:
    whole = totals(read_bytes(cpu, tmp_path))
    for content, times in ((cpu, whole), (usual().serialized(), None)):
        if times is None:
            times = totals(read_bytes(content, tmp_path))
        try:
            cut = read_bytes(content[: int(len(content) * share)], tmp_path)
        except InvalidInput as refused:
            assert "host.xplane.pb" in str(refused)
            continue
        assert profile.CUT in codes(cut)
        for (_, name, device), seconds in totals(cut).items():
            assert seconds in [pytest.approx(own) for key, own in times.items() if key[1:] == (name, device)]


@functools.cache
def whole_file() -> bytes:
    """Return one file: the bytes of a profile differ each time that it is written."""
    return usual(range(2), runs=1).serialized()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_bytes_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    content = bytearray(whole_file())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.getbasetemp()
    try:
        dumps(read_bytes(bytes(content), folder))
    except InvalidInput as refused:
        assert "\n" not in str(refused)


@pytest.mark.parametrize(("number", "wire_type"), [(2, 5), (2, 0), (3, 1), (5, 0), (7, 5)])
def test_statistics_of_another_wire_type_are_refused_or_read(
    number: int, wire_type: int, tmp_path: Path
) -> None:
    """The tag of a field is its number and its wire type: 1 for a double, 0 for an integer, 2 for a text."""
    content = usual(range(2), runs=1).serialized()
    right = {2: 1, 3: 0, 5: 2, 7: 0}[number]
    places = [place for place, byte in enumerate(content) if byte == number << 3 | right]
    assert places
    for place in places[:40]:
        damaged = bytearray(content)
        damaged[place] = number << 3 | wire_type
        try:
            dumps(read_bytes(bytes(damaged), tmp_path))
        except InvalidInput as refused:
            assert "\n" not in str(refused)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04 a zip", b"\x7fELF\x02\x01", b"HloModule m\n", b"\x0a\xff\xff", b"\x08\x01\x10\x02"],
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="host"):
        read_bytes(content, tmp_path)


def test_a_folder_without_profiles_is_refused(tmp_path: Path) -> None:
    (tmp_path / "host.trace.json.gz").write_bytes(b"")
    with pytest.raises(InvalidInput, match="no file"):
        profile.read(tmp_path, "trace")


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    usual(range(2)).write(tmp_path / "a.xplane.pb")
    (tmp_path / "b.xplane.pb").write_bytes(b"other")
    snapshot = profile.read(tmp_path, "trace")
    assert {profile.CUT, profile.HOSTS_MISSING} <= codes(snapshot)
    assert totals(snapshot)


def test_a_profile_without_a_device_has_the_programs_and_no_time(tmp_path: Path) -> None:
    snapshot = read_bytes(Profile({}).serialized(), tmp_path)
    (program,) = snapshot.programs
    assert profile.NO_TIMES in codes(snapshot)
    assert program.stage == "compiled" and program.collectives and program.trace is None


def test_a_profile_without_hlo_has_times_and_no_arrays(tmp_path: Path) -> None:
    programs.profiled(programs.mlp, tmp_path, enable_hlo_proto=False)
    snapshot = profile.read(tmp_path, "trace")
    assert profile.NO_HLO in codes(snapshot) and snapshot.mesh is None and not snapshot.arrays
    (program,) = (own for own in snapshot.programs if own.name == "jit_train_step")
    assert program.trace is not None and program.trace.steps == programs.STEPS
    assert program.collectives is None
    assert hlo_text.MESH_UNKNOWN not in codes(snapshot)  # there is no text that could name one


def test_a_profile_without_anything_names_both(tmp_path: Path) -> None:
    snapshot = read_bytes(Profile({}, hlo={}).serialized(), tmp_path)
    assert profile.NO_TIMES in codes(snapshot) and not snapshot.programs


@pytest.mark.parametrize(
    ("unnamed", "found"), [("", False), ("events { metadata_id: 2 duration_ps: 8000 }", True)]
)
def test_kernels_of_gpus_without_an_instruction_are_named(unnamed: str, found: bool, tmp_path: Path) -> None:
    text = GPU.format(named=NAMED, unnamed=unnamed)
    snapshot = read_bytes(jax.profiler.ProfileData.text_proto_to_serialized_xspace(text), tmp_path)
    assert (profile.COMMAND_BUFFERS in codes(snapshot)) == found
    # The line that XProf adds repeats the kernels.
    assert totals(snapshot) == {("jit_step", "sine.5", "0"): pytest.approx(12e-9)}


def _gpu_plane(**stats: int | str) -> str:
    """Return the text of a plane of a GPU with these statistics."""
    names, values = [], []
    for number, (name, value) in enumerate(stats.items(), 20):
        names.append(f'stat_metadata {{ key: {number} value {{ id: {number} name: "{name}" }} }}')
        kind = f'str_value: "{value}"' if isinstance(value, str) else f"uint64_value: {value}"
        values.append(f"stats {{ metadata_id: {number} {kind} }}")
    plane = GPU.format(named=NAMED, unnamed="").rstrip().removesuffix("}")
    return " ".join((plane, *names, *values, "}"))


# What the drivers of an H100 SXM, an H200, an A100 PCIe and an H100 NVL report.
HOPPER = {"compute_cap_major": 9, "compute_cap_minor": 0, "core_count": 132}
H100 = HOPPER | {"memory_size": 84_978_565_120, "memory_bandwidth": 3_352_320_000_000}
H200 = HOPPER | {"memory_size": 150_110_011_392, "memory_bandwidth": 4_916_736_000_000}
AMPERE = {"compute_cap_major": 8, "compute_cap_minor": 0, "core_count": 108}
A100_PCIE = AMPERE | {"memory_size": 85_031_714_816, "memory_bandwidth": 1_935_360_000_000}
H100_NVL = HOPPER | {"memory_size": 99_922_214_912, "memory_bandwidth": 3_938_304_000_000}


@pytest.mark.parametrize(
    ("stats", "chip"),
    [
        (H100, "h100"),
        (H200, "h200"),
        (A100_PCIE, None),
        (H100_NVL, None),
        (H100 | {"core_count": 114}, None),
        ({"gpu_device_name": "NVIDIA A100-SXM4-80GB"}, "a100"),
        ({"gpu_device_name": "NVIDIA H100 NVL"} | H100, None),
        ({"core_count": 132}, None),
        ({}, None),
    ],
)
def test_a_gpu_is_known_by_its_name_or_its_figures(
    stats: dict[str, int | str], chip: str | None, tmp_path: Path
) -> None:
    """Also without HLO, so that no mesh is known."""
    content = jax.profiler.ProfileData.text_proto_to_serialized_xspace(_gpu_plane(**stats))
    snapshot = read_bytes(content, tmp_path)
    assert snapshot.mesh is None and profile.NO_HLO in codes(snapshot)
    result = targets.chip_of(snapshot)
    assert (result and result.name) == chip
    shown = str(measured.section(snapshot, result))
    assert ("chip that it was measured on is unknown" in shown) == (chip is None)
    if result is not None:
        assert result.title in subject.title([("a", snapshot)]) and result.title in shown


def test_large_profiles_are_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = usual().serialized()
    monkeypatch.setattr(limits, "MOST_EVENTS", 5)
    with pytest.raises(InvalidInput, match="profile fewer steps"):
        read_bytes(content, tmp_path)
    monkeypatch.setattr(limits, "MOST_PROFILE_BYTES", 100)
    with pytest.raises(InvalidInput, match="profile fewer steps"):
        read_bytes(content, tmp_path)


def test_of_several_runs_the_newest_is_read(tmp_path: Path) -> None:
    for day, runs in (("2026_01_01", 2), ("2026_01_02", 3)):
        usual(runs=runs).write(tmp_path / "plugins/profile" / day / "host.xplane.pb")
    snapshot = profile.read(tmp_path, "trace")
    (note,) = (finding for finding in snapshot.findings if finding.code == profile.OTHER_RUNS)
    assert "2026_01_01" in note.message
    (program,) = snapshot.programs
    assert program.trace is not None and program.trace.steps == 3


def test_an_hlo_that_cannot_be_read_leaves_the_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpu_files, "proto_of", lambda text: b"\x0a\x02no")
    snapshot = read_bytes(usual().serialized(), tmp_path)
    assert profile.NO_HLO in codes(snapshot)
    (program,) = snapshot.programs
    assert program.trace is not None and program.trace.steps == 3
