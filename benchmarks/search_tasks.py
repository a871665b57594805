"""The overhead of a task on a Dask cluster: an answer from the compile cache, there and in this process."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.dask_cluster import Cluster
from benchmarks.pairing import interleave
from inspector import layout as layouts
from inspector.jobs import compile_cache
from inspector.jobs.compile_cache import CompileCache
from inspector.machines import targets
from inspector.search import tasks
from inspector.text.errors import InvalidInput

PAIRS = 25
SHARE = 0.05  # of a compile
FIELDS = {
    "model": "transformer", "layers": "2", "scan": "true", "embed": "256", "mlp": "1024", "heads": "8",
    "kv_heads": "8", "head_dim": "32", "vocab": "4096", "seq": "128", "dtype": "bfloat16",
    "target": "tpu:v5e:4x4", "mesh": "4x4", "axes": "fsdp,tensor", "batch": "64",
    "rules": "batch=fsdp,embed=fsdp,mlp=tensor,heads=tensor,kv_heads=tensor,vocab=tensor",
}  # fmt: skip
_STORED = 100  # answers


def report(cases: int | None = None, **fields: str) -> str:
    """Compile a layout, then take its answer from the cache as a task on a cluster and in this process.

    Raises:
      InvalidInput: the compiler for TPUs, or Dask, is not installed.
    """
    layout = layouts.parse(FIELDS | fields).unwrap()
    machine, plain = layout.machine, layout.to_json()
    assert machine is not None
    missing = targets.missing_compiler(machine)
    if missing is not None:
        raise InvalidInput(missing)
    if importlib.util.find_spec("distributed") is None:
        raise InvalidInput("dask.distributed is not installed")
    request = ("compile", [plain], machine.chip.name)

    def timed(function: Callable[[], object]) -> float:
        began = time.perf_counter()
        function()
        return time.perf_counter() - began

    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get(compile_cache.FOLDER_VARIABLE)
        os.environ[compile_cache.FOLDER_VARIABLE] = folder
        try:
            with (
                contextlib.closing(Cluster(Path(folder))) as cluster,
                tasks.dask(cluster.address) as executor,
            ):
                compiled = timed(lambda: tasks.run(*request))
                taken = interleave(
                    lambda: timed(executor.submit(tasks.run, *request).result),
                    lambda: timed(lambda: tasks.run(*request)),
                    cases or PAIRS,
                    warm_up=2,
                )
            answer = tasks.run(*request)
            stored = _seconds_to_store(Path(folder))
        finally:
            tasks.close()
            if before is None:
                del os.environ[compile_cache.FOLDER_VARIABLE]
            else:
                os.environ[compile_cache.FOLDER_VARIABLE] = before
    there = statistics.median(one.ours for one in taken)
    here = statistics.median(one.baseline for one in taken)
    return (
        f"search_tasks: a task on a Dask cluster takes {(there - here) * 1e3:.1f} ms more than in this "
        f"process, {(there - here) / compiled:.2%} of a compile of {compiled:.1f} s (target {SHARE:.0%}); "
        f"it sends {len(json.dumps(plain))} bytes and returns {len(json.dumps(answer))}; to store an "
        f"answer takes {stored * 1e3:.1f} ms"
    )


def _seconds_to_store(folder: Path) -> float:
    """Return the seconds that the searching process needs to keep one answer."""
    store = CompileCache(folder / "search.sqlite3")
    began = time.perf_counter()
    for number in range(_STORED):
        store.put(str(number), "x" * 1000)
    return (time.perf_counter() - began) / _STORED
