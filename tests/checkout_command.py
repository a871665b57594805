"""The command `sharding-inspector` that `run.py` writes for a checkout."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tests.paths import ROOT


def run_py() -> ModuleType:
    """Return the module of `run.py`."""
    spec = importlib.util.spec_from_file_location("checkout_run_py", ROOT / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_command(folder: Path) -> Path:
    """Write the command into a folder, for this interpreter, and return its path."""
    command = folder / "sharding-inspector"
    command.write_text(run_py().command_text(Path(sys.executable)), encoding="utf-8")
    command.chmod(0o755)
    return command
