"""How every verb ends: exit status, one line for each error, output in any encoding."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inspector.media import terminal
from inspector.media.terminal import VERBS, main, render
from inspector.records import snapshot as snapshots
from inspector.records.snapshot import Snapshot
from tests.figures import samples
from tests.paths import ROOT


@pytest.fixture
def path(tmp_path: Path) -> str:
    snapshots.write(samples.snapshot(), tmp_path / "run.json")
    return str(tmp_path / "run.json")


def test_every_verb_has_a_name_and_a_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(verb.name in text and verb.help for verb in VERBS)


def test_an_unexpected_error_is_one_line(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(blocks: object) -> None:
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr(render, "show", fail)
    monkeypatch.delenv(terminal.DEBUG, raising=False)
    assert main(["show", path]) == terminal.UNUSABLE_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert "ZeroDivisionError: first line second line" in line
    monkeypatch.setenv(terminal.DEBUG, "1")
    assert main(["show", path]) == terminal.UNUSABLE_INPUT
    assert "Traceback" in capsys.readouterr().err


def test_an_ascii_terminal_gets_substitutes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["show", path]) == 0
    assert "data 2 x model 4" in raw.getvalue().decode("ascii")


@pytest.mark.nightly
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device /dev/full")
def test_a_full_device_is_one_line(path: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "inspector", "show", path],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_shards_lists_the_arrays(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [array.path for array in snapshots.read(path).arrays]
    assert main(["shards", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == paths
    assert main(["shards", path, "--json"]) == 0
    assert [row["array"] for row in json.loads(capsys.readouterr().out)] == paths


def test_show_and_device_print_memory_kinds_outside_device_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def on_host(snapshot: Snapshot) -> Snapshot:
        moved = dataclasses.replace(snapshot.arrays[1], memory_kind="pinned_host")
        return dataclasses.replace(snapshot, arrays=(snapshot.arrays[0], moved))

    path = str(tmp_path / "run.json")
    snapshots.write(on_host(samples.snapshot()), path)
    for arguments in (["show", path, "--section", "arrays"], ["device", path, "--device", "0"]):
        assert main(arguments) == 0
        assert "pinned_host" in capsys.readouterr().out
