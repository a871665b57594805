"""Tests of the exported library: each Snapshot is one file with a valid name."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.files import output
from inspector.jobs.library import INDEX, Library, file_names, zipped
from inspector.records import snapshot
from inspector.text.errors import InvalidInput
from tests.figures import samples

FOUND = samples.snapshot()


@given(st.lists(st.text(min_size=1, max_size=120), max_size=8))
def test_file_names_are_unique_and_portable(names: list[str]) -> None:
    files = file_names([*names, *names, "library", "../../etc/passwd", "CON/.."])
    assert len({file.lower() for file in (*files, INDEX)}) == len(files) + 1
    for file in files:
        assert file.isascii() and not set(file) & set('/\\:*?"<>| ') and not file.startswith(".")
        assert file.endswith(".json") and len(file) < 100


def test_the_zip_holds_all_with_their_names_and_notes(tmp_path: Path) -> None:
    library = Library(tmp_path / "saved.sqlite3")
    for name, note in (("a/b", "first"), ("a:b", ""), ("broken", "")):
        library.save(name, note, FOUND)
    with sqlite3.connect(library.path) as database:
        database.execute("UPDATE snapshots SET packed = x'00' WHERE name = 'broken'")
    output.write_bytes(zipped(library, library.entries()), tmp_path / "all.zip")
    with zipfile.ZipFile(io.BytesIO((tmp_path / "all.zip").read_bytes())) as archive:
        index = {row["name"]: row for row in json.loads(archive.read(INDEX))}
        assert set(archive.namelist()) == {INDEX, "a-b.json", "a-b-2.json"}
        for name in ("a/b", "a:b"):
            assert snapshot.from_json(json.loads(archive.read(index[name]["file"]))) == FOUND
    assert index["a/b"]["note"] == "first" and index["broken"]["file"] is None
    assert "is damaged" in index["broken"]["problem"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null/absent/all.zip")):
        with pytest.raises(InvalidInput, match="cannot be written"):
            output.write_bytes(b"PK", path)
    assert list(tmp_path.iterdir()) == []
