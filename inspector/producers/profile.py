"""Where the time of a program's steps goes on emulated devices, by JAX's own profiler."""

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

# The kind of what no instruction of the program answers for.
OTHER = "other"

# Events of one trace, all steps and devices of a process together: they are read at about 30 µs each.
MOST_EVENTS = 500_000

# A fusion that computes is called after the first of these that it holds: the rest costs little beside it.
_COSTLY = (
    *("convolution", "dot", "sort", "scatter", "select-and-scatter", "reduce-window", "reduce"),
    "gather",
)
# A fusion that holds nothing else is called after the first of these.
_MOVES = (
    *("dynamic-update-slice", "dynamic-slice", "concatenate", "pad", "slice", "reverse"),
    *("transpose", "copy", "broadcast", "iota"),
)
_FREE = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "reshape"})
# Instructions that run others, each of which has events of its own.
_CONTAINERS = frozenset({"while", "call", "conditional", "async-start", "async-done"})
_END = "end: "

# Whom an instant of a device belongs to where several kinds are under way: what computes comes before what
# waits for other devices, and that before what only runs others.
_COMPUTES, _WAITS, _CONTAINS = range(3)


class Event(NamedTuple):
    """One run of one instruction on one device, in nanoseconds of the trace's clock."""

    device: int
    start: float
    stop: float
    kind: str


def traced(run: Callable[[], object], steps: int, hlo_text: str) -> Trace | None:
    """Call `run` so many times under the profiler, and tell the time of each kind of operation.

    `run` runs once the program whose optimized text is `hlo_text`, and what it gives back is waited for. A
    kind is an opcode of the program; a fusion counts as the costliest thing that it holds, and is `fusion`
    where it is arithmetic element by element. The seconds are those of `device_seconds`, of all devices
    and steps together. Every process of a mesh must call it, and gets the times of all of them.

    None where no trace is to be had, or would be too large to read: nothing that goes wrong with it is worth
    a run that went well, so that it raises nothing.
    """
    try:
        modules = hlo.parse(hlo_text)
        if sum(map(events_per_run, modules)) * jax.local_device_count() * steps > MOST_EVENTS:
            return None
        kinds = kinds_of(modules)
    except Exception:  # the same on every process, and before any of them waits for the others
        return None
    found: dict[str, Any] | None = None
    # The profiler, its file and what it calls things are all free to change.
    with suppress(Exception):
        found = _times(run, steps, kinds)
    return _together(gathered(found), steps)


def kinds_of(modules: Iterable[Module]) -> dict[str, str]:
    """The kind of every instruction, by its name."""
    return {
        instruction.name: _kind(module, instruction)
        for module in modules
        for computation in module.computations
        for instruction in computation.instructions
    }


def events_per_run(module: Module) -> int:
    """About how many instructions one device runs in one run, a loop of unknown length once."""
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
    """(events, seconds) of each kind, no instant of a device counted twice.

    Where operations are under way on one device at once, the instant belongs to those that compute, in
    equal parts; only if none does, to the collectives that wait; and only then to the loop, call or
    conditional around. So a collective has the time that nothing hides, and a loop what is left of it
    when all that it runs is taken away.
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
    # Operations are on the first level, and Python's own calls would be most of the file.
    options.host_tracer_level = 1
    options.python_tracer_level = 0
    options.enable_hlo_proto = False
    with tempfile.TemporaryDirectory(prefix="profile-", ignore_cleanup_errors=True) as folder:
        watching = False
        with suppress(Exception):
            jax.profiler.start_trace(folder, profiler_options=options)
            watching = True
        try:
            # Watched or not: the devices of other processes wait for these in the collectives.
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
    """The events of instructions in a profile.

    What goes on after its own event, on other threads, has an event `end: name` when it is done.
    """
    started: list[tuple[str, float, float, dict[str, Any]]] = []
    ended: dict[tuple[str, Any], float] = {}
    with warnings.catch_warnings():
        # jaxlib makes types without a module, and Python says so when it first sees one.
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
        kind = kinds.get(stats["hlo_op"], OTHER)
        yield Event(stats.get("device_ordinal", 0), start, last, kind)


def _shares(events: list[Event]) -> Iterator[tuple[str, float]]:
    """(kind, nanoseconds) of every stretch of time of one device in which nothing begins or ends."""
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
    """The times of all processes; None where one of them has none."""
    total: dict[str, tuple[int, float]] = {}
    for one in processes:
        if one is None:
            return None
        for kind, (events, seconds) in one["kinds"].items():
            before = total.get(kind, (0, 0.0))
            total[kind] = (before[0] + events, before[1] + seconds)
    most_first = sorted(total.items(), key=lambda item: (-item[1][1], item[0]))
    return Trace(
        steps,
        max(one["seconds"] for one in processes if one is not None),
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
    held = [inner for inner in _inside(module, fusion) if inner.opcode not in _FREE]
    opcodes = {inner.opcode for inner in held}
    if costly := next((opcode for opcode in _COSTLY if opcode in opcodes), None):
        return costly
    # Single numbers only say where to: the place of a slice, or when to wrap around.
    if {inner.opcode for inner in held if not _is_scalar(inner)} <= set(_MOVES):
        return next((opcode for opcode in _MOVES if opcode in opcodes), "fusion")
    return "fusion"


def _is_scalar(instruction: Instruction) -> bool:
    shape = instruction.shape
    return shape is not None and shape.parts is None and not shape.dimensions


def _inside(module: Module, fusion: Instruction) -> Iterator[Instruction]:
    """All instructions of a fusion, those of fusions in it, too."""
    waiting, seen = [fusion], set()
    while waiting:
        for called in waiting.pop().called:
            computation = module.by_name.get(called.computation)
            if computation is None or computation.name in seen:
                continue
            seen.add(computation.name)
            yield from computation.instructions
            waiting += [inner for inner in computation.instructions if inner.opcode == "fusion"]
