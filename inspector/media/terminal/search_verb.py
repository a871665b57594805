"""`search`: the best layouts for a model on a machine."""

import argparse
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from inspector.answers import search as section
from inspector.files import output
from inspector.layout import Layout
from inspector.machines import targets
from inspector.machines.compiler_options import UNSAFE_FLAG, Options
from inspector.machines.hardware import Chip
from inspector.media.terminal import options as shared
from inspector.media.terminal.layout_options import LAYOUT, layout_of, unsafe_options_of
from inspector.media.terminal.options import CHIP, JSON, Output, argument, verb
from inspector.search import result as results
from inspector.search import tasks
from inspector.search.order import goal_of
from inspector.search.result import OBJECTIVES, SearchProgress
from inspector.search.run import DEFAULT_BUDGET, MOST_BUDGET, Search
from inspector.search.space import space_of
from inspector.text.errors import InvalidInput, shown

_SECONDS_BETWEEN_LINES = 10.0


@verb(
    "search",
    "find the best layouts for a model on a machine: partition what can be among the best, compile the most "
    "promising",
    *LAYOUT,
    CHIP,
    argument(
        "--budget",
        metavar="N",
        help=f"the most compiles; 0 only partitions; by default {DEFAULT_BUDGET}, or 0 without the target's "
        "compiler",
    ),
    argument(
        "--objective",
        choices=OBJECTIVES,
        default=OBJECTIVES[0],
        help="what the best layout has the least of: time of a step, memory, or traffic between devices",
    ),
    argument(
        "--weights",
        metavar="PROGRAM=RUNS,…",
        help="rank layouts by the time of several programs: the runs of each for one example, such as "
        "prefill=1,decode=256; by default the program of a step alone",
    ),
    argument(
        "--limits",
        metavar="PROGRAM=TIME,…",
        help="leave out layouts in which one run of a program takes longer, such as decode=25ms,prefill=0.5s",
    ),
    argument(
        "--lock",
        metavar="WHAT",
        action="append",
        default=[],
        help="keep mesh, rules, the size of a mesh axis such as tensor=8, or the rule of a logical axis such "
        "as vocab=tensor; may be repeated",
    ),
    argument(
        "--vary",
        metavar="FIELD=A,B",
        action="append",
        default=[],
        help="also try these values of a size, donate, device_order or optimizer_axes, such as "
        "remat=none,full or optimizer_axes=none,data; may be repeated",
    ),
    argument(
        "--exhaustive",
        action="store_true",
        help="partition all candidates, also those whose bounds show that they cannot be among the best; "
        "the best ones are the same",
    ),
    argument(
        "--dask",
        metavar="ADDRESS",
        help="run on the Dask cluster of this scheduler, such as tcp://scheduler:8786",
    ),
    argument("--workers", metavar="N", help="tasks at once; by default one for each core"),
    argument("-o", "--output", metavar="RESULT.json", help="also write all candidates to this file"),
    JSON,
)
def search(options: argparse.Namespace) -> Output:
    """Search, and return the best layouts; raise InvalidInput for unsafe options on other machines."""
    if options.output is not None:
        output.refuse_unwritable(options.output)
    workers = None
    if options.workers is not None:
        workers = shared.number(options.workers, "--workers", "a number from 1 to 1,000", 1, 1000)
    layout = layout_of(options)
    budget = _budget(options.budget, layout)
    unsafe = unsafe_options_of(options, layout)
    if unsafe and options.dask is not None:
        raise InvalidInput(
            f"{UNSAFE_FLAG} is {shown(options.unsafe_compiler_options)}, but must be left out with --dask: "
            "other machines compile with options that are known to be safe"
        )
    chip = _chip(layout, shared.chip_of(options), budget)
    goal = goal_of(layout, chip, options.weights, options.limits)
    with shared.workers() as service:
        state = service.state(layout).answer()
    space = space_of(layout, state, options.lock, options.vary)
    print(f"{space.count():,} candidates", file=sys.stderr, flush=True)
    printed = Printed()
    with _executor(options.dask, workers, unsafe) as executor:
        search = Search(
            space,
            chip,
            executor,
            budget,
            options.objective,
            goal,
            on_progress=printed,
            workers=workers or tasks.local_workers(),
            exhaustive=options.exhaustive,
            unsafe=unsafe,
        )
        with _stopped_by_interrupt(search), printed.repeated():
            result = search.run()
    if options.output is not None:
        output.write_text(results.dumps(result), options.output)
    return Output(lambda: results.to_json(result), lambda: [section.section(result)])


def _budget(given: str | None, layout: Layout) -> int:
    """Return the most compiles: as given, or none if the compiler is not installed."""
    if given is not None:
        return shared.number(given, "--budget", f"a number from 0 to {MOST_BUDGET:,}", 0, MOST_BUDGET)
    missing = None if layout.machine is None else targets.missing_compiler(layout.machine)
    if missing is None:
        return DEFAULT_BUDGET
    print(f"Layouts are partitioned, but not compiled: {missing}", file=sys.stderr, flush=True)
    return 0


def _chip(layout: Layout, chosen: Chip | None, budget: int) -> Chip | None:
    if layout.machine is not None:
        missing = targets.missing_compiler(layout.machine) if budget else None
        if missing is not None:
            raise InvalidInput(missing)
        return layout.machine.chip
    if layout.target == "cpu" or (layout.target == "plan" and not budget):
        return chosen
    raise InvalidInput(
        f"target is {layout.target}, but must be cpu, plan with --budget 0, or a machine such as tpu:v5e:4x4"
    )


@contextlib.contextmanager
def _executor(address: str | None, workers: int | None, unsafe: Options) -> Iterator[Executor]:
    with tasks.local(workers, unsafe) if address is None else tasks.dask(address) as executor:
        yield executor


@contextlib.contextmanager
def _stopped_by_interrupt(search: Search) -> Iterator[None]:
    """Let the first Ctrl-C stop the search, which then prints its results.

    Python allows it in the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        search.stop()

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Printed:
    """Print progress to standard error: in place on a terminal, else a line for each phase and every 10 s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._phase = ""
        self._words = ""
        self._written = -_SECONDS_BETWEEN_LINES
        self._lock = threading.Lock()

    def __call__(self, progress: SearchProgress) -> None:
        words = section.progress_text(progress)
        if sys.stderr.isatty():
            print(f"\r\x1b[2K{words}", end="", file=sys.stderr, flush=True)
            if progress.phase == "done":
                print(file=sys.stderr)
            return
        with self._lock:
            changed, self._phase, self._words = progress.phase != self._phase, progress.phase, words
            self._print(changed)

    @contextlib.contextmanager
    def repeated(self) -> Iterator[None]:
        """Off a terminal, also print the last state every 10 s if it has not changed."""
        ended = threading.Event()

        def repeat() -> None:
            while not ended.wait(1.0):
                with self._lock:
                    self._print(False)

        thread = threading.Thread(target=repeat, daemon=True)
        if not sys.stderr.isatty():
            thread.start()
        try:
            yield
        finally:
            ended.set()

    def _print(self, now: bool) -> None:
        time_now = self._clock()
        if self._words and (now or time_now - self._written >= _SECONDS_BETWEEN_LINES):
            print(self._words, file=sys.stderr, flush=True)
            self._written = time_now
