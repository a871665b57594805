"""Run the examples in the docstrings of docs/reference/api.md."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import inspector
from tests.paths import ROOT
from tests.xla_flags import FAST_COMPILES

PAGE = ROOT / "docs/reference/api.md"
OBJECTS = re.findall(r"^\.\. auto(?:function|class):: ([\w.]+)$", PAGE.read_text(encoding="utf-8"), re.M)
# Arguments: names of objects. The status is the number of examples that failed.
RUN = """
import doctest, importlib, sys
finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
for name in sys.argv[1:]:
    module, _, attribute = name.rpartition(".")
    for test in finder.find(getattr(importlib.import_module(module), attribute), name, globs={}):
        runner.run(test)
sys.exit(runner.failures)
"""


def test_the_page_has_all_public_names() -> None:
    assert {f"inspector.{name}" for name in inspector.__all__} <= set(OBJECTS)


@pytest.mark.parametrize("name", OBJECTS)
def test_the_docstring_has_an_example(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    docstring = getattr(importlib.import_module(module), attribute).__doc__
    assert doctest.DocTestParser().get_examples(docstring)


@pytest.mark.close_to_jax
def test_the_examples_run(tmp_path: Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count=8 {FAST_COMPILES}",
    }
    command = [sys.executable, "-c", RUN, *OBJECTS]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
