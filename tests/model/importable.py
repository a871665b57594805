"""Modules with models of a user, importable while a test runs."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inspector.model import own_model
from inspector.model.built_in import catalogue


@contextmanager
def importable(folder: Path, module: str, source: str) -> Iterator[None]:
    """Write a module, make it importable, and unregister all models in the end."""
    (folder / f"{module}.py").write_text(textwrap.dedent(source), encoding="utf-8")
    before, variable = dict(catalogue.CATALOGUE), os.environ.get(own_model.VARIABLE)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(module, None)
        catalogue.CATALOGUE.clear()
        catalogue.CATALOGUE.update(before)
        os.environ.pop(own_model.VARIABLE, None)
        if variable is not None:
            os.environ[own_model.VARIABLE] = variable
