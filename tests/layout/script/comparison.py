"""Compare the arrays of a script with a Snapshot, shard by shard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inspector.records.snapshot import Snapshot
from inspector.sharding import placement
from tests.layout.script import run_scripts
from tests.paths import ROOT
from tests.xla_flags import FAST_COMPILES


def without_jax_settings() -> dict[str, str]:
    """Return the environment without settings for JAX or for this project, except for fast compiles."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "XLA_", "PYTHONPATH"))
    }
    return kept | {"XLA_FLAGS": FAST_COMPILES}


def made_by_scripts(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Run scripts in one process, which finds own models in their folder, and return their arrays."""
    folder = paths[0].parent
    ran = subprocess.run(
        [sys.executable, run_scripts.__file__, *map(str, paths)],
        cwd=folder, capture_output=True, text=True, check=False,
        env=without_jax_settings() | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def refuse_other_arrays(theirs: dict[str, dict[str, Any]], snapshot: Snapshot) -> None:
    """Fail unless both have the same arrays, each with the same part on every device."""
    groups = ("params", "opt_state", "other", "batch", "output")
    ours = {array.path: array for array in snapshot.arrays if array.group in groups}
    assert theirs.keys() == ours.keys()
    for path, their in theirs.items():
        array = ours[path]
        assert (tuple(their["shape"]), their["dtype"]) == (array.shape, array.dtype), path
        spec = tuple(tuple(axes) if axes else None for axes in their["spec"])
        assert spec + (None,) * (len(array.shape) - len(spec)) == array.spec, path
        held = {
            str(shard.device): [list(part) for part in shard.index]
            for shard in placement.shards(array, snapshot.mesh)
        }
        assert their["shards"] == held, path
