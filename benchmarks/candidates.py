"""How many candidates of a search one core ranks in a second, without a compile."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path

from inspector import layout as layouts
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.inspection import Inspection
from inspector.search import tasks
from inspector.search.result import SearchProgress
from inspector.search.run import Search
from inspector.search.space import space_of

TARGET = 100  # candidates per second and core
# The shapes of Llama-3-8B with scanned layers.
FIELDS = {
    "model": "transformer", "layers": "32", "scan": "true", "embed": "4096", "mlp": "14336",
    "heads": "32", "kv_heads": "8", "head_dim": "128", "vocab": "128256", "batch": "64", "seq": "2048",
    "dtype": "bfloat16", "target": "tpu:v5p:4x4x4", "mesh": "64", "axes": "fsdp",
    "rules": "batch=fsdp,embed=fsdp",
}  # fmt: skip


def report(cases: int | None = None, **fields: str) -> str:
    """Search once with one worker and an empty store, and return the candidates per second."""
    layout = layouts.parse(FIELDS | fields).unwrap()
    machine = layout.machine
    assert machine is not None
    with closing(Inspection(run_workers=1)) as service:
        space = space_of(layout, service.state(layout).answer())
    first: dict[str, float] = {}  # when the first candidate of each phase was known
    ends: dict[str, float] = {}

    def note(progress: SearchProgress) -> None:
        ends[progress.phase] = time.perf_counter()
        if progress.done:
            first.setdefault(progress.phase, time.perf_counter())

    with tempfile.TemporaryDirectory() as folder, tasks.local(1) as executor:
        store = CompileCache(Path(folder) / "search.sqlite3")
        # The worker process starts and traces the model.
        tasks.run("partition", [layout.to_json()], machine.chip.name)
        search = Search(space, machine.chip, executor, 0, store=store, on_progress=note)
        began = time.perf_counter()
        try:
            found = search.run()
        finally:
            tasks.close()
    counts, whole = found.counts, ends["partition"] - began
    bounds, one = ends["bound"] - began, first["partition"] - began
    return (
        f"candidates: {counts.considered:,} considered, {counts.rejected:,} cannot run, "
        f"{counts.partitioned:,} partitioned; {counts.considered / whole:.0f} per second and core "
        f"(target {TARGET}) until the best {found.listed} are known; bounds take {bounds:.1f} s, "
        f"the first candidate {one:.1f} s"
    )
