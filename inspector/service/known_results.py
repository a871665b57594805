"""Results compiled for a layout, or measured by a search, with these versions: in the compile cache.

A search compiles only the program of a step, which takes two thirds of the time, or those that its weights
name, and measures steps on emulated devices. Pages and verbs show these results until the layout is compiled
or run as a whole.
"""

import contextlib
import statistics
from collections.abc import Sequence

from inspector.core import snapshot, strict_json
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.core.step_program import step_program
from inspector.layout import Layout
from inspector.service import compile_cache
from inspector.service.compile_cache import CompileCache


def compiled(layout: Layout, cache: CompileCache | None = None, only: Sequence[str] = ()) -> Snapshot | None:
    """Return the Snapshot of an earlier compile for a machine: of all programs, else of that of a step.

    only: the programs that it must have; none for that of a step.
    """
    if layout.machine is None:
        return None  # another run measures other times
    cache = cache or CompileCache()
    needed = tuple(only) or (layout.step_program,)
    of_programs = (key_of_programs(layout, names) for names in dict.fromkeys((layout.programs, needed)))
    kept = (read(cache, key) for key in (compile_cache.key_of_layout(layout), *of_programs))
    return next((found for found in kept if found and all(map(found.program, needed))), None)


def measured(
    layout: Layout, seconds: float | None = None, cache: CompileCache | None = None
) -> Snapshot | None:
    """Return the last run on emulated devices by a search.

    seconds: the median step that it must have; None for any.
    """
    if layout.machine is not None:
        return None
    found = read(cache or CompileCache(), key_of_measured(layout))
    if found is None or seconds is None:
        return found
    program = step_program(found)
    steps = program.seconds.steps if program is not None and program.seconds else ()
    return found if steps and statistics.median(steps) == seconds else None


def of_search(layout: Layout, cache: CompileCache | None = None) -> Snapshot | None:
    """Return the results of a search, or of a compile of the whole layout; None without any."""
    return compiled(layout, cache) or measured(layout, None, cache)


def key_of_programs(layout: Layout, names: Sequence[str]) -> str:
    """Return the key of a compile of some programs."""
    whole = compile_cache.key_of_layout(layout)
    return compile_cache.key_of({"whole": whole, "only": sorted(names)})


def key_of_measured(layout: Layout) -> str:
    """Return the key of a run by a search."""
    return compile_cache.key_of({"measured": compile_cache.key_of_layout(layout)})


def read(cache: CompileCache, key: str) -> Snapshot | None:
    """Return the Snapshot of a key; None if there is none, or if it is not valid."""
    kept = cache.get(key)
    if kept is not None:
        with contextlib.suppress(InvalidInput):
            return snapshot.from_json(strict_json.parse(kept, "the cache"), "the cache")
    return None
