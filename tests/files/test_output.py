"""A file is written whole or not at all, and nothing else is left behind."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from inspector.files import output
from inspector.text.errors import InvalidInput
from tests.paths import ROOT


def contents(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_is_written_as_it_is(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    output.write_text("première\nsecond 🙂\n", target)
    assert target.read_bytes() == "première\nsecond 🙂\n".encode()
    assert contents(tmp_path) == ["a.json"]


def test_a_file_is_replaced_and_keeps_nothing_of_the_old(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.write_text("old" * 1000, encoding="utf-8")
    output.write_text("new", str(target))
    assert target.read_text(encoding="utf-8") == "new"
    assert contents(tmp_path) == ["a.json"]


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    output.write_text("x", tmp_path / "written")
    assert stat.S_IMODE((tmp_path / "written").stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


def test_a_path_relative_to_the_present_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output.write_text("x", "a.txt")
    assert contents(tmp_path) == ["a.txt"]


def test_the_longest_name_a_folder_takes(tmp_path: Path) -> None:
    name = "n" * os.pathconf(tmp_path, "PC_NAME_MAX")
    output.write_text("x", tmp_path / name)
    assert contents(tmp_path) == [name]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    real.write_text("old", encoding="utf-8")
    link.symlink_to(real)
    output.write_text("new", link)
    assert link.is_symlink() and real.read_text(encoding="utf-8") == "new"
    assert contents(tmp_path / "folder") == ["real"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        output.write_text("through", pipe)
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and contents(tmp_path) == ["pipe"]


def test_an_open_file_by_its_number_is_written_to() -> None:
    """Test a pipe, as for /dev/stdout or a shell's >(command)."""
    if not Path("/dev/fd").exists():
        pytest.skip("this system does not name open files in /dev/fd")
    reader, writer = os.pipe()
    try:
        output.write_text("through", f"/dev/fd/{writer}")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
        os.close(writer)


def test_the_null_device_stays_one() -> None:
    output.write_text("discarded", os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.mkdir()
    (target / "inside").touch()
    with pytest.raises(InvalidInput, match=r"a\.json cannot be written: Is a directory"):
        output.write_text("x", target)
    assert contents(tmp_path) == ["a.json"] and contents(target) == ["inside"]


def test_a_missing_folder_is_created(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "too" / "a.json"
    output.refuse_unwritable(path)
    assert contents(tmp_path) == [], "the check alone creates nothing"
    output.write_text("x", path)
    assert path.read_text() == "x"


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("absent")
    for name in ("file", "link"):
        path = tmp_path / name / "new" / "a.json"
        with pytest.raises(InvalidInput, match="is not a folder"):
            output.refuse_unwritable(path)
    with pytest.raises(InvalidInput, match=r"a\.json cannot be written"):
        output.write_text("x", tmp_path / "file" / "new" / "a.json")
    assert contents(tmp_path) == ["file", "link"]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be written: Not a directory"):
        output.write_text("x", tmp_path / "file" / "a.json")
    assert contents(tmp_path) == ["file"]


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be written: File name too long"):
        output.write_text("x", tmp_path / ("n" * 1000))
    assert contents(tmp_path) == []


def test_text_that_cannot_be_encoded_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.write_text("old", encoding="utf-8")
    with pytest.raises(InvalidInput, match="cannot be written"):
        output.write_text("half \ud800 a character", target)
    assert target.read_text(encoding="utf-8") == "old" and contents(tmp_path) == ["a.json"]


def test_a_zero_byte_in_the_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be written"):
        output.write_text("x", f"{tmp_path}/a\0b")
    assert contents(tmp_path) == []


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """The operating system refuses the write half way: by a limit on the size of files."""
    resource = pytest.importorskip("resource", reason="limits on file size are not to be had here")
    target = tmp_path / "a.json"
    target.write_text("old", encoding="utf-8")
    # SIGXFSZ would end the process; Python ignores it, so that write() fails with EFBIG instead.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(InvalidInput, match="cannot be written: File too large"):
            output.write_text("x" * 100_000, target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert target.read_text(encoding="utf-8") == "old" and contents(tmp_path) == ["a.json"]


def test_an_interrupt_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.json"
    target.write_text("old", encoding="utf-8")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    # The one moment that cannot be hit from outside: written, but not yet moved into place.
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        output.write_text("new", target)
    assert target.read_text(encoding="utf-8") == "old" and contents(tmp_path) == ["a.json"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_rewritten_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    path.chmod(mode)
    output.write_text("new", path)
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == mode


KILLED = """
import os, signal, sys
from inspector.files import output
if sys.argv[2] == "named":
    output._nameless_file = lambda folder: None
# Written, but not yet renamed. A nameless file has no name before `fchmod`.
setattr(os, sys.argv[3], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
output.write_bytes(b"new" * 100_000, sys.argv[1])
"""


def killed_while_writing(target: Path, way: str, call: str = "fchmod") -> None:
    target.write_text("old")
    command = [sys.executable, "-c", KILLED, str(target), way, call]
    done = subprocess.run(command, cwd=ROOT, timeout=60)
    assert done.returncode == -signal.SIGKILL and target.read_text() == "old"


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no files without a name")
def test_a_killed_process_leaves_nothing(tmp_path: Path) -> None:
    killed_while_writing(tmp_path / "a.json", "nameless")
    assert contents(tmp_path) == ["a.json"]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no files without a name")
def test_the_next_write_removes_what_a_process_left_that_was_killed_before_the_rename(
    tmp_path: Path,
) -> None:
    target = tmp_path / "a.json"
    killed_while_writing(target, "nameless", "replace")
    assert len(contents(tmp_path)) == 2
    written = tmp_path / ".a.json.0123456789abcdef"  # another process writes it
    with open(written, "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        output.write_text("new", target)
    assert target.read_text() == "new" and contents(tmp_path) == [written.name, target.name]


def test_what_a_killed_process_left_is_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test file systems that have no files without a name."""
    target = tmp_path / "a.json"
    killed_while_writing(target, "named")
    (left,) = set(contents(tmp_path)) - {"a.json"}
    others = [".a.json.txt", ".b.json.0123456789abcdef"]
    for name in (left, *others):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".a.json.0123456789abcdef").touch()  # another process writes it
    monkeypatch.setattr(output, "_nameless_file", lambda folder: None)
    output.write_text("new", target)
    assert target.read_text() == "new"
    assert contents(tmp_path) == sorted([".a.json.0123456789abcdef", *others, "a.json"])
