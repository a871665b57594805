"""Which reader recognizes a file or folder, and errors for files that none recognizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inspector.core import snapshot
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot, Source
from inspector.producers.import_file import detect
from tests.producers.readers import given, own_checkpoints

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
