"""Tests of the temporary folder that the server and its workers share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.processes import until
from inspector.files.temporary_folder import LOCK, NEW, PREFIX, TemporaryFolder, held, remove_stale
from inspector.text.errors import InvalidInput
from tests.paths import ROOT

LATER = NEW + 3600  # seconds


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty folder in which temporary folders are created."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def server(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that created a folder. It ends after one line of input."""
    program = (
        "import sys; from inspector.files.temporary_folder import TemporaryFolder;"
        "folder = TemporaryFolder(); (folder.path / 'data').write_bytes(b'x' * 1000);"
        "print(folder.path, flush=True); sys.stdin.readline()"
    )
    popen = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, text=True,
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with popen:
        yield popen
        popen.kill()


def test_folder_is_private_and_removed_with_its_content(temporary: Path) -> None:
    folder = TemporaryFolder()
    assert folder.path.parent == temporary and folder.path.name.startswith(PREFIX)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "deep" / "down").mkdir(parents=True)
    (folder.path / "deep" / "down" / "file").write_text("x")
    folder.remove()
    folder.remove()
    assert list(temporary.iterdir()) == []


def test_removal_waits_for_a_process_that_holds_the_folder() -> None:
    folder = TemporaryFolder()
    written = threading.Event()

    def write() -> None:
        with held(folder.path) as path:
            entered.set()
            time.sleep(0.2)
            (path / "late").write_text("x")
            written.set()

    entered = threading.Event()
    writer = threading.Thread(target=write)
    writer.start()
    assert entered.wait(60)
    folder.remove(patience=60)
    assert written.is_set(), "removed while it was held"
    assert not folder.path.exists()
    writer.join()


def test_removal_stops_waiting_after_its_patience(temporary: Path) -> None:
    folder = TemporaryFolder()
    with held(folder.path):
        folder.remove(patience=0.1)
    assert list(temporary.iterdir()) == []


def test_a_removed_folder_cannot_be_held() -> None:
    folder = TemporaryFolder()
    folder.remove()
    with (
        pytest.raises(InvalidInput, match="no longer exists"),
        held(folder.path),
    ):
        pass
    assert not folder.path.exists()


def test_the_next_start_removes_the_folder_of_a_killed_server(server, temporary: Path) -> None:
    path = Path(server.stdout.readline().strip())
    now = time.time()
    assert remove_stale(now + LATER) == [], "the server still runs"
    server.send_signal(signal.SIGKILL)
    server.wait(60)
    assert path.exists()
    assert remove_stale(now) == [], "the folder is too new"
    assert remove_stale(now + LATER) == [path]
    assert list(temporary.iterdir()) == []


def test_a_worker_that_outlives_its_server_keeps_the_folder(server) -> None:
    path = Path(server.stdout.readline().strip())
    with held(path):
        server.send_signal(signal.SIGKILL)
        server.wait(60)
        assert remove_stale(time.time() + LATER) == []
    assert remove_stale(time.time() + LATER) == [path]


def test_a_server_removes_its_folder_at_exit(server) -> None:
    path = Path(server.stdout.readline().strip())
    assert path.exists()
    print(file=server.stdin, flush=True)
    assert server.wait(60) == 0
    assert until(lambda: not path.exists(), "the removal of the folder")


def test_only_unlocked_folders_of_this_program_are_removed(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").write_text("x")
    (temporary / (PREFIX + "link")).symlink_to(elsewhere)
    (temporary / (PREFIX + "file")).write_text("x")
    (temporary / "another-folder").mkdir()
    half_made = temporary / (PREFIX + "without-lock")
    half_made.mkdir()
    trap = temporary / (PREFIX + "linked-lock")
    trap.mkdir()
    (trap / LOCK).symlink_to(elsewhere / "precious")
    assert remove_stale(time.time() + LATER) == [half_made]
    assert (elsewhere / "precious").read_text() == "x"
    assert len(list(temporary.iterdir())) == 4


def test_error_if_the_folder_cannot_be_created(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))
    with pytest.raises(InvalidInput, match="cannot be created: No such file"):
        TemporaryFolder()
