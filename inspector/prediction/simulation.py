"""Run a compiled schedule on a model of one device, and return when each operation begins and ends.

The core executes one operation after the other in the order of the schedule. An asynchronous operation
occupies its own resource (the copy engine, or the links of its mesh axes) from its start, and the core waits
at its end if it is not done. A loop is simulated until its iterations take equally long, and the rest of
them is multiplied.

The time of an operation is, in this order:

1. of a collective: its expected cost (`collective_cost`), by its bytes and its devices;
2. of a matrix product: the shorter of the compiler's cycles over the clock of the chip, times a fitted
   factor, and of its FLOPs over the peak and its bytes over the HBM bandwidth, one after the other;
3. of another operation with cycles: the shorter of these and of its bytes over the HBM bandwidth;
4. the longer of FLOPs over the peak and bytes over the HBM bandwidth, each times its efficiency.

An operation with none of these makes the whole step unknown. A custom kernel without FLOPs counts with its
bytes, and a loop without a trip count with one iteration: the step then takes at least so long.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from inspector.hlo.op_name import parse_op_name, without_layer_numbers
from inspector.machines.hardware import Chip
from inspector.machines.links import Link, NoLink
from inspector.machines.mesh_links import link_of
from inspector.prediction.calibration import ChipConstants
from inspector.prediction.collective_cost import CollectiveCost, expected
from inspector.records.snapshot import (
    Collective,
    Phase,
    Program,
    Schedule,
    ScheduledComputation,
    ScheduledOperation,
)
from inspector.text.formatting import some_text

# The origin of the time of an operation.
Basis = Literal["compiler", "roofline", "link", "wait", "loop", "profile", "nothing"]
SIGNS = ("→", "←")  # directions of the links of a mesh axis
CORE, COPIES, HOST = "core", "copies", "host"
MEASURED = "measured"  # the core of a profile
# Iterations of a loop that are simulated before the rest is assumed to be equal to the last one.
_ITERATIONS = 3
MOST_DEPTH = 50  # of calls
_UNKNOWN_AXES = ("unknown axes",)


@dataclass(frozen=True)
class Span:
    """A period in which an operation occupies a resource.

    Attributes:
      computation, position: The operation in the schedule.
      resource: `core`, `copies`, `host` (copies to and from its memory), or a mesh axis with a direction,
        such as `tensor →`. `measured` is the core in a profile.
      start, end: Seconds since the step began, in the first iteration of each loop.
      basis: The source of the duration. A span of the core with basis `wait` is idle. One with basis
        `loop` is all iterations of a loop but the first.
      awaited: Mesh axes of the collective that the core waits for.
    """

    computation: str
    position: int
    resource: str
    start: float
    end: float
    basis: Basis
    awaited: tuple[str, ...] = ()


@dataclass
class CoreSeconds:
    """Seconds of the core, by reason. They add up to the step, except for its fixed overhead.

    starting: the part of `memory` in which kernels start, before a compile.
    waits: communication that the core waits for, by mesh axes joined by "+" and whether it crosses slices.
    transfers: duration of communication, whether or not the core waits. messages: the number of collectives.
    latency: how long these would take without any bytes.
    kernels: how long the bytes of custom kernels take whose FLOPs are unknown, by name; a part of the rest.
    exposed_by: the seconds of `waits` by the position of the collective in the program's `collectives`.
    taken_by: the seconds of `transfers` by this position.
    queued: how long a transfer waited for its links before it began, by its position and by that of the
      collective that occupied them.
    """

    matrix: float = 0.0
    memory: float = 0.0
    copies: float = 0.0
    starting: float = 0.0
    waits: dict[tuple[str, bool], float] = field(default_factory=dict)
    transfers: dict[tuple[str, bool], float] = field(default_factory=dict)
    messages: dict[tuple[str, bool], float] = field(default_factory=dict)
    latency: dict[tuple[str, bool], float] = field(default_factory=dict)
    by_roofline: float = 0.0
    kernels: dict[str, float] = field(default_factory=dict)
    exposed_by: dict[int, float] = field(default_factory=dict)
    taken_by: dict[int, float] = field(default_factory=dict)
    queued: dict[tuple[int, int], float] = field(default_factory=dict)

    def add(self, other: CoreSeconds, times: float = 1.0) -> None:
        """Add the seconds of other work, `times` over."""
        for name, others in vars(other).items():
            mine = getattr(self, name)
            if not isinstance(others, dict):
                setattr(self, name, mine + times * others)
                continue
            for key, amount in others.items():
                mine[key] = mine.get(key, 0.0) + times * amount

    @property
    def exposed(self) -> dict[str, float]:
        """Seconds of communication that the core waits for, by mesh axes joined by "+"."""
        exposed: dict[str, float] = {}
        for (axes, _), seconds in self.waits.items():
            exposed[axes] = exposed.get(axes, 0.0) + seconds
        return exposed

    @property
    def compute(self) -> float:
        return self.matrix + self.memory

    @property
    def seconds(self) -> float:
        return self.compute + self.copies + sum(self.waits.values())


@dataclass(frozen=True)
class Simulated:
    """The simulated step.

    Attributes:
      seconds: Time of one step; None if it is unknown.
      totals: The seconds by reason.
      spans: What occupies each resource, with one iteration of each loop.
      core: Seconds of the core in one execution of an operation that computes, by its computation and
        position.
      unknown: Why the step is unknown, one sentence for each reason.
      at_least: Why the step can take longer than `seconds`, one clause for each reason.
      beside: The mesh axes of transfers that run beside the products.
    """

    seconds: float | None
    totals: CoreSeconds
    spans: tuple[Span, ...]
    unknown: tuple[str, ...] = ()
    at_least: tuple[str, ...] = ()
    core: Mapping[tuple[str, int], float] = field(default_factory=dict)
    beside: tuple[tuple[str, ...], ...] = ()


def simulate(
    program: Program,
    chip: Chip,
    links: Mapping[tuple[str, ...], Link | NoLink],
    constants: ChipConstants,
    beside: Collection[int] = (),
) -> Simulated:
    """Simulate one run of a program. It must have a schedule.

    Args:
      links: the link of each tuple of mesh axes of its collectives.
      beside: positions of the collectives that run beside the products, so that the core does not wait for
        them before the end of the step.
    """
    assert program.schedule is not None
    machine = _Machine(program.schedule, program.collectives or (), chip, links, constants, beside)
    machine.run(program.schedule.entry, 0)
    machine.end()
    reasons = tuple(dict.fromkeys(machine.unknown))
    seconds = None if reasons else machine.now + constants.overhead_seconds
    if seconds is not None and not math.isfinite(seconds):
        seconds, reasons = None, ("the simulated time is not a finite number",)
    at_least = (*dict.fromkeys(machine.at_least), *kernels_text(machine.totals))
    axes = tuple(sorted({machine.axes(number) for number in beside}))
    return Simulated(seconds, machine.totals, tuple(machine.spans), reasons, at_least, machine.core, axes)


def kernels_text(totals: CoreSeconds) -> tuple[str, ...]:
    """Return a clause that names the kernels whose time is unknown, the one with the most bytes first."""
    ranked = sorted(totals.kernels, key=lambda name: -totals.kernels[name])
    compute = "computes" if len(ranked) == 1 else "compute"
    return (f"how long {some_text(ranked, 3)} {compute} is unknown",) if ranked else ()


def scaled(simulated: Simulated, factor: float) -> Simulated:
    """Return the simulated step with all of its times multiplied by a factor."""
    totals = CoreSeconds()
    totals.add(simulated.totals, factor)
    totals.messages = dict(simulated.totals.messages)
    spans = tuple(replace(span, start=span.start * factor, end=span.end * factor) for span in simulated.spans)
    seconds = None if simulated.seconds is None else simulated.seconds * factor
    core = {key: taken * factor for key, taken in simulated.core.items()}
    return replace(simulated, seconds=seconds, totals=totals, spans=spans, core=core)


def executions(program: Program) -> dict[str, int]:
    """Return how often a step executes each computation of its schedule."""
    assert program.schedule is not None
    by_name = program.schedule.by_name
    executions = {program.schedule.entry: 1}
    waiting = [program.schedule.entry]
    while waiting:
        name = waiting.pop()
        computation = by_name.get(name)
        for operation in computation.operations if computation else ():
            for called in operation.runs or ():
                if called not in executions:  # a loop body has one caller
                    executions[called] = executions[name] * (operation.times or 0)
                    waiting.append(called)
    return executions


def seconds_by_module(simulated: Simulated, program: Program) -> dict[str, dict[Phase, float]]:
    """Return the seconds of the core of one step by module and phase; of merged operations the first."""
    assert program.schedule is not None
    times = executions(program)
    seconds: dict[str, dict[Phase, float]] = {}
    for span in simulated.spans:
        if span.resource != "core" or span.basis == "loop":
            continue
        operation = program.schedule.operation(span.computation, span.position)
        named = parse_op_name(operation.op_name)[0]
        row = seconds.setdefault(without_layer_numbers(named.module), {})
        taken = times.get(span.computation, 1) * (span.end - span.start)
        row[named.phase] = row.get(named.phase, 0.0) + taken
    return seconds


def shift_of(collective: Collective) -> str | None:
    """Return the direction of a permute that moves data to the next or to the previous position; else None.

    The direction is that of most pairs, because one pair of a ring leads back to its beginning.
    """
    pairs = collective.source_target_pairs
    if not pairs:
        return None
    ahead = sum(target > source for source, target in pairs)
    return SIGNS[0] if 2 * ahead > len(pairs) else SIGNS[1] if 2 * ahead < len(pairs) else None


def directions(collective: Collective | None) -> tuple[str, ...]:
    """Return the resources of a collective: both directions of its mesh axes, or one for a shift."""
    axes = (collective.mesh_axes if collective is not None else None) or _UNKNOWN_AXES
    shift = None if collective is None else shift_of(collective)
    return tuple(f"{axis} {sign}" for axis in axes for sign in (SIGNS if shift is None else shift))


class _Machine:
    """The state of one device: its time, and until when each resource is occupied."""

    def __init__(
        self,
        schedule: Schedule,
        collectives: tuple[Collective, ...],
        chip: Chip,
        links: Mapping[tuple[str, ...], Link | NoLink],
        constants: ChipConstants,
        beside: Collection[int],
    ) -> None:
        self._beside = beside
        self._computations = schedule.by_name
        self._collectives = collectives
        self._chip = chip
        self._links = links
        self._constants = constants
        self._durations: dict[tuple[str, int], tuple[float, Basis]] = {}
        self._busy: dict[str, float] = {}
        self._ends: dict[tuple[str, int], float] = {}
        self._recording = True
        self._costs: dict[int, CollectiveCost] = {}
        self._occupants: dict[str, int] = {}  # the last collective on each resource
        self.core: dict[tuple[str, int], float] = {}
        self.now = 0.0
        self.totals = CoreSeconds()
        self.spans: list[Span] = []
        self.unknown: list[str] = []
        self.at_least: list[str] = []

    def run(self, name: str, depth: int) -> None:
        """Execute a computation once."""
        computation = self._computations.get(name)
        if computation is None:
            self.unknown.append(f"computation {name} is missing")
            return
        if depth > MOST_DEPTH:
            self.unknown.append(f"computation {name} runs itself")
            return
        for position, operation in enumerate(computation.operations):
            if operation.runs:
                self._run_others(computation, position, operation, depth)
            elif operation.awaits is not None:
                self._wait(computation, position, operation)
            elif operation.opcode.endswith("-done"):
                continue  # it began in another computation, or does nothing
            elif operation.begins:
                self._ends[name, position] = self._occupy(computation, position, operation)
            else:
                self._execute(computation, position, operation)

    def _run_others(
        self,
        computation: ScheduledComputation,
        position: int,
        operation: ScheduledOperation,
        depth: int,
    ) -> None:
        assert operation.runs is not None
        if operation.opcode == "conditional":
            if operation.shares is None:
                self._run_longest(operation.runs, depth)
            else:
                self._run_shares(operation.runs, operation.shares, depth)
            return
        times = operation.times
        if times is None:
            self.at_least.append(
                f"{operation.name} counts with one iteration, because its trip count is unknown"
            )
            times = 1
        before = self._recording
        for name in operation.runs:
            last, first_end = 0.0, self.now
            behind = [0.0]
            for iteration in range(min(times, _ITERATIONS)):
                began, totals = self.now, self.totals
                self.totals = CoreSeconds()
                self._recording = before and iteration == 0
                self.run(name, depth + 1)
                last, inside = self.now - began, self.totals
                behind.append(self._behind)
                self.totals = totals
                self.totals.add(inside)
                if iteration == 0:
                    first_end = self.now
            if times > _ITERATIONS:
                rest = times - _ITERATIONS
                self.totals.add(inside, rest)
                self._advance(rest * last)
                more = rest * max(0.0, behind[-1] - behind[-2])
                self._busy |= {name: self._busy[name] + more for name in self._resources_beside}
            self._recording = before
            self._record(computation, position, CORE, first_end, self.now, "loop")

    @property
    def _resources_beside(self) -> list[str]:
        """The resources on which a transfer beside the products was the last one."""
        return [resource for resource, number in self._occupants.items() if number in self._beside]

    @property
    def _behind(self) -> float:
        """The seconds that these are occupied for from now on."""
        return max((self._busy[resource] - self.now for resource in self._resources_beside), default=0.0)

    def end(self) -> None:
        """Let the core wait for the transfers beside the products."""
        waited = self._behind
        if waited > 0:
            last = max(self._resources_beside, key=lambda resource: self._busy[resource])
            self._expose(self._occupants[last], waited)
            self.now += waited

    def _run_longest(self, names: tuple[str, ...], depth: int) -> None:
        """Execute the branch that takes longest."""
        longest = None
        start = (self.now, dict(self._busy), self.totals, list(self.spans))
        for name in dict.fromkeys(names):
            self.now, self._busy = start[0], dict(start[1])
            self.totals, self.spans = CoreSeconds(), list(start[3])
            self.run(name, depth + 1)
            if longest is None or self.now > longest[0]:
                longest = (self.now, self._busy, self.totals, self.spans)
        if longest is not None:
            self.now, self._busy, inside, self.spans = longest
            self.totals = start[2]
            self.totals.add(inside)

    def _run_shares(self, names: tuple[str, ...], shares: tuple[float, ...], depth: int) -> None:
        """Execute each branch in a share of the runs, and let the mean of their times pass."""
        start = (self.now, dict(self._busy), self.totals, list(self.spans))
        now, totals = start[0], CoreSeconds()
        for name, share in zip(names, shares, strict=False):
            self.now, self._busy, self.totals = start[0], dict(start[1]), CoreSeconds()
            self._recording, recording = False, self._recording
            self.run(name, depth + 1)
            self._recording = recording
            now += share * (self.now - start[0])
            totals.add(self.totals, share)
        self.now, self._busy, self.totals, self.spans = start
        self.totals.add(totals)
        self._advance(now - start[0])

    def _advance(self, seconds: float) -> None:
        """Let time pass, with all resources in the same state relative to it."""
        self.now += seconds
        self._busy = {resource: until + seconds for resource, until in self._busy.items()}
        self._ends = {key: end + seconds for key, end in self._ends.items()}

    def _execute(
        self, computation: ScheduledComputation, position: int, operation: ScheduledOperation
    ) -> None:
        if operation.collective is not None:
            axes = self.axes(operation.collective)
            began = self.now
            end = self._occupy(computation, position, operation)
            if operation.collective in self._beside:
                return
            self._expose(operation.collective, end - began)
            self._record(computation, position, CORE, began, end, "wait", axes)
            self.now = end
            return
        seconds, basis = self._duration(computation, position, operation)
        self.core[computation.name, position] = seconds
        if basis == "roofline" and operation.uncounted is not None:
            name = f"{operation.uncounted}{f' ({operation.source})' if operation.source else ''}"
            self.totals.kernels[name] = self.totals.kernels.get(name, 0.0) + seconds
        if operation.flops:
            self.totals.matrix += seconds
        else:
            self.totals.memory += seconds
        if basis == "roofline":
            self.totals.by_roofline += seconds
        self._record(computation, position, CORE, self.now, self.now + seconds, basis)
        self.now += seconds

    def _wait(self, computation: ScheduledComputation, position: int, operation: ScheduledOperation) -> None:
        assert operation.awaits is not None
        end = self._ends.get((computation.name, operation.awaits))
        if operation.awaits >= len(computation.operations):
            self.unknown.append(f"{operation.name} waits for an operation that is missing")
        if end is None or end <= self.now:
            return
        began = computation.operations[operation.awaits]
        if began.collective in self._beside:
            return
        axes = () if began.collective is None else self.axes(began.collective)
        waited = end - self.now
        if began.collective is None:
            self.totals.copies += waited
        else:
            self._expose(began.collective, waited)
        self._record(computation, position, CORE, self.now, end, "wait", axes)
        self.now = end

    def _occupy(
        self, computation: ScheduledComputation, position: int, operation: ScheduledOperation
    ) -> float:
        """Occupy the resources of a transfer as soon as they are free, and return when it ends."""
        seconds, basis = self._duration(computation, position, operation)
        collective = operation.collective
        resources = self._directions(collective) if collective is not None else (COPIES,)
        if operation.host:
            resources = (HOST,)
        if collective is not None:
            key = self._kind(collective)
            self.totals.transfers[key] = self.totals.transfers.get(key, 0.0) + seconds
            self.totals.taken_by[collective] = self.totals.taken_by.get(collective, 0.0) + seconds
            if (cost := self._costs.get(collective)) is not None:
                self.totals.messages[key] = self.totals.messages.get(key, 0.0) + 1
                self.totals.latency[key] = self.totals.latency.get(key, 0.0) + cost.latency
        # What the core can wait for goes first on links with transfers beside the products.
        later = set() if collective in self._beside else {*self._resources_beside}.intersection(resources)
        start, occupied = max(
            [
                (self.now, None),
                *((self._busy.get(name, 0.0), name) for name in resources if name not in later),
            ],
            key=lambda pair: pair[0],
        )
        later = {resource for resource in later if self._busy[resource] > start}
        if collective is not None:
            if occupied is not None and (other := self._occupants.get(occupied)) is not None:
                pair = collective, other
                self.totals.queued[pair] = self.totals.queued.get(pair, 0.0) + start - self.now
            self._occupants |= {name: collective for name in resources if name not in later}
        for resource in resources:
            self._busy[resource] = seconds + (self._busy[resource] if resource in later else start)
            self._record(computation, position, resource, start, start + seconds, basis)
        return start + seconds

    def _expose(self, number: int, seconds: float) -> None:
        key = self._kind(number)
        self.totals.waits[key] = self.totals.waits.get(key, 0.0) + seconds
        self.totals.exposed_by[number] = self.totals.exposed_by.get(number, 0.0) + seconds

    def _kind(self, number: int) -> tuple[str, bool]:
        """Return the mesh axes of a collective, joined by "+", and whether it waits for DCN."""
        cost = self._costs.get(number)
        return "+".join(self.axes(number)), cost is not None and cost.between > cost.inside

    def _directions(self, number: int) -> tuple[str, ...]:
        return directions(self._collectives[number] if number < len(self._collectives) else None)

    def axes(self, number: int) -> tuple[str, ...]:
        """Return the mesh axes of a collective."""
        collective = self._collectives[number] if number < len(self._collectives) else None
        return (collective.mesh_axes if collective is not None else None) or _UNKNOWN_AXES

    def _duration(
        self, computation: ScheduledComputation, position: int, operation: ScheduledOperation
    ) -> tuple[float, Basis]:
        key = computation.name, position
        if key not in self._durations:
            self._durations[key] = self._priced(operation)
        return self._durations[key]

    def _priced(self, operation: ScheduledOperation) -> tuple[float, Basis]:
        if operation.collective is not None:
            return self._collective_seconds(operation.collective), "link"
        constants, chip = self._constants, self._chip
        estimated = None
        if operation.cycles is not None and chip.clock_hertz is not None:
            estimated = operation.cycles / chip.clock_hertz
            if operation.flops:
                estimated *= constants.compute_factor
        if operation.bytes is None:
            if estimated is None:
                self.unknown.append(f"{operation.name} has neither an estimate nor known bytes")
                return 0.0, "nothing"
            return estimated, "compiler"
        if operation.host:
            # Half of the bytes are read from one memory and half are written to the other.
            if chip.pcie_bytes_per_second is None:
                self.unknown.append(f"the bandwidth between {chip.title} and its host is unknown")
                return 0.0, "nothing"
            return operation.bytes / 2 / (chip.pcie_bytes_per_second / chip.devices), "link"
        rate = chip.hbm_bytes_per_second_per_device * constants.hbm_efficiency
        seconds = operation.bytes / rate
        if estimated is not None:
            # The compiler's estimate for copies, broadcasts and the like can be ten times the time that HBM
            # needs. It is lower for data that stays in VMEM. That for a product in many small parts is up to
            # five times its FLOPs at the peak, but published runs with such products are not as slow.
            if operation.flops:
                peak = chip.peak(operation.dtype or "")
                rate = peak.flops_per_second * constants.matrix_efficiency if peak else 0.0
                seconds = seconds + operation.flops / rate if rate else math.inf
            return (estimated, "compiler") if estimated < seconds else (seconds, "roofline")
        if operation.flops is None:
            if operation.uncounted is None:
                self.unknown.append(f"the FLOPs of {operation.name} are unknown")
        elif operation.flops:
            peak = chip.peak(operation.dtype or "")
            if peak is None:
                self.unknown.append(f"the peak for {operation.dtype} is unknown")
            else:
                own = operation.opcode == "custom-call" and chip.kind == "tpu"
                share = constants.kernel_efficiency if own else constants.matrix_efficiency
                share /= constants.padding(() if operation.head is None else (operation.head,))
                seconds = max(seconds, operation.flops / (peak.flops_per_second * share))
        return seconds + constants.kernel_seconds, "roofline"

    def _collective_seconds(self, number: int) -> float:
        if number >= len(self._collectives):
            self.unknown.append(f"collective {number} of the schedule is missing")
            return 0.0
        collective = self._collectives[number]
        if collective.group_size == 1:
            return 0.0
        link = None if collective.mesh_axes is None else self._links.get(collective.mesh_axes)
        if link is None or isinstance(link, NoLink):
            why = "no mesh axes form its groups" if link is None else link.assumption
            self.unknown.append(f"the link of {collective.name} is unknown: {why}")
            return 0.0
        link = link_of(collective, link)
        if isinstance(link, NoLink):
            self.unknown.append(f"the link of {collective.name} is unknown: {link.assumption}")
            return 0.0
        if collective.payload_bytes is None:
            self.unknown.append(f"the payload of {collective.name} is unknown")
            return 0.0
        cost = expected(collective.op, collective.payload_bytes, link, self._constants)
        self._costs[number] = cost
        return cost.seconds

    def _record(
        self,
        computation: ScheduledComputation,
        position: int,
        resource: str,
        start: float,
        end: float,
        basis: Basis,
        awaited: tuple[str, ...] = (),
    ) -> None:
        if self._recording and end > start:
            self.spans.append(Span(computation.name, position, resource, start, end, basis, awaited))
