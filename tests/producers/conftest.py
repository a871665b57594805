"""Fixtures of producers that several folders use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.producers.readers import dumped


@pytest.fixture(scope="session")
def placements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a dump, captures and JAX's own placements of programs with every kind of them."""
    folder = tmp_path_factory.mktemp("placements")
    subprocess.run([sys.executable, str(dumped.__file__), str(folder)], check=True, capture_output=True)
    return folder
