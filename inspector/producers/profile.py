"""Measure with JAX's profiler the time of each kind of operation on emulated devices."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax

from inspector.compiled import hlo
from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.module import Instruction, Module
from inspector.core.collectives import OPS
from inspector.core.snapshot import OperationTime, Trace
from inspector.producers.distributed import gathered

# The kind of events without an instruction of the program.
OTHER = "other"

# Events of one trace of a process, over all steps and devices. Reading one takes about 30 µs.
MOST_EVENTS = 500_000

# A fusion that computes has the kind of the first of these in it, because the rest costs little.
_COSTLY = (
    *("convolution", "dot", "sort", "scatter", "select-and-scatter", "reduce-window", "reduce"),
    "gather",
)
# A fusion that only moves data has the kind of the first of these in it.
_MOVES = (
    *("dynamic-update-slice", "dynamic-slice", "concatenate", "pad", "slice", "reverse"),
    *("transpose", "copy", "broadcast", "iota"),
)
_FREE = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "reshape"})
# Instructions that run other instructions, which have their own events.
_CONTAINERS = frozenset({"while", "call", "conditional", "async-start", "async-done"})
_END = "end: "

# The precedence of events that overlap on one device: computation, then waiting for other devices, then
# instructions that run others.
_COMPUTES, _WAITS, _CONTAINS = range(3)


class Event(NamedTuple):
    """One run of one instruction on one device, in nanoseconds of the trace's clock."""

    device: int
    start: float
    stop: float
    kind: str


def traced(run: Callable[[], object], steps: int, hlo_text: str) -> Trace | None:
    """Call `run` `steps` times under the profiler, and return the time of each kind of operation.

    All processes of the mesh must call this function; each gets the sum over all processes, devices and
    steps. Return None if there is no trace or it would be too large. It never raises, so that a problem of
    the profiler does not spoil a run.

    Args:
      run: runs the program once and returns its result.
      hlo_text: the optimized HLO text of the program. A kind is an opcode; a fusion has the kind of its
        most expensive instruction, or `fusion` if it is element-wise.
    """
    try:
        modules = hlo.parse(hlo_text)
        if sum(map(events_per_run, modules)) * jax.local_device_count() * steps > MOST_EVENTS:
            return None
        kinds = kinds_of(modules)
    except Exception:  # fails alike in all processes, before any of them waits for another
        return None
    times: dict[str, Any] | None = None
    # The profiler and its file format are not stable.
    with suppress(Exception):
        times = _times(run, steps, kinds)
    return _together(gathered(times), steps)


def kinds_of(modules: Iterable[Module]) -> dict[str, str]:
    """Return the kind of every instruction by its name."""
    return {
        instruction.name: _kind(module, instruction)
        for module in modules
        for computation in module.computations
        for instruction in computation.instructions
    }


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
        sum(instruction.opcode not in _FREE for instruction in computation.instructions)
        * (1 if (count := runs[computation.name].count) is None else count)
        for computation in module.computations
        if computation.name not in fused
    )


def device_seconds(events: Iterable[Event]) -> dict[str, tuple[int, float]]:
    """Return (events, seconds) of each kind, such that no instant of a device counts twice.

    If events overlap on a device, the time belongs to those that compute, in equal parts. If none computes,
    it belongs to collectives, else to the loop, call or conditional around them. So the time of a
    collective is its exposed time.
    """
    by_device: dict[int, list[Event]] = defaultdict(list)
    count: dict[str, int] = defaultdict(int)
    for event in events:
        by_device[event.device].append(event)
        count[event.kind] += 1
    nanoseconds = dict.fromkeys(count, 0.0)
    for own in by_device.values():
        for kind, share in _shares(own):
            nanoseconds[kind] += share
    return {kind: (count[kind], nanoseconds[kind] * 1e-9) for kind in count}


def _times(run: Callable[[], object], steps: int, kinds: dict[str, str]) -> dict[str, Any] | None:
    options = jax.profiler.ProfileOptions()
    # Level 1 has the operations. Python calls would be most of the file.
    options.host_tracer_level = 1
    options.python_tracer_level = 0
    options.enable_hlo_proto = False
    with tempfile.TemporaryDirectory(prefix="profile-", ignore_cleanup_errors=True) as folder:
        watching = False
        with suppress(Exception):
            jax.profiler.start_trace(folder, profiler_options=options)
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
        events = list(_events(Path(folder), kinds)) if watching else []
    return {"seconds": seconds, "kinds": device_seconds(events)} if events else None


