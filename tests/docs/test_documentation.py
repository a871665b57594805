"""Run the code blocks of the documentation, and check its links.

A block's language says what happens to it:
  sh: every `sharding-inspector` command is run, in the order of the page, in one folder per page;
  console, yaml: every `sharding-inspector` command is parsed, but not run (it needs a compiler, files, ...);
  python: run in a process with eight emulated devices;
  toml: read as a policy.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.audit import policy
from inspector.media.terminal import main
from inspector.model import own_model
from inspector.model.built_in.catalogue import CATALOGUE
from tests.paths import ROOT
from tests.xla_flags import FAST_COMPILES

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^(?:\$ |- run: | +)?sharding-inspector (.*)$", re.MULTILINE)

# What the README's example takes for granted: any pytree of arrays.
PRELUDE = "import jax.numpy as jnp\nstate = {'kernel': jnp.zeros((8, 8))}\n"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [block for language, block in BLOCK.findall(text) if language in languages]


def commands(page: Path, *languages: str) -> list[list[str]]:
    """The arguments of every `sharding-inspector` command in blocks of these languages."""
    text = "\n".join(blocks(page, *languages)).replace("\\\n", " ")
    return [shlex.split(arguments, comments=True) for arguments in COMMAND.findall(text)]


def pages_with(*languages: str) -> list[Path]:
    return [page for page in PAGES if commands(page, *languages)]


@pytest.fixture(autouse=True)
def restore_catalogue(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove the models that commands of a page register."""
    monkeypatch.setenv(own_model.VARIABLE, os.environ.get(own_model.VARIABLE, "[]"))
    before = dict(CATALOGUE)
    yield
    CATALOGUE.clear()
    CATALOGUE.update(before)


def run_python(code: str, folder: Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count=8 {FAST_COMPILES}",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("page", pages_with("sh"), ids=name_of)
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(ROOT))
    for block in blocks(page, "toml"):
        Path("sharding.toml").write_text(block, encoding="utf-8")
    for block in blocks(page, "python"):
        run_python(PRELUDE + block, tmp_path)
    for arguments in commands(page, "sh"):
        assert main(arguments) == 0, arguments


@pytest.mark.parametrize("page", pages_with("console", "yaml"), ids=name_of)
def test_other_commands_have_valid_arguments(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in commands(page, "console", "yaml"):
        # An unknown option ends with status 2; `--help` behind it ends with 0 before anything runs.
        # After the script of `run` or `same`, it would belong to the script.
        end = len(arguments)
        if arguments[0] in ("run", "same"):
            end = next(
                n
                for n, argument in enumerate(arguments)
                if argument == "-m" or argument.endswith((".py", ".json"))
            )
        with pytest.raises(SystemExit) as ended:
            main([*arguments[:end], "--help"])
        assert ended.value.code == 0, capsys.readouterr().err


def test_every_policy_is_valid(tmp_path: Path) -> None:
    found = [block for page in PAGES for block in blocks(page, "toml") if "same_as" not in block]
    assert found
    for block in found:
        assert policy.parse(block, folder=tmp_path).rules


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = [link.partition("#")[0] for link in LINK.findall(text) if "://" not in link]
    missing = [target for target in targets if target and not (page.parent / target).exists()]
    assert not missing


def test_the_design_names_files_that_exist() -> None:
    text = (ROOT / "docs/explanation/design.md").read_text()
    named = re.findall(r"`([a-z_]+/[a-z_/.]*)`", text)
    package = ROOT / "inspector"
    assert len(named) > 20
    assert [name for name in named if not any((root / name).exists() for root in (package, ROOT))] == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="later versions of argparse lay out help texts differently"
)
def test_reference_pages_are_current() -> None:
    # Models that other tests registered, here or in the environment, must not be in the pages.
    command = [sys.executable, "-m", "docs.generate_reference", "--check"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SHARDING_")}
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
