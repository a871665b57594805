"""Profile some runs of a program of this process with JAX's profiler."""

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from inspector.compiled import hlo
from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.module import Module
from inspector.core import typed_json
from inspector.core.snapshot import Collective, OperationTime, Trace
from inspector.core.sources import PROFILE_ENDING
from inspector.producers.arrays.distributed import gathered
from inspector.producers.readers.profiles import kinds
from inspector.producers.readers.profiles.events import Collector
from inspector.producers.readers.profiles.planes import File
from inspector.producers.readers.profiles.times import Times

# Events of one trace of a process, over all steps and devices.
MOST_EVENTS = 500_000


def traced(
    run: Callable[[], object], steps: int, hlo_text: str, collectives: tuple[Collective, ...] = ()
) -> Trace | None:
    """Call `run` `steps` times under the profiler, and return the time of each instruction.

    All processes of the mesh must call this function; each gets the times of all processes. Return None if
    there is no trace or it would be too large. It never raises, so that a problem of the profiler does not
    spoil a run.

    Args:
      run: runs the program once and returns its result.
      hlo_text: the optimized HLO text of the program.
      collectives: those of the text, to which the times of instructions refer.
    """
    try:
        (module,) = hlo.parse(hlo_text)
        if events_per_run(module) * jax.local_device_count() * steps > MOST_EVENTS:
            return None
    except Exception:  # fails alike in all processes, before any of them waits for another
        return None
    with tempfile.TemporaryDirectory(prefix="profile-", ignore_cleanup_errors=True) as folder:
        seconds = None
        # The profiler is not stable.
        with suppress(Exception):
            seconds = _profiled(run, steps, folder)
        processes = gathered({"folder": folder, "seconds": seconds})
        times: dict[str, Any] | None = None
        with suppress(Exception):
            if jax.process_index() == 0:
                times = typed_json.encode(_read(processes, steps, module, collectives))
        # The folders are kept until the first process has read them.
        times = gathered(times)[0]
    return None if times is None else typed_json.decode(Trace, times, "the trace")


def options() -> jax.profiler.ProfileOptions:
    """Return the options of a profile that has the operations, and no Python calls, most of the events."""
    chosen = jax.profiler.ProfileOptions()
    chosen.host_tracer_level = 1
    chosen.python_tracer_level = 0
    return chosen


def events_per_run(module: Module) -> int:
    """Return about how many instructions one device runs per step. A loop of unknown length counts once."""
    fused = {
        called.computation
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode == "fusion"
        for called in instruction.called
    }
    runs = Analysis(module).runs
    return sum(
        sum(not kinds.is_free(instruction) for instruction in computation.instructions)
        * (1 if (count := runs[computation.name].count) is None else count)
        for computation in module.computations
        if computation.name not in fused
    )


def _profiled(run: Callable[[], object], steps: int, folder: str) -> float | None:
    """Return the wall-clock seconds of all steps, None without a profile."""
    chosen = options()
    chosen.enable_hlo_proto = False  # the text is known
    watching = False
    with suppress(Exception):
        jax.profiler.start_trace(folder, profiler_options=chosen)
        watching = True
    try:
        # Runs even without a trace, because other processes wait for it in collectives.
        started = time.perf_counter()
        for _ in range(steps):
            jax.block_until_ready(run())
        seconds = time.perf_counter() - started
    finally:
        if watching:
            jax.profiler.stop_trace()
    return seconds if watching else None


def _read(
    processes: list[dict[str, Any]], steps: int, module: Module, collectives: tuple[Collective, ...]
) -> Trace | None:
    """Return the times in the files of all processes; None if one lacks them.

    The wall-clock time is the longest of all processes. The time of other programs has a separate kind.
    """
    collector = Collector()
    for number, process in enumerate(processes):
        files = list(Path(process["folder"]).rglob(f"*{PROFILE_ENDING}"))
        if process["seconds"] is None or not files:
            return None
        collector.add(File(files[0], str(number)))
    recorded = collector.finish()
    if recorded.events is None:
        return None
    own = kinds.of_program(module, collectives)
    is_own = [key.name == module.name for key, _ in recorded.instructions]
    times = Times(recorded, [own if same else None for same in is_own])
    operations: list[OperationTime] = []
    trace = Trace(steps, 0.0, ())
    for same in set(is_own):
        measured = times.of([number for number, is_same in enumerate(is_own) if is_same == same]).trace
        operations += measured.operations
        if same:
            trace = measured
    operations.sort(key=lambda operation: (-operation.seconds, operation.kind))
    seconds = max(process["seconds"] for process in processes)
    return replace(trace, steps=steps, seconds=seconds, operations=tuple(operations))
