"""The lanes of the workers of a server or a command: which jobs wait for each other."""

import os
from collections.abc import Callable

from inspector.jobs.engine import Lane, Pool, environment
from inspector.jobs.engine.pool import Event, unreported

SHAPES = "shapes"  # plans, and the programs of an open page
PLANNERS = 2  # so that a model that takes long to trace does not make other users wait
RUNS = "runs"
EFFECTS = "effects"
FILES = "files"
REST = "rest"  # programs that no page needs yet
CANDIDATES, COMPILES = "candidates", "compiles"  # of a search

# Beside one worker for each core, because some wait: one that has traced the model of a page is kept, and a
# file or a change of a layout is read while a search uses all cores.
_BESIDE_CORES = 4
_LEAST = 3
_BYTES = 2**30  # of a worker with a model of a few layers
MOST_JOBS = 8  # of one owner in a lane, so that nobody waits for 20 runs of another user


def pool(
    runs: int | None = None,
    on_event: Callable[[Event], None] = unreported,
    tasks: int | None = None,
) -> Pool:
    """Return the pool of a server or a command. It has at most as many workers as cores and memory allow.

    Args:
      runs: layouts that run at once; the number of cores if None, at most two.
      tasks: tasks of a search that run at once; the number of cores if None.
    """
    cores = os.cpu_count() or 1
    lanes = {
        SHAPES: Lane(PLANNERS, kept=1, listed=False),
        RUNS: Lane(runs or min(2, cores)),
        EFFECTS: Lane(1),
        FILES: Lane(1),
        REST: Lane(1, listed=False),
        CANDIDATES: Lane(tasks or cores, listed=False),
        COMPILES: Lane(tasks or cores, listed=False),
    }
    most = min((tasks or cores) + _BESIDE_CORES, environment.available_bytes() // _BYTES)
    return Pool(max(_LEAST, most), lanes=lanes, most=MOST_JOBS, on_event=on_event)
