"""A compile of a search as a task on a Dask cluster, compared with the same compile in this process."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.dask_cluster import Cluster
from benchmarks.pairing import Result, interleave, ratio_result
from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.layout import Layout
from inspector.machines import targets
from inspector.service import compile_cache
from inspector.service.compile_cache import CompileCache
from inspector.service.search import executors, task

PAIRS = 7
LIMIT = 1.05
FIELDS = {
    "model": "transformer", "layers": "2", "scan": "true", "embed": "256", "mlp": "1024", "heads": "8",
    "kv_heads": "8", "head_dim": "32", "vocab": "4096", "seq": "128", "dtype": "bfloat16",
    "target": "tpu:v5e:4x4", "mesh": "4x4", "axes": "fsdp,tensor",
    "rules": "batch=fsdp,embed=fsdp,mlp=tensor,heads=tensor,kv_heads=tensor,vocab=tensor",
}  # fmt: skip
_STORED = 100  # answers


def measure(pairs: int = PAIRS) -> list[Result]:
    """Compile layouts that differ in their batch in turn on a cluster and in this process.

    Raises:
      InvalidInput: the compiler for TPUs, or Dask, is not installed.
    """
    machine = layout_of(16).machine
    assert machine is not None
    missing = targets.missing_compiler(machine)
    if missing is not None:
        raise InvalidInput(missing)
    if importlib.util.find_spec("distributed") is None:
        raise InvalidInput("dask.distributed is not installed")
    chip = machine.chip.name
    batches = itertools.count(16, 16)
    sizes: list[int] = []

    def here() -> float:
        layout = layout_of(next(batches)).to_json()
        began = time.perf_counter()
        task.compile_layout("benchmark", layout, chip)
        return time.perf_counter() - began

    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get(compile_cache.FOLDER_VARIABLE)
        os.environ[compile_cache.FOLDER_VARIABLE] = folder  # so that every layout is compiled
        try:
            with (
                contextlib.closing(Cluster(Path(folder))) as cluster,
                executors.dask(cluster.address) as executor,
            ):

                def there() -> float:
                    layout = layout_of(next(batches)).to_json()
                    began = time.perf_counter()
                    answer = executor.submit(task.compile_layout, "benchmark", layout, chip)
                    sizes.append(len(json.dumps(answer.result())))
                    return time.perf_counter() - began

                taken = interleave(there, here, pairs, warm_up=1)
            stored = _seconds_to_store(Path(folder))
        finally:
            task.close()
            if before is None:
                del os.environ[compile_cache.FOLDER_VARIABLE]
            else:
                os.environ[compile_cache.FOLDER_VARIABLE] = before
    request = len(json.dumps(layout_of(16).to_json()))
    return [
        ratio_result(
            LIMIT,
            name="search_tasks",
            ours="a compile as a task on a Dask cluster of this machine",
            baseline="the same compile in this process",
            pairs=taken,
            notes=(
                f"a task sends {request} bytes and returns {round(statistics.median(sizes))}",
                f"to store an answer takes {stored * 1e3:.1f} ms",
            ),
        )
    ]


def layout_of(batch: int) -> Layout:
    """Return the layout with this batch."""
    return layouts.parse(FIELDS | {"batch": str(batch)}).unwrap()


def _seconds_to_store(folder: Path) -> float:
    """Return the seconds that the searching process needs to keep one answer."""
    store = CompileCache(folder / "search.sqlite3")
    began = time.perf_counter()
    for number in range(_STORED):
        store.put(str(number), "x" * 1000)
    return (time.perf_counter() - began) / _STORED