def _events(folder: Path, kinds: dict[str, str]) -> Iterator[Event]:
    """Yield the events of instructions in a profile.

    An operation that continues on another thread ends with an event `end: name`.
    """
    started: list[tuple[str, float, float, dict[str, Any]]] = []
    ended: dict[tuple[str, Any], float] = {}
    with warnings.catch_warnings():
        # Types of jaxlib without a module cause a warning.
        warnings.simplefilter("ignore", DeprecationWarning)
        for path in folder.rglob("*.xplane.pb"):
            for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
                for event in (event for line in plane.lines for event in line.events):
                    name, start, stats = event.name, event.start_ns, dict(event.stats)
                    if name.startswith(_END):
                        ended[name.removeprefix(_END), stats.get("_c")] = start
                    elif "hlo_op" in stats:
                        started.append((name, start, start + event.duration_ns, stats))
    for name, start, stop, stats in started:
        last = max(stop, ended.get((name, stats.get("_p")), stop))
        yield Event(stats.get("device_ordinal", 0), start, last, kinds.get(stats["hlo_op"], OTHER))


def _shares(events: list[Event]) -> Iterator[tuple[str, float]]:
    """Yield (kind, nanoseconds) of every interval of one device in which no event begins or ends."""
    changes = sorted(
        [(event.start, 1, event.kind) for event in events]
        + [(event.stop, -1, event.kind) for event in events]
    )
    under_way: dict[int, dict[str, int]] = {rank: {} for rank in (_COMPUTES, _WAITS, _CONTAINS)}
    before = 0.0
    for instant, change, kind in changes:
        active = next((kinds for kinds in under_way.values() if kinds), None)
        if active and instant > before:
            number = sum(active.values())
            for name, times in active.items():
                yield name, (instant - before) * times / number
        before = instant
        of_rank = under_way[_rank(kind)]
        of_rank[kind] = of_rank.get(kind, 0) + change
        if not of_rank[kind]:
            del of_rank[kind]


def _together(processes: list[dict[str, Any] | None], steps: int) -> Trace | None:
    """Return one Trace for all processes; None if one has no trace.

    Events and device seconds are summed by kind; the wall-clock time is the longest of all processes.
    """
    total: dict[str, tuple[int, float]] = {}
    for process in processes:
        if process is None:
            return None
        for kind, (events, seconds) in process["kinds"].items():
            before = total.get(kind, (0, 0.0))
            total[kind] = (before[0] + events, before[1] + seconds)
    most_first = sorted(total.items(), key=lambda item: (-item[1][1], item[0]))
    return Trace(
        steps,
        max(process["seconds"] for process in processes if process is not None),
        tuple(OperationTime(kind, *numbers) for kind, numbers in most_first),
    )


def _rank(kind: str) -> int:
    if kind in _CONTAINERS:
        return _CONTAINS
    return _WAITS if kind in OPS else _COMPUTES


def _kind(module: Module, instruction: Instruction) -> str:
    opcode = instruction.opcode
    if opcode == "fusion":
        return _kind_of_fusion(module, instruction)
    if opcode in _CONTAINERS:
        return opcode
    return opcode.removesuffix("-start").removesuffix("-done")


def _kind_of_fusion(module: Module, fusion: Instruction) -> str:
    instructions = [inner for inner in _inside(module, fusion) if inner.opcode not in _FREE]
    opcodes = {inner.opcode for inner in instructions}
    if costly := next((opcode for opcode in _COSTLY if opcode in opcodes), None):
        return costly
    # Scalars are only offsets of slices.
    if {inner.opcode for inner in instructions if not _is_scalar(inner)} <= set(_MOVES):
        return next((opcode for opcode in _MOVES if opcode in opcodes), "fusion")
    return "fusion"


def _is_scalar(instruction: Instruction) -> bool:
    shape = instruction.shape
    return shape is not None and shape.parts is None and not shape.dimensions


def _inside(module: Module, fusion: Instruction) -> Iterator[Instruction]:
    """Yield all instructions of a fusion and of the fusions in it."""
    waiting, seen = [fusion], set()
    while waiting:
        for called in waiting.pop().called:
            computation = module.by_name.get(called.computation)
            if computation is None or computation.name in seen:
                continue
            seen.add(computation.name)
            yield from computation.instructions
            waiting += [inner for inner in computation.instructions if inner.opcode == "fusion"]
