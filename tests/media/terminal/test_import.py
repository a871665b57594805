"""The verb `import`: every kind of file, read by worker processes."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from inspector.files import temporary_folder
from inspector.media import terminal as command_line
from inspector.records import snapshot
from tests.media.terminal.command import inspector
from tests.readers import given, own_checkpoints
from tests.readers.profiles import tpu_files

HLO = """HloModule jit_step, num_partitions=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  p = f32[64] parameter(0)
  ROOT r = f32[64] all-reduce(p), replica_groups={{0,1}}, to_apply=add
}
"""


def imported(*arguments: str | Path, output: Path) -> snapshot.Snapshot:
    status = command_line.main(["import", *map(str, arguments), "-o", str(output)])
    assert status == 0
    plain = json.loads(output.read_text())
    jsonschema.validate(plain, json.loads(snapshot.SCHEMA_PATH.read_text()))
    return snapshot.read(output)


KINDS = ("orbax", "sharding", "maxtext", "hlo", "stablehlo")
SHARED_GOLDEN = given.GOLDENS[-1].parent if given.GOLDENS else Path()


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("kind", "path", "arrays", "programs"),
    [
        ("orbax", lambda: own_checkpoints.saved("manager"), 6, 0),
        ("sharding", lambda: own_checkpoints.saved("zarr3") / "_sharding", 6, 0),
        ("maxtext", given.OWN_GOLDENS[-1].parent, 19 + 4, 0),
        ("hlo", given.OWN_HLO / "loops.hlo", 3, 1),
        ("stablehlo", given.OWN_HLO / "product.stablehlo.mlir", 4, 1),
        given.shared("orbax", given.ORBAX / "manager", 17, 0),
        given.shared("sharding", given.ORBAX / "trainstate_v1" / "state" / "_sharding", 17, 0),
        given.shared("maxtext", SHARED_GOLDEN, 148, 0),
        given.shared("hlo", given.HLO / "hlo_llama31_70b_bf16_16x8.hlo", 90, 1),
        given.shared("stablehlo", given.HLO / "jax_0.10.2_cpu" / "fsdp_tp_mlp.stablehlo.mlir", 6, 1),
    ],
    ids=[f"{kind}, {whose}" for whose in ("own", "of others") for kind in KINDS],
)
def test_every_kind(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    path: Path | Callable[[], Path],
    arrays: int,
    programs: int,
) -> None:
    path = path if isinstance(path, Path) else path()
    output = tmp_path / "snapshot.json"
    snapshot = imported(kind, path, output=output)
    assert snapshot.source.kind == kind
    assert (len(snapshot.arrays), len(snapshot.programs)) == (arrays, programs)
    printed = capsys.readouterr()
    assert printed.out == "" and "Traceback" not in printed.err
    assert command_line.main(["show", str(output), "--chip", "v5p"]) == 0
    assert "imported from" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("folder", "arrays"),
    [
        (lambda: own_checkpoints.saved("zarr3"), 6),
        given.shared(lambda: given.ORBAX / "trainstate_v0_zarr3", 17),
    ],
    ids=["own", "of others"],
)
def test_a_zip_is_unpacked_beside_nothing(tmp_path: Path, folder: Callable[[], Path], arrays: int) -> None:
    top, name = folder().parent, folder().name
    packed = shutil.make_archive(str(tmp_path / "given"), "zip", top, name)
    snapshot = imported("orbax", packed, output=tmp_path / "snapshot.json")
    assert len(snapshot.arrays) == arrays and snapshot.mesh.shape == (2, 4)
    assert {path.name for path in tmp_path.iterdir()} == {"given.zip", "snapshot.json"}
    left = Path(tempfile.gettempdir()).glob(f"{temporary_folder.PREFIX}*")
    assert not any((folder / "unpacked").exists() for folder in left)


def test_verbs_that_take_a_snapshot_take_what_open_takes(tmp_path: Path) -> None:
    """The Snapshot of `import` and the file itself have the same answers, also in a zip file."""
    checkpoint = own_checkpoints.saved("zarr3")
    packed = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", checkpoint.parent, checkpoint.name))
    step, known = tmp_path / "step.hlo", tmp_path / "known.json"
    step.write_text(HLO)
    for kind, files in (("hlo", [step]), ("orbax", [packed, checkpoint])):
        imported(kind, files[0], output=known)
        for verb in (["show"], ["audit"], ["shards"]):
            expected = inspector(*verb, str(known), "--json").stdout
            assert expected
            for file in files:
                process = inspector(*verb, str(file), "--json")
                assert (process.returncode, _without_times(process.stdout)) == (0, _without_times(expected))
    assert inspector("show", str(packed)).returncode == 0
    compared = inspector("compare", str(packed), str(known), "--json")
    assert compared.returncode == 0 and len(json.loads(compared.stdout)["columns"]) == 2
    lock = tmp_path / "lock.sharding.json"
    assert inspector("check", str(packed), "--write-lock", str(lock)).returncode == 0 and lock.is_file()
    refused = inspector("code", str(packed))
    assert refused.returncode == 2 and "is a zip file, but must be JSON" in refused.stderr


def _without_times(text: str) -> object:
    """Return JSON without the time and the file from which it was read."""
    plain = json.loads(text)
    if isinstance(plain, dict) and "source" in plain:
        plain["source"] = plain["source"]["kind"]
    return plain


def test_gzip_goes_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "step.hlo.gz"
    path.write_bytes(gzip.compress(HLO.encode()))
    assert command_line.main(["import", "hlo", str(path)]) == 0
    result = snapshot.from_json(json.loads(capsys.readouterr().out))
    assert result.programs[0].collectives[0].wire_bytes_per_device == 256
    assert result.programs[0].devices == 2


def test_bad_input_is_one_line_and_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step, output = tmp_path / "step.hlo", tmp_path / "out.json"
    step.write_text(HLO)
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as file:
        file.writestr("../out", "")
    cases = [
        (["pickle", step], "invalid choice"),
        (["orbax", tmp_path / "nothing"], "does not exist"),
        (["orbax", step], "a checkpoint is a folder|is a folder"),
        (["orbax", tmp_path / "bad.zip"], "leads out of the archive"),
        (["maxtext", step], "not JSON"),
        (["sharding", step], "not JSON"),
        (["hlo", step, "--step", "3"], "only an Orbax checkpoint has steps"),
        (["orbax", step, "--mesh", "2x4"], "is only for a JAX profile, StableHLO and HLO text"),
        (["hlo", step, "--axes", "a,b"], "needs mesh"),
        (["hlo", step, "--mesh", "2x4", "--axes", "a"], "has 2 axes"),
        (["orbax", tmp_path, "--step", "-3"], "must be the number of a step"),
    ]
    for arguments, words in cases:
        assert command_line.main(["import", *map(str, arguments), "-o", str(output)]) == 2
        printed = capsys.readouterr()
        (line,) = [one for one in printed.err.splitlines() if one.startswith("sharding-inspector:")]
        assert any(part in line for part in words.split("|")), line
        assert printed.out == "" and not output.exists()
    missing = "/dev/null/no/out.json"
    assert command_line.main(["import", "hlo", str(step), "-o", missing]) == 2
    assert "/dev/null is not a folder" in capsys.readouterr().err


def test_the_mesh_of_the_command_line_names_the_axes_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(
        "HloModule jit_f, is_scheduled=true, num_partitions=8\n\nENTRY main_spmd {\n"
        "  ROOT p = f32[4,2] parameter(0), sharding={devices=[2,4]<=[8]}\n}\n"
    )
    output = tmp_path / "out.json"
    mesh = ["--mesh", "2x4", "--axes", "data,model"]
    assert command_line.main(["import", "hlo", str(path), *mesh, "-o", str(output)]) == 0
    result = snapshot.read(output)
    assert result.mesh is not None and result.mesh.sizes == {"data": 2, "model": 4}
    assert result.arrays[0].spec == (("data",), ("model",)) and result.arrays[0].shape == (8, 8)


def test_a_profile_takes_mesh_axes_from_a_snapshot_of_its_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tpu_files.usual().write(tmp_path / "traces/host.xplane.pb")
    (tmp_path / "step.hlo").write_text(tpu_files.printed(tpu_files.TEXT))
    known, mesh = tmp_path / "known.json", ("--mesh", "4", "--axes", "fsdp")
    imported("hlo", tmp_path / "step.hlo", *mesh, output=known)
    joined = imported("profile", tmp_path / "traces", "--program", known, output=tmp_path / "joined.json")
    (program,) = joined.programs
    assert program.stage == "measured" and program.trace is not None and program.trace.steps == 3
    assert joined.mesh is not None and joined.mesh.axis_names == ("fsdp",)
    assert [collective.mesh_axes for collective in program.collectives or ()] == [("fsdp",)]
    assert command_line.main(["import", "hlo", str(tmp_path / "step.hlo"), "--program", str(known)]) == 2
    assert "--program" in capsys.readouterr().err
