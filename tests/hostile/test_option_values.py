"""Each option of each verb refuses a value that is none with one sentence."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.media import terminal
from inspector.media.terminal import options as shared
from tests.hostile import growing

_NUMBERS = ("NaN", "1e308")
# What each verb needs besides the option. The others start a program or a server.
_NEEDED = {
    **{name: ["S.json"] for name in ("show", "shards", "device", "explain", "predict", "audit", "check")},
    "compare": ["S.json", "S.json"],
    "report": ["S.json"],
    "import": ["hlo", "H.hlo"],
    "inspect": ["L.json"],
    "search": ["L.json", "--target", "tpu:v5e:2x4"],
    "code": ["L.json"],
    "accuracy": [],
}
# Options whose value is any text: names of files, and texts of which an empty one means none.
_TEXT = ("output", "write_lock", "trace", "add", "csv")


def _options(verb: shared.Verb) -> Iterator[argparse.Action]:
    parser = argparse.ArgumentParser(add_help=False)
    verb.add_arguments(parser)
    yield from (action for action in parser._actions if action.option_strings and action.nargs != 0)


@pytest.mark.parametrize("name", _NEEDED)
def test_values_that_are_none(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    growing.written("S.json", growing.SNAPSHOTS["inputs and outputs"](4), tmp_path)
    growing.written("H.hlo", growing.TEXTS["parameters"](4), tmp_path)
    layout = {"model": "mlp", "mesh": [2, 4], "axes": ["data", "model"], "target": "plan"}
    (tmp_path / "L.json").write_text(json.dumps(layout))
    (verb,) = (verb for verb in terminal.VERBS if verb.name == name)
    for action in _options(verb):
        option = max(action.option_strings, key=len)
        empty = [] if action.dest in terminal._CAN_BE_EMPTY else [""]
        for value in ("--", *empty, *(() if action.dest in _TEXT else _NUMBERS)):
            # The option comes last, so that its value is the one that counts.
            status = terminal.main([name, *_NEEDED[name], f"{option}={value}"])
            printed = capsys.readouterr()
            assert status == 2, (option, value)
            last = printed.err.splitlines()[-1]
            assert last.startswith("sharding-inspector: ") and "unexpected" not in printed.err, last
            assert not printed.out


def test_a_program_gets_its_own_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = terminal._Parser()
    shared.add_program(parser, "")
    options = parser.parse_args(["s.py", "--x=--", "--y=", "--"])
    assert options.program == ["s.py", "--x=--", "--y=", "--"]
