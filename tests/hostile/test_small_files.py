"""No small text takes a parser much time or memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.hostile import small_files
from tests.paths import ROOT


@pytest.mark.nightly
def test_small_texts_are_read_within_limits() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.small_files"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == sum(1 for _ in small_files.readings())
