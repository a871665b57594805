"""Tests of zip files: they are unpacked exactly, or refused before a file is written."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from inspector.readers import archive, import_file, limits
from inspector.text.errors import InvalidInput


def packed(entries: Iterable[tuple[str | zipfile.ZipInfo, bytes]], method: int = 8) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in entries:
            file.writestr(name, content)
    return buffer.getvalue()


def unpack(folder: Path, content: bytes) -> dict[str, bytes]:
    """Unpack and return the files in the folder. Check that no other file was written."""
    target = folder / "inside"
    target.mkdir()
    (folder / "it.zip").write_bytes(content)
    try:
        archive.unpack(folder / "it.zip", target, "it.zip")
    finally:
        assert {path.name for path in folder.iterdir()} == {"inside", "it.zip"}
        assert not any(path.is_symlink() for path in target.rglob("*"))
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def linked(name: str, kind: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (kind | 0o777) << 16
    return entry


def test_files_and_folders(tmp_path: Path) -> None:
    content = packed([("a/", b""), ("a/b.txt", b"hello"), ("a/c/d", b""), ("é", b"\0" * 100_000)])
    assert unpack(tmp_path, content) == {"a/b.txt": b"hello", "a/c/d": b"", "é": b"\0" * 100_000}
    assert (tmp_path / "inside" / "a").is_dir()
    # Permissions in the archive are ignored.
    assert not (tmp_path / "inside" / "a" / "b.txt").stat().st_mode & stat.S_ISUID


def test_metadata_files_of_macos_are_skipped(tmp_path: Path) -> None:
    litter = [("__MACOSX/", b""), ("__MACOSX/a/._b", b"\0\5"), (".DS_Store", b"x"), ("a/._b", b"x")]
    content = packed([("a/", b""), ("a/b", b"hello"), ("a/.zarray", b"{}"), *litter])
    assert unpack(tmp_path, content) == {"a/b": b"hello", "a/.zarray": b"{}"}
    (tmp_path / "alone").mkdir()
    with pytest.raises(InvalidInput, match="only metadata files of macOS"):
        unpack(tmp_path / "alone", packed(litter[1:]))


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_tar_archive_is_recognized(tmp_path: Path, mode: Literal["w", "w:gz"]) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    with tarfile.open(tmp_path / "it.tar", mode) as file:
        file.add(tmp_path / "file", "file")
    assert archive.is_tar(tmp_path / "it.tar")
    with pytest.raises(InvalidInput, match=r"is a tar archive"):
        import_file.read(tmp_path / "it.tar", "it.tar", None, None, None, lambda *_, **__: None)
    assert not archive.is_tar(tmp_path / "file")
    for number, content in enumerate((b"", b"\x1f\x8b", gzip.compress(b"HloModule a"))):
        (tmp_path / str(number)).write_bytes(content)
        assert not archive.is_tar(tmp_path / str(number))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../out", "leads out"),
        ("a/../../out", "leads out"),
        ("a/..", "leads out"),
        ("/etc/passwd", "absolute"),
        ("C:/windows", "absolute"),
        ("\\\\server\\share", "absolute"),
        ("a\\..\\b", "leads out"),
        ("a//b", "not the path of a file"),
        ("./a", "not the path of a file"),
        ("a\nb", "printable"),
        ("a\u202eb", "printable"),
        ("x" * 300, "not the path of a file"),
        ("a/" * 600 + "b", "1,024"),
        ("/".join(["é" * 100] * 6), "1,024"),  # 605 characters
        ("a/" * 50 + "b", "folders deep"),
    ],
)
def test_unsafe_names_are_refused(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        unpack(tmp_path, packed([("first", b"1"), (name, b"2")]))
    # All names are checked before the first file is written.
    assert not any((tmp_path / "inside").iterdir())


def test_a_name_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"zero byte|printable"):
        unpack(tmp_path, packed([("a.txt_b", b"")]).replace(b"a.txt_b", b"a.txt\0b"))


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("a", b"1"), ("A", b"2")], "twice"),
        ([("é", b"1"), ("e\u0301", b"2")], "twice"),
        ([("a", b"1"), ("a/b", b"2")], "folder"),
        ([("a/b", b"1"), ("a", b"2")], "folder"),
        ([(linked("a", stat.S_IFLNK), b"/etc/passwd")], "a link"),
        ([(linked("a", stat.S_IFIFO), b"")], "neither a file nor a folder"),
        ([(linked("a", stat.S_IFCHR), b"")], "neither a file nor a folder"),
        ([], "empty zip"),
    ],
)
def test_unsafe_entries_are_refused(tmp_path: Path, entries: list[tuple[str, bytes]], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        unpack(tmp_path, packed(entries))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_duplicate_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="twice"):
        unpack(tmp_path, packed([("a", b"1"), ("a", b"2")]))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_methods_are_refused(tmp_path: Path, method: int) -> None:
    with pytest.raises(InvalidInput, match="stored or deflated"):
        unpack(tmp_path, packed([("a", b"1")], method))


def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    content = bytearray(packed([("a", b"1")]))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1
    with pytest.raises(InvalidInput, match="encrypted"):
        unpack(tmp_path, bytes(content))


def test_unpacking_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_UNPACKED_BYTES", 3 << 20)
    content = packed([("a", b"\0" * (2 << 20)), ("b", b"\0" * (2 << 20))])
    assert len(content) < 10_000
    with pytest.raises(InvalidInput, match=r"unpacks to more than 3\.0 MiB"):
        unpack(tmp_path, content)
    assert not any((tmp_path / "inside").iterdir())  # the declared sizes are enough to refuse it


def test_a_wrong_declared_size_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_UNPACKED_BYTES", 1 << 20)
    content = packed([("a", b"\0" * (8 << 20))])
    said = struct.pack("<I", 8 << 20)
    assert content.count(said) == 2
    with pytest.raises(InvalidInput):
        unpack(tmp_path, content.replace(said, struct.pack("<I", 10)))
    # Python reads at most the declared size, and then finds a wrong checksum.
    assert sum(path.stat().st_size for path in (tmp_path / "inside").iterdir()) <= 1 << 20


def test_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ENTRIES", 10)
    with pytest.raises(InvalidInput, match="11 entries, but at most 10"):
        unpack(tmp_path, packed((str(n), b"") for n in range(11)))


@pytest.mark.parametrize("last", ["file", "folder/"])
def test_folders_that_no_entry_names_count(tmp_path: Path, last: str) -> None:
    """12,000 entries of 330 bytes would make 384,000 folders."""
    deep = "/".join("d" * (limits.DEEPEST_PATH - 2))
    content = packed((f"{n}/{deep}/{last}", b"") for n in range(2_000))
    with pytest.raises(InvalidInput, match="50,000 files and folders"):
        unpack(tmp_path, content)
    assert not any((tmp_path / "inside").iterdir())


def test_as_many_folders_as_allowed_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ENTRIES", 6)
    entries = [("a/b/c/x", b"1"), ("a/b/", b""), ("a/b/y", b"2"), ("a/d/", b"")]
    assert unpack(tmp_path, packed(entries)) == {"a/b/c/x": b"1", "a/b/y": b"2"}
    (tmp_path / "more").mkdir()
    with pytest.raises(InvalidInput, match="6 files and folders"):
        unpack(tmp_path / "more", packed([*entries, ("z", b"")]))


def test_a_large_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_BYTES_AT_ONCE", 70_000)
    with pytest.raises(InvalidInput, match="directory of"):
        unpack(tmp_path, packed((f"{n:0200}", b"") for n in range(400)))


@for_all(st.data())
def test_a_damaged_archive_is_unpacked_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(packed([("a/b", b"hello" * 50), ("c", b"world")]))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(len(content) // 2, len(content)))]
    folder = tmp_path_factory.mktemp("damaged")
    try:
        unpack(folder, bytes(content))
    except InvalidInput as refused:
        assert "\n" not in str(refused) and str(refused).startswith("it.zip")


names = st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=4).map("/".join)


@for_all(names)
def test_an_accepted_path_stays_in_the_folder(name: str) -> None:
    try:
        place = archive.safe_path(name, "it")
    except InvalidInput as refused:
        assert "\n" not in str(refused)
    else:
        inside = os.path.normpath(os.path.join("/folder", str(place)))
        assert inside.startswith("/folder/") and inside == f"/folder/{place}"
