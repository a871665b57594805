"""Each tool gives the JSON of its verb, reads only its folder, writes nothing and runs no code."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from inspector.media import picture_file
from inspector.media.terminal import main
from tests.media.terminal.mcp.conftest import Agent

KERNEL = "params/DotReluDot_0/Dense_0/kernel"
TOOLS = {"show", "explain", "audit", "predict", "compare", "plan", "search"}
MLP = {
    "mesh": "2x4",
    "axes": "data,model",
    "rules": "batch=data,hidden=model",
    "set": ["layers=1", "depth=64"],
}
OF_MLP = [
    *("--mesh", "2x4", "--axes", "data,model", "--rules", "batch=data,hidden=model"),
    *("--set", "layers=1", "--set", "depth=64"),
]


def without_time(plain: Any) -> Any:
    """Return JSON without the times at which it was made."""
    if isinstance(plain, dict):
        return {key: without_time(value) for key, value in plain.items() if key != "created"}
    return [without_time(value) for value in plain] if isinstance(plain, list) else plain


@pytest.mark.parametrize(
    ("tool", "arguments", "command"),
    [
        ("show", {"snapshot": "fsdp.json"}, ["fsdp.json"]),
        ("show", {"snapshot": "./fsdp.json", "chip": "v5e"}, ["fsdp.json", "--chip", "v5e"]),
        ("explain", {"snapshot": "fsdp.json"}, ["fsdp.json"]),
        ("explain", {"snapshot": "fsdp.json", "array": KERNEL}, ["fsdp.json", "--array", KERNEL]),
        ("explain", {"snapshot": "fsdp.json", "rule": "embed"}, ["fsdp.json", "--rule", "embed"]),
        ("audit", {"snapshot": "tensor.json"}, ["tensor.json"]),
        ("predict", {"snapshot": "fsdp.json", "chip": "v5e"}, ["fsdp.json", "--chip", "v5e"]),
        ("predict", {"snapshot": "fsdp.json"}, ["fsdp.json"]),
        (
            "compare",
            {"snapshots": ["tensor.json", "fsdp.json"], "chip": "v5e", "baseline": 2},
            ["tensor.json", "fsdp.json", "--chip", "v5e", "--baseline", "2"],
        ),
        (
            "search",
            {**MLP, "target": "cpu", "lock": ["mesh"]},
            [*OF_MLP, "--target", "cpu", "--lock", "mesh", "--budget", "0"],
        ),
    ],
)
def test_a_tool_gives_the_json_of_its_verb(
    agent: Agent,
    tool: str,
    arguments: dict[str, Any],
    command: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(agent.folder)
    assert main([tool, *command, "--json"]) == 0
    whole = arguments if tool == "search" else arguments | {"all": True}
    expected = without_time(json.loads(capsys.readouterr().out))
    assert without_time(agent.ask(tool, **whole)) == expected
    if tool != "search":
        short = without_time(agent.ask(tool, **arguments))
        assert len(json.dumps(short)) < 10_000
        if short != expected:
            kept = {*expected} - {*short["left_out"]} if isinstance(expected, dict) else ()
            assert short["screen"] and all(expected[key] == short[key] for key in kept)


def test_a_plan_is_that_of_inspect(agent: Agent, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    assert main(["inspect", "--target", "plan", *OF_MLP, "-o", str(path)]) == 0
    whole = agent.ask("plan", **MLP, whole=True)
    assert without_time(whole) == without_time(json.loads(path.read_text()))
    assert main(["show", str(path), "--chip", "v5e", "--json"]) == 0
    summary = agent.ask("plan", **MLP, chip="v5e")
    assert without_time(summary) == without_time(json.loads(capsys.readouterr().out))


def test_the_tools_are_read_only(agent: Agent) -> None:
    tools = agent.portal.call(agent.client.list_tools).tools
    assert {tool.name for tool in tools} == TOOLS
    assert all(tool.annotations.read_only_hint for tool in tools)
    options = {name for tool in tools for name in tool.input_schema["properties"]}
    # These write files, run programs, load code, or use what is kept outside of the folder.
    assert not options & {
        *("output", "trace", "board", "time_together", "budget", "dask", "workers", "steps", "processes"),
        *("unsafe_compiler_options", "compiler_options"),
    }
    assert "tensor.json" not in agent.client.instructions  # a name can be written to be read by the model


def test_nothing_outside_of_the_folder_is_read(agent: Agent) -> None:
    secret = agent.outside / "secret.json"
    shutil.copy(agent.folder / "tensor.json", secret)
    run = agent.folder / "run"
    run.mkdir()
    links = {
        agent.folder / "link.json": secret,
        agent.folder / "linked": agent.outside,
        run / "snapshot.json": secret,
        agent.folder / "loop.json": agent.folder / "loop.json",
        agent.folder / "relative.json": Path("../outside/secret.json"),
    }
    for link, target in links.items():
        link.symlink_to(target)
    try:
        for path in (
            *("link.json", "linked/secret.json", "linked", "run", "loop.json", "relative.json"),
            *("../outside/secret.json", "run/../../outside/secret.json", str(secret), "/etc/passwd"),
            *("~/secret.json", "absent.json", "", "a\0b", "/dev/stdin", "x" * 5000, "-o", "--json"),
        ):
            for tool, argument in (
                *(("show", "snapshot"), ("explain", "snapshot"), ("audit", "snapshot")),
                *(("predict", "snapshot"), ("plan", "layout"), ("search", "layout")),
            ):
                sentence = agent.error(tool, **{argument: path})
                assert "\n" not in sentence and len(sentence) < 400 and sentence.startswith(argument)
            assert agent.error("compare", snapshots=["tensor.json", path]).startswith("snapshots is ")
        for rules in (str(secret), "../outside/secret.json", "link.json"):
            assert agent.error("plan", rules=rules).startswith("rules is ")
            assert agent.error("explain", snapshot="tensor.json", rules=rules).startswith("rules is ")
        agent.ask("show", snapshot="tensor.json")
        opened = agent.opened()
        assert agent.folder / "tensor.json" in opened and Path("/etc/passwd") not in opened
        assert not any(path.is_relative_to(agent.outside) for path in opened)
        # A link inside of the folder is as good as its file.
        (agent.folder / "same.json").symlink_to("tensor.json")
        assert agent.ask("show", snapshot="same.json") == agent.ask("show", snapshot="tensor.json")
    finally:
        for link in (*links, agent.folder / "same.json"):
            link.unlink(missing_ok=True)
        run.rmdir()


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("draw", {}, "the tool is 'draw', but must be one of show, "),
        ("show", {}, "snapshot is missing, but must be one of fsdp.json, tensor.json"),
        ("show", {"snapshot": "tensr.json"}, "must be one of fsdp.json, tensor.json"),
        ("show", {"snapshot": ["fsdp.json"]}, "snapshot is a list of 1, but must be text"),
        ("show", {"snapshot": "fsdp.json", "chip": "v9"}, "v9"),
        ("show", {"snapshot": "fsdp.json", "chip": {"a": 1}}, "chip is an object of 1"),
        ("show", {"snapshot": "fsdp.json", "output": "x.json"}, "show has no argument 'output'"),
        ("show", {"snapshot": "fsdp.json", "picture": "yes"}, "picture is 'yes'"),
        ("audit", {"snapshot": "fsdp.json", "picture": True}, "audit has no picture"),
        ("explain", {"snapshot": "fsdp.json", "array": "params/x"}, "params/x"),
        ("explain", {"snapshot": "fsdp.json", "array": "a", "rule": "b"}, "not allowed with"),
        ("explain", {"snapshot": "fsdp.json", "agreement": "yes"}, "must be true or false"),
        ("compare", {"snapshots": ["fsdp.json"]}, "at least two Snapshots"),
        ("compare", {"snapshots": []}, "at least two Snapshots"),
        ("plan", {"model": "evil:model"}, "model is 'evil:model', but must be one of"),
        ("plan", {"mesh": "2x"}, "mesh"),
        ("search", {"target": "nowhere"}, "target"),
        ("search", {"objective": "beauty", "target": "cpu"}, "invalid choice: 'beauty'"),
    ],
)
def test_an_error_is_one_sentence(agent: Agent, tool: str, arguments: dict[str, Any], words: str) -> None:
    sentence = agent.error(tool, **arguments)
    assert words in sentence and "\n" not in sentence and "Traceback" not in sentence


def test_damaged_files_are_errors(agent: Agent) -> None:
    contents = {
        "damaged.json": '{"format": "sharding-snapshot"',
        "other.json": '{"format": "other"}',
        "binary.json": "\0\1",
        "empty.json": "",
    }
    try:
        for name, content in contents.items():
            (agent.folder / name).write_text(content)
            for tool in ("show", "explain", "audit", "predict"):
                sentence = agent.error(tool, snapshot=name)
                assert name in sentence and "\n" not in sentence
        os.mkfifo(agent.folder / "pipe.json")
        assert "pipe" in agent.error("show", snapshot="pipe.json")
    finally:
        for name in (*contents, "pipe.json"):
            (agent.folder / name).unlink(missing_ok=True)


def test_no_code_runs_and_nothing_is_written(agent: Agent) -> None:
    """Modules in the folder, named as packages are, would say so in a file."""
    marker = agent.outside / "executed"
    modules = [agent.folder / name for name in ("numpy.py", "sitecustomize.py", "json.py", "evil.py")]
    for module in modules:
        module.write_text(f"open({str(marker)!r}, 'w').close()\nmodel = None\n")
    before = sorted((path, path.stat().st_mtime_ns) for path in agent.folder.rglob("*"))
    kept = sorted(agent.outside.rglob("*"))
    try:
        layout = json.loads((agent.folder / "tensor.json").read_text())["layout"] | {"model": "evil:model"}
        agent.ask("plan", mesh="2x2", axes="data,model", set="depth=32")
        agent.ask(
            "search", mesh="1x2", axes="data,model", set=["depth=32", "layers=1"], target="cpu", lock="mesh"
        )
        agent.ask("show", snapshot="tensor.json")
        assert sorted((path, path.stat().st_mtime_ns) for path in agent.folder.rglob("*")) == before
        assert not marker.exists() and sorted(agent.outside.rglob("*")) == kept
        (agent.folder / "evil.json").write_text(json.dumps(layout))
        assert "evil" in agent.error("plan", layout="evil.json")
        assert not marker.exists()
    finally:
        for path in (*modules, agent.folder / "evil.json"):
            path.unlink(missing_ok=True)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("show", {"snapshot": "fsdp.json", "chip": "v5e"}),
        ("compare", {"snapshots": ["tensor.json", "fsdp.json"], "chip": "v5e"}),
        ("predict", {"snapshot": "fsdp.json", "chip": "v5e"}),
        ("plan", {**MLP, "chip": "v5e"}),
    ],
)
def test_a_picture_is_a_png(agent: Agent, tool: str, arguments: dict[str, Any]) -> None:
    result = agent.result(tool, **arguments, picture=True)
    assert json.loads(result.content[0].text)
    if picture_file.why_none() is not None:
        assert result.content[1].text.startswith("no picture: ")
        return
    (image,) = result.content[1:]
    content = base64.b64decode(image.data)
    assert image.mime_type == "image/png" and content.startswith(b"\x89PNG")
    assert int.from_bytes(content[16:20], "big") == 1200  # pixels
