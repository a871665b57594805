"""Files are read up to a limit; pipes and devices, which may never end, are refused."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inspector.audit import lock_file, policy
from inspector.files import input_file, strict_json
from inspector.layout import rule_files
from inspector.media.terminal.options import read_layout
from inspector.records import program_run, snapshot
from inspector.text.errors import InvalidInput

READERS: list[Callable[[Any], Any]] = [
    lambda path: input_file.read_bytes(path, 10), strict_json.read, snapshot.read, lock_file.read,
    policy.read, read_layout, rule_files.read,
]  # fmt: skip


@pytest.mark.parametrize("read", READERS)
def test_a_pipe_and_a_device_are_refused_at_once(read: Callable[[Any], Any], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    start = time.monotonic()
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(InvalidInput, match="must be a file"):
            read(path)
    assert time.monotonic() - start < 5


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    assert input_file.read_bytes(path, 10) == b"0123456789"
    with pytest.raises(InvalidInput, match="more than 9 bytes"):
        input_file.read_bytes(path, 9)
    with path.open("wb") as file:  # no byte of it is on the disk
        file.truncate(2**40)
    for read in (*READERS, lambda _: program_run.read(tmp_path)):
        path.rename(path := tmp_path / program_run.FILE)
        with pytest.raises(InvalidInput, match=r"more than [\d,]+ bytes"):
            read(str(path))


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("é", encoding="utf-8")
    (tmp_path / "b").symlink_to("a")
    assert input_file.read_text(tmp_path / "b") == "é"


def test_values_of_json_are_counted_before_parsing() -> None:
    most = 1000
    for text in ("[" + "[]," * most + "0]", '{"a": [' + "0," * most + "0]}"):
        for value in (text, text.encode()):
            with pytest.raises(InvalidInput, match="more than 1,000 values"):
                strict_json.parse(value, "it", most)
    commas = '["' + "," * 5 * most + '"]'
    assert strict_json.parse(commas, "it", most) == ["," * 5 * most]
