"""How many candidates of a search one core propagates and predicts in a second, without a compile."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from inspector import layout as layouts
from inspector.compare.search.progress import Progress
from inspector.compare.search.space import space_of
from inspector.service.compile_cache import CompileCache
from inspector.service.inspection import Inspection
from inspector.service.search import task
from inspector.service.search.run import Search

TARGET = 50  # candidates per second and core
# The shapes of Llama-3-8B with scanned layers.
FIELDS = {
    "model": "transformer", "layers": "32", "scan": "true", "embed": "4096", "mlp": "14336",
    "heads": "32", "kv_heads": "8", "head_dim": "128", "vocab": "128256", "batch": "64", "seq": "2048",
    "dtype": "bfloat16", "target": "tpu:v5p:4x4x4", "mesh": "64", "axes": "fsdp",
    "rules": "batch=fsdp,embed=fsdp",
}  # fmt: skip


def report() -> str:
    """Search once with one worker and an empty store, and return the candidates per second of each phase."""
    layout = layouts.parse(FIELDS).unwrap()
    machine = layout.machine
    assert machine is not None
    with closing(Inspection(run_workers=1)) as service:
        space = space_of(layout, service.start_state(layout).wait().answer())
    ends: dict[str, float] = {}

    def note(progress: Progress) -> None:
        ends[progress.phase] = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as threads:
        store = CompileCache(Path(folder) / "search.sqlite3")
        # The worker process starts and traces the model.
        task.propagate("warm-up", [layout.to_json()], machine.chip.name, first=True)
        search = Search(space, machine.chip, threads, 0, store=store, on_progress=note)
        began = time.perf_counter()
        try:
            found = search.run()
        finally:
            task.close()
    first = ends["propagate"] - began
    rest = ends["verify"] - ends["propagate"]
    counts = found.counts
    return (
        f"candidates: {counts.propagated:,} of {counts.considered:,} are feasible; "
        f"{counts.propagated / first:.0f} per second and core (target {TARGET}) to the first ranking, "
        f"{counts.propagated / (first + rest):.0f} with the check of the best ones; "
        f"{counts.exact:,} were propagated on their own mesh"
    )
