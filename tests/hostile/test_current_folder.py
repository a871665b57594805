"""No command of the documentation runs a module of the folder in which it is started.

All commands are read from the code blocks of the pages, so new ones are covered. Each page has a folder with
its inputs and with modules that write a file. A command for an accelerator makes a plan instead.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.processes import until
from tests.browser.server import free_port
from tests.checkout_command import run_py, write_command
from tests.docs.test_documentation import PAGES, blocks, name_of
from tests.paths import ROOT

ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
# Programs of others, and what a shell does itself.
FOREIGN = {"pip", "docker", "dask", "touch", "source", "pytest", "streamlit", "chmod", "printf"}
PYTHON = {"python", "python3"}
# What replaces options of long commands: a plan has shapes of any size and needs no compiler.
SMALL = {"--target": "plan", "--steps": "1", "--budget": "0", "--sizes": None, "--dask": None}
MODULES = ("numpy", "jax", "streamlit", "msgspec", "sitecustomize")


def _started() -> Iterator[tuple[str, list[str]]]:
    """Yield the page and the words of every command, without variables before it."""
    for page in PAGES:
        for block in blocks(page, "sh", "console", "bash", "yaml"):
            prompt = any(line.startswith("$ ") for line in block.splitlines())
            for line in block.replace("\\\n", " ").splitlines():
                text = line.removeprefix("$ ").strip()
                if text.startswith(("- run:", "run:")):
                    text = text.partition(":")[2].strip()
                elif prompt != line.startswith("$ "):
                    continue  # what a command prints
                reader = shlex.shlex(text, posix=True, punctuation_chars=";")
                reader.whitespace_split = True
                for _, part in itertools.groupby(reader, lambda word: word == ";"):
                    words = [*itertools.dropwhile(ASSIGNMENT.fullmatch, part)]
                    if words and words[0] not in (";", "|", "-", "with:"):  # lines of a CI file
                        yield name_of(page), words


COMMANDS = list(_started())
OWN = [(page, words) for page, words in COMMANDS if words[0] == "sharding-inspector"]


def _hostile(folder: Path, names: Iterator[str] | tuple[str, ...]) -> Path:
    """Write modules that append their name to a file, and return the file."""
    executed = folder / "executed.txt"
    for name in names:
        code = f"with open({str(executed)!r}, 'a') as file:\n    file.write({name + ' '!r})\n"
        (folder / f"{name}.py").write_text(code + "raise ImportError('of the current folder')\n")
    return executed


def test_every_command_of_the_documentation_is_known() -> None:
    assert {words[0] for _, words in COMMANDS} == FOREIGN | PYTHON | {"sharding-inspector"}
    assert len(OWN) > 40
    scripts = [words for _, words in COMMANDS if words[0] in PYTHON and words[1] != "-m"]
    assert {words[1] for words in scripts} == {"run.py"}
    assert {words[2] for words in scripts} <= set(run_py().COMMANDS)


@pytest.mark.parametrize("names", [MODULES, pytest.param(None, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("path", [None, os.pathsep])
def test_no_module_of_the_folder_runs(
    tmp_path: Path, names: tuple[str, ...] | None, path: str | None
) -> None:
    """The second case has all modules of Python and of the installed packages."""
    if names is None:
        installed = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions()}
        names = tuple(name for name in sorted(installed | {"usercustomize"}) if name.isidentifier())
    folder = tmp_path / "downloaded"
    folder.mkdir()
    executed = _hostile(folder, names)
    command = write_command(tmp_path)
    for words in (
        ["inspect", "--target", "plan", "--set", "depth=64", "-o", "run.json"],
        ["show", "run.json"],
        ["report", "run.json", "-o", "report.html"],
    ):
        _end(command, words, folder, path, {0})
    assert not executed.exists(), executed.read_text()


@pytest.mark.nightly
@pytest.mark.parametrize("page", sorted({page for page, _ in OWN}))
def test_no_command_of_a_page_runs_a_module_of_the_folder(tmp_path: Path, page: str) -> None:
    folder = tmp_path / "downloaded"
    folder.mkdir()
    command = write_command(tmp_path)
    _write_inputs(command, folder)
    executed = _hostile(folder, MODULES)
    for words in [words[1:] for other, words in OWN if other == page]:
        if words[0] in ("dashboard", "serve"):
            _serve(command, words, folder)
        else:
            _end(command, _small(words), folder, None, {0, 1, 2})
        assert not executed.exists(), (words, executed.read_text())


def _small(words: list[str]) -> list[str]:
    """Return the arguments of a command that takes seconds and needs no accelerator."""
    # What follows a program is its own.
    end = next((n for n, word in enumerate(words) if word.endswith(".py") or word == "-m"), len(words))
    end = end if words[0] in ("run", "same") else len(words)
    result, rest = [], words[:end]
    while rest:
        word = rest.pop(0)
        if word in SMALL and rest:
            rest.pop(0)
            value = SMALL[word]
            if words[0] in ("run", "search") and word == "--target":
                value = None
            result += [] if value is None else [word, value]
        else:
            result.append(word)
    return result + words[end:]


def _write_inputs(command: Path, folder: Path) -> None:
    """Write the files that commands of the pages read."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    for package in "my_package", "mypackage":
        (folder / package).mkdir()
    shutil.copy(ROOT / "examples" / "linen_mlp.py", folder / "mypackage" / "mymodule.py")
    # The folder of a program comes first for the program itself, so it imports nothing.
    for program in (folder / "train.py", folder / "my_package" / "train.py"):
        program.write_text("print('done')\n")
    small = ["--target", "plan", "--set", "depth=64", "--set", "layers=1"]
    _end(command, ["inspect", *small, "-o", "plan.json"], folder, None, {0})
    layout = json.loads((folder / "plan.json").read_text())["layout"]
    (folder / "layout.json").write_text(json.dumps(layout))
    for name in (
        "run",
        "state",
        "fsdp",
        "tensor",
        "llama",
        "two",
        "mine",
        "decoder",
        "before",
        "zero1",
    ):
        shutil.copy(folder / "plan.json", folder / f"{name}.json")
    for page in PAGES:
        for block in blocks(page, "toml"):
            for name in "sharding.toml", "policy.toml":
                (folder / name).write_text(block)
    (folder / "base.yml").write_text("logical_axis_rules: [['batch', ['data']], ['embed', ['fsdp']]]\n")
    (folder / "gemma_2b.yaml").write_text("trainer:\n  tensor_parallel_axes: [mlp, heads]\n")


