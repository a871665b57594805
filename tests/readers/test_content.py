"""Tests of untrusted files: limits on bytes, gzip, strict JSON and UTF-8."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from inspector.readers import content
from inspector.text.errors import InvalidInput


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert content.read_bytes(path, 100, "it") == b"x" * 100
    with pytest.raises(InvalidInput, match="more than 99 bytes"):
        content.read_bytes(path, 99, "it")


def test_a_path_without_a_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero", tmp_path / "nothing", "a\0b"):
        with pytest.raises(InvalidInput, match=r"^it "):
            content.read_bytes(path, 100, "it")


@for_all(st.lists(st.binary(max_size=2000), min_size=1, max_size=3), st.data())
def test_gzip_is_unpacked_as_it_was_packed(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    packed = b"".join(map(gzip.compress, parts))
    assert content.unpack_gzip(packed, len(whole), "it") == (whole, True)
    if whole:
        with pytest.raises(InvalidInput, match="unpacks to more"):
            content.unpack_gzip(packed, len(whole) - 1, "it")
    cut = packed[: data.draw(st.integers(2, len(packed) - 1))]
    begun, complete = content.unpack_gzip(cut, len(whole), "it")
    assert whole.startswith(begun)
    # A file cut between two streams looks like a complete file.
    assert not complete or begun == b"".join(parts[: len(parts) - 1]) or len(parts) == 3


def test_gzip_unpacking_stops_at_the_limit() -> None:
    bomb = gzip.compress(b"\0" * (64 << 20))
    assert len(bomb) < 100_000
    with pytest.raises(InvalidInput, match=r"unpacks to more than 1\.0 MiB"):
        content.unpack_gzip(bomb, 1 << 20, "it")


def test_bytes_after_a_gzip_stream_are_refused() -> None:
    packed = gzip.compress(b"hello")
    assert content.unpack_gzip(packed + b"\0" * 8, 100, "it") == (b"hello", True)
    with pytest.raises(InvalidInput, match="after the end of its gzip stream"):
        content.unpack_gzip(packed + b"more", 100, "it")


@for_all(st.binary(max_size=200))
def test_any_bytes_are_unpacked_or_refused(garbage: bytes) -> None:
    try:
        content.unpack_gzip(content.GZIP + garbage, 1000, "it")
    except InvalidInput as refused:
        assert "\n" not in str(refused)


ENCODINGS = {
    "utf-16": "UTF-16",
    "utf-32": "UTF-32",
    "utf-8-sig": "byte order mark",
    "latin-1": "byte 0",
    "utf-16-le": "zero byte",
}


@pytest.mark.parametrize(("encoding", "words"), ENCODINGS.items())
def test_other_encodings_are_refused_by_name(encoding: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        content.decode("éa".encode(encoding), "it")


@for_all(st.text(st.characters(exclude_characters="\0\ufeff", codec="utf-8"), min_size=1))
def test_a_cut_text_keeps_all_complete_characters(text: str) -> None:
    encoded = text.encode()
    for length in range(1, len(encoded)):
        assert text.startswith(content.decode(encoded[:length], "it", cut=True))


def test_windows_line_ends_are_converted(tmp_path: Path) -> None:
    path = tmp_path / "module.txt"
    for written in (b"HloModule a\r\n\r\nENTRY m {\r\n}\r\n", b"HloModule a\n\nENTRY m {\n}\n"):
        for stored in (written, gzip.compress(written)):
            path.write_bytes(stored)
            assert content.read_text(path, "it").text == "HloModule a\n\nENTRY m {\n}\n"


def values_in(plain: object) -> int:
    """Count the lists, objects and commas of parsed JSON."""
    inner = list(plain.values()) if isinstance(plain, dict) else plain
    if not isinstance(inner, list):
        return 0
    return 1 + max(0, len(inner) - 1) + sum(map(values_in, inner))


texts = st.text('[]{},"\\:a', max_size=8)
values = st.recursive(
    st.none() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@for_all(values)
def test_values_are_counted_before_parsing(plain: object) -> None:
    raw = json.dumps(plain).encode()
    strings = raw.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"') // 2
    most = values_in(plain) + strings  # a string can count, but not its characters
    assert content.parse_json(raw, "it", most) == plain
    if values_in(plain):
        with pytest.raises(InvalidInput, match="more than"):
            content.parse_json(raw, "it", values_in(plain) - 1)


def test_metadata_of_macos_is_not_listed(tmp_path: Path) -> None:
    for name in ("a.hlo", "._a.hlo", ".DS_Store", "__MACOSX/a/b", "d/.zarray", "d/._c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in content.files_below(tmp_path, "it")]
    assert found == ["a.hlo", "d/.zarray"]
