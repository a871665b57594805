"""The Docker image installs only packages of `requirements-image.txt`, by hash."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.checkout_command import run_py
from tests.paths import ROOT

LOCKED = re.findall(
    r"^(\S+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$",
    (ROOT / "requirements-image.txt").read_text(),
    re.MULTILINE,
)
NEEDED = [*map(Requirement, run_py()._requirements("image"))]


def test_each_line_has_a_version_and_hashes() -> None:
    lines = (ROOT / "requirements-image.txt").read_text().splitlines()
    assert len(LOCKED) == sum("==" in line for line in lines)
    assert sum(text.count("sha256") for *_, text in LOCKED) == sum("--hash" in line for line in lines)
    names = [name for name, *_ in LOCKED]
    assert len(set(names)) == len(names) and "setuptools" in names


@pytest.mark.parametrize("needed", NEEDED, ids=str)
def test_the_locked_version_is_one_that_the_project_allows(needed: Requirement) -> None:
    """Otherwise pip installs it, because the project itself is installed without its dependencies."""
    versions = {name: version for name, version, _ in LOCKED}
    assert Version(versions[needed.name.lower().replace("_", "-")]) in needed.specifier


def test_pip_installs_nothing_without_a_hash() -> None:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    installs = [line for line in text.splitlines() if line.startswith("RUN pip install")]
    assert len(installs) == 2
    assert "--require-hashes" in installs[0] and "--only-binary :all:" in installs[0]
    assert "--no-deps" in installs[1] and "--no-build-isolation" in installs[1]
