"""What a file is, by its content: each kind, and files that only look like one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inspector.core import snapshot
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot, Source
from inspector.producers.readers import guess
from tests.producers.readers import given

SNAPSHOT = snapshot.dumps(Snapshot(Source("plan", "plan", "now"), None, None, ()))


@given.needs_cases
def test_every_given_file_is_told() -> None:
    for path in given.GOLDENS:
        assert guess.kind_of(path, "it") == "maxtext"
        assert guess.kind_of(path.parent, "it") == "maxtext"
    for name in ("manager", "trainstate_v1", "trainstate_v0_noocdbt"):
        assert guess.kind_of(given.ORBAX / name, "it") == "orbax"
    for path in (
        given.ORBAX / "kisoku-3.2b-base.items._sharding.truncated",
        given.ORBAX / "trainstate_v1" / "state" / "_sharding",
    ):
        assert guess.kind_of(path, "it") == "sharding"
    for path in given.HLO.glob("*.hlo"):
        assert guess.kind_of(path, "it") == "hlo"
    assert guess.kind_of(given.HLO, "it") == "hlo"


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
def test_a_file_is_told(tmp_path: Path, content: str, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content.encode("latin-1"))
    assert guess.kind_of(path, "it") == kind
    assert guess.kind_of(tmp_path, "it") == kind, "the only file of a folder"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"format": "sharding-board", "version": 1}', "open it on the Board page"),
        ('{"format": "other"}', "its format is 'other'"),
        ('{"version": 1, "format": "sharding-board"}', "Board page"),
        ("[1, 2]", "neither a Snapshot"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1, "a": 2}', "twice"),
        ("", "is empty"),
        ("\xff\xfe{\0}\0", "UTF-16"),
    ],
)
def test_what_is_none_of_them_is_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InvalidInput, match=words):
        guess.kind_of(path, "it")


def test_a_folder_of_nothing_known_is_refused(tmp_path: Path) -> None:
    for name in ("a.png", "b.pkl"):
        (tmp_path / name).write_bytes(b"\x80")
    with pytest.raises(InvalidInput, match="holds neither an Orbax checkpoint"):
        guess.kind_of(tmp_path, "it")
