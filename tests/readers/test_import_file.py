"""Which reader recognizes a file or folder, and errors for files that none recognizes."""

from __future__ import annotations

import json
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from inspector.jobs.program_run import folder_snapshot
from inspector.readers.import_file import detect, read
from inspector.records import program_run, snapshot, typed_json
from inspector.records.program_run import CompiledRecord, ProgramRun
from inspector.records.snapshot import Snapshot, Source
from inspector.text.errors import InvalidInput
from tests.hostile import whole
from tests.readers import given, own_checkpoints

SNAPSHOT = snapshot.dumps(Snapshot(Source("plan", "plan", "now"), None, None, ()))


def test_every_own_case_is_detected(tmp_path: Path) -> None:
    for path in given.OWN_GOLDENS:
        assert detect(path, "it") == detect(path.parent, "it") == "maxtext"
    for form in own_checkpoints.FORMS:
        assert detect(own_checkpoints.saved(form), "it") == "orbax"
    saved = own_checkpoints.saved("zarr3") / "_sharding"
    cut = tmp_path / "cut"
    cut.write_bytes(saved.read_bytes()[:-100])
    assert detect(saved, "it") == detect(cut, "it") == "sharding"
    texts = [*given.OWN_HLO.glob("*.hlo"), given.OWN_HLO / "truncated.txt", given.OWN_HLO]
    assert len(texts) > 4 and {detect(path, "it") for path in texts} == {"hlo"}


@given.needs_cases
def test_every_case_is_detected() -> None:
    for path in given.GOLDENS:
        assert detect(path, "it") == "maxtext"
        assert detect(path.parent, "it") == "maxtext"
    for name in ("manager", "trainstate_v1", "trainstate_v0_noocdbt"):
        assert detect(given.ORBAX / name, "it") == "orbax"
    for path in (
        given.ORBAX / "kisoku-3.2b-base.items._sharding.truncated",
        given.ORBAX / "trainstate_v1" / "state" / "_sharding",
    ):
        assert detect(path, "it") == "sharding"
    for path in given.HLO.glob("*.hlo"):
        assert detect(path, "it") == "hlo"
    assert detect(given.HLO, "it") == "hlo"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (SNAPSHOT, "snapshot"),
        (json.dumps(dict(reversed(json.loads(SNAPSHOT).items()))), "snapshot"),
        ('{".step": {}}', "maxtext"),
        ("HloModule a", "hlo"),
        ("// a comment\nHloModule a", "hlo"),
        ("\x1f\x8b", "hlo"),
    ],
)
def test_a_file_is_detected_by_its_content(tmp_path: Path, content: str, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content.encode("latin-1"))
    assert detect(path, "it") == kind
    assert detect(tmp_path, "it") == kind, "the only file of a folder"


UNKNOWN = {
    '{"format": "sharding-board", "version": 1}': "open it on the Board page",
    '{"format": "other"}': "format 'other'",
    '{"version": 1, "format": "sharding-board"}': "Board page",
    "[1, 2]": "without a format",
    '{"a": NaN}': "NaN",
    '{"a": 1, "a": 2}': "twice",
    "": "is empty",
    "\xff\xfe{\0}\0": "UTF-16",
}


@pytest.mark.parametrize(("content", "words"), UNKNOWN.items())
def test_an_unknown_file_is_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InvalidInput, match=words):
        detect(path, "it")


def test_an_unknown_folder_is_refused(tmp_path: Path) -> None:
    for name in ("a.png", "b.pkl"):
        (tmp_path / name).write_bytes(b"\x80")
    with pytest.raises(InvalidInput, match=r"contains 'a\.png'"):
        detect(tmp_path, "it")


def test_a_folder_of_a_run_is_the_snapshot_of_all_its_programs(tmp_path: Path) -> None:
    found, run = whole.snapshot(), ProgramRun(("train.py",), "2026-01-01T00:00:00Z", "exit 0", 3.0)
    folder, unpacked = tmp_path / "runs" / "first", tmp_path / "unpacked"
    for made in (folder, unpacked):
        made.mkdir(parents=True)
    record = typed_json.encode_file(run, program_run.FORMAT, program_run.VERSION)
    (folder / program_run.FILE).write_text(json.dumps(record))
    (folder / "jit_step.json").write_text("{}")
    (folder / f"jit_step{program_run.LOWERED}").write_bytes(b"ML\xefR")
    (folder / program_run.PROFILE_FOLDER).mkdir()  # as `run --profile` writes
    (folder / program_run.PROFILE_FOLDER / program_run.PROFILE_FILE).write_bytes(b"")

    def opened() -> snapshot.Snapshot:
        with zipfile.ZipFile(tmp_path / "it.zip", "w") as file:
            for path in folder.parent.rglob("*.*"):
                file.write(path, path.relative_to(folder.parent))
        inside = Path(tempfile.mkdtemp(dir=unpacked))
        return read(tmp_path / "it.zip", "it.zip", None, None, inside, lambda *_, **__: None)

    with pytest.raises(InvalidInput, match=r"it\.zip has no Snapshot: .* no compiled function"):
        opened()
    (folder / program_run.SNAPSHOT).write_text(snapshot.dumps(found))
    assert opened() == folder_snapshot.read(folder)
    outside = CompiledRecord("f", "f", "f at a.py:1", "../../secret.json", 0.0, None, None, 1.0, 0, 2)
    leads_out = typed_json.encode_file(
        replace(run, programs=(outside,)), program_run.FORMAT, program_run.VERSION
    )
    (folder / program_run.FILE).write_text(json.dumps(leads_out))
    with pytest.raises(InvalidInput, match="not in the folder"):
        opened()
    (folder / program_run.FILE).write_text(json.dumps(record))
    (folder.parent / "second").mkdir()
    (folder.parent / "second" / program_run.FILE).write_text(json.dumps(record))
    with pytest.raises(InvalidInput, match="2 folders of `run`"):
        opened()