def _end(command: Path, words: list[str], folder: Path, path: str | None, allowed: set[int]) -> None:
    done = subprocess.run(
        [command, *words], cwd=folder, env=_variables(folder, path), capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode in allowed, (words, done.stderr)
    assert "Traceback" not in done.stderr, (words, done.stderr)


def _variables(folder: Path, path: str | None) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables |= {"JAX_PLATFORMS": "cpu", "SHARDING_INSPECTOR_LIBRARY": str(folder / "library")}
    variables["SHARDING_INSPECTOR_CACHE"] = str(folder / "cache")
    return variables if path is None else variables | {"PYTHONPATH": path}


def _serve(command: Path, words: list[str], folder: Path) -> None:
    """Start a server, which must also ignore Streamlit's settings in the folder, and end it."""
    if "--address" in words:  # of another machine
        words = [*words]
        words[words.index("--address") + 1] = "127.0.0.1"
    (folder / ".streamlit").mkdir(exist_ok=True)
    (folder / ".streamlit" / "config.toml").write_text('[server]\nbaseUrlPath = "elsewhere"\n')
    (folder / ".streamlit" / "secrets.toml").write_text("not = a file of TOML")
    port = free_port()
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [command, *words, "--port", str(port)], cwd=folder, stdout=log, stderr=log,
            env=_variables(folder, os.pathsep) | {"STREAMLIT_SERVER_HEADLESS": "true"},
        )  # fmt: skip
    try:
        until(lambda: _answers(port), (folder / "server.log").read_text())
    finally:
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(60)
        server.kill()


def _answers(port: int) -> bool:
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).status == 200
    except urllib.error.HTTPError as error:  # to a connection that is not that of the trusted proxy
        return error.code == 403
    except OSError:
        return False


def test_run_py_starts_other_interpreters_in_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands are not run here: they are the tests, checks and benchmarks themselves."""
    module = run_py()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_require_chromium", lambda: None)
    monkeypatch.setattr(module, "ENVIRONMENT", tmp_path / "environment")
    started: list[tuple[list[str], Path]] = []

    def start(command: list[object], **options: object) -> object:
        started.append(([*map(str, command)], Path(str(options.get("cwd", Path.cwd())))))
        return subprocess.CompletedProcess(command, 0, b"", b"")

    class Started:
        def __init__(self, command: list[object], **options: object) -> None:
            start(command, **options)

        def wait(self) -> int:
            return 0

        def terminate(self) -> None:
            """Do nothing: it has ended."""

    monkeypatch.setattr(module.subprocess, "run", start)
    monkeypatch.setattr(module.subprocess, "Popen", Started)
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    (tmp_path / "environment" / "bin" / "python").touch()
    module._create_environment()
    for name, command in module.COMMANDS.items():
        assert command([]) == 0, name
    assert len(started) > len(module.COMMANDS)
    for words, folder in started:
        assert folder == ROOT or "-I" in words, words
