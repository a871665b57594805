"""The predicted time of a step with its interval, from all evidence at hand and from published runs.

A partitioned program has one estimate (`before_compile`), a compiled one the simulated schedule. If both
programs of a layout are known, both estimates are combined (`combined`). `predicted_in` predicts a program of
a Snapshot; whatever shows a predicted step calls it, or `predicted` without a Snapshot.

The interval comes from residuals: the measured step of each published run over the prediction for it, made
with constants that were fitted without the runs of its model. It claims 80%: one run in ten is expected
below it and one above.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inspector.compiled import assumed
from inspector.machines.hardware import CHIPS, Chip, Kind, hbm_time
from inspector.machines.links import Link, NoLink
from inspector.machines.mesh_links import links_of, spanned_axes
from inspector.prediction import calibration
from inspector.prediction.calibration import (
    ASYNCHRONOUS_SUMS,
    BeforeCompile,
    ChipConstants,
    accuracy_table,
    before_compile_constants,
    constants_of,
    default_constants,
)
from inspector.prediction.evidence import (
    evidence_on,
    partitioned_for,
    platform_of,
    platform_on,
    program_for_chip,
)
from inspector.prediction.simulation import CoreSeconds, Simulated, kernels_text, scaled, simulate
from inspector.prediction.step_model import (
    Modelled,
    Term,
    beside_products,
    least_traffic_seconds,
    modelled,
)
from inspector.records.snapshot import Mesh, OpenChoice, Platform, Prediction, Program, Snapshot
from inspector.text.formatting import and_text, counted, seconds_text

CLAIMED = 0.8  # share of runs that the interval is to contain
TAIL = (1 - CLAIMED) / 2
ENOUGH_RUNS = 5  # of one chip generation, for a separate interval
# The interval of a chip with fewer runs is that of all chips, on a logarithmic scale this much wider. It is
# checked against the published runs of such chips, and says nothing about programs of another kind.
WIDENED = 1.5
# Nothing hides the transfers of a step below this share of the shortest published one.
SHORT = 0.1
# In published runs, matrix products take at least this share of the predicted step. Programs with a smaller
# share, such as stencils and FFTs, are of another kind.
LEAST_MATRIX_SHARE = 0.25
# A program beyond the range of published runs by no more than this factor counts as inside of it: the range
# itself is known no better.
EDGE = 1.05
# Most seconds in which an operation starts: kernels of CUDA take 2 to 5 µs, operations of TPUs less.
_START_SECONDS = 5e-6
# A difference of the least and the most that branches cost below this share counts as none.
_NEGLIGIBLE = 0.01
_MANY = 1_000  # iterations whose mean has nothing of the first one

Links = Mapping[tuple[str, ...], Link | NoLink]


@dataclass(frozen=True)
class Interval:
    """Factors between which measured steps are expected, relative to the prediction.

    Attributes:
      low, high: Measured over predicted seconds at the ends of the interval.
      runs: Number of runs that it comes from.
      chip: Name of the chip of these runs; None for the runs of all chips.
      own: The number of the user's own runs. The others are published ones.
    """

    low: float
    high: float
    runs: int
    chip: str | None
    own: int = 0


@dataclass(frozen=True)
class Iteration:
    """One more iteration of a loop whose trip count is unknown, such as a token that a model generates.

    Attributes:
      label: The line of the loop, or else the name of its instruction.
      seconds: The time of an iteration.
      low, high: Its interval or bounds, as for a step. None if unknown.
      most: The most iterations, if the condition of the loop limits them. None if it does not.
    """

    label: str
    seconds: float
    low: float | None
    high: float | None
    most: int | None


@dataclass(frozen=True)
class Predicted:
    """The predicted step of a program on a chip.

    Attributes:
      seconds: Predicted seconds of one step; None if unknown.
      interval: The interval relative to `seconds`; None without published runs, and outside of their range.
      simulated: The simulated schedule; None without a schedule. If the prediction combines two estimates,
        its times are scaled such that they add up to `seconds`.
      unknown: Why the step is unknown, one sentence for each reason.
      before_compile: Seconds by reason of a partitioned program; None for others.
      schedule_seconds: Predicted seconds from the schedule alone; None without a schedule.
      partitioned_seconds: Predicted seconds from the partitioned program alone; None if it is not at hand.
      at_least: Why only a lower bound is known, one clause for each reason: kernels, loops and branches whose
        cost is unknown. `seconds` is that bound, and there is no interval.
      outside: Why published runs say nothing about this program, as a clause. Its ends are bounds then.
      least: Lower bound of the step in seconds: its longest term at the peaks of the chip. Before a compile,
        communication does not count, which the compiler can change.
      most: Upper bound of the step in seconds; None if there is none. It is known in two cases. All loops of
        unknown trip count have a limit: the step at these limits. The program is `outside` of the checked
        range: no overlap, slow starts, and a margin above the largest published error.
      each_iteration: What another iteration of each loop takes whose trip count is unknown.
      longest: The term that `least` consists of; None if that is what HBM reads and writes.
      experts: Whether the program has products of experts.
    """

    program: str
    chip: Chip
    seconds: float | None
    interval: Interval | None
    simulated: Simulated | None
    unknown: tuple[str, ...] = ()
    before_compile: CoreSeconds | None = None
    schedule_seconds: float | None = None
    partitioned_seconds: float | None = None
    at_least: tuple[str, ...] = ()
    outside: str | None = None
    least: float | None = None
    most: float | None = None
    each_iteration: tuple[Iteration, ...] = ()
    longest: Term | None = None
    experts: bool = False

    @property
    def iterations(self) -> tuple[tuple[str, float], ...]:
        """The loops whose trip count is unknown, and the seconds that another iteration takes."""
        return tuple((iteration.label, iteration.seconds) for iteration in self.each_iteration)

    @property
    def totals(self) -> CoreSeconds | None:
        """Seconds by reason, without the fixed overhead of a step; None if the step is unknown."""
        if self.seconds is None:
            return None
        return self.simulated.totals if self.simulated else self.before_compile

    @property
    def low(self) -> float | None:
        """Lower end of the interval in seconds; outside of the checked range, the lower bound."""
        if self.outside is not None:
            return self.least
        return None if self.seconds is None or not self.interval else self.seconds * self.interval.low

    @property
    def high(self) -> float | None:
        """Upper end of the interval in seconds; outside of the checked range, the upper bound."""
        if self.outside is not None:
            return self.most
        return None if self.seconds is None or not self.interval else self.seconds * self.interval.high

    @property
    def runs_text(self) -> str:
        """The number of runs behind the interval, or why it is unknown, in words."""
        if self.at_least:
            return "only a lower bound is known: the interval is unknown"
        if self.outside:
            return f"outside of what was checked: {self.outside}"
        if self.interval is None:
            return "no published run: the interval is unknown"
        own, published = self.interval.own, self.interval.runs - self.interval.own
        kinds = (published, "published run"), (own, "own run")
        runs = and_text([counted(count, noun) for count, noun in kinds if count])
        text = f"{runs} on {self.chip.title}"
        if not self.experts:
            return text
        return f"{text}, {mixtures_on(self.chip.name) or 'none'} of them of mixtures of experts"

    def record(self) -> Prediction | None:
        """Return the prediction for a Snapshot; None if the step or its interval of 80% is unknown."""
        if self.interval is None or self.seconds is None or self.low is None or self.high is None:
            return None
        totals = self.totals
        return Prediction(
            seconds=self.seconds,
            low=self.low,
            high=self.high,
            chip=self.chip.name,
            compute=totals.compute if totals else None,
            exposed=dict(totals.exposed) if totals else {},
        )


def predicted(
    program: Program,
    mesh: Mesh,
    chip: Chip,
    links: Links | None = None,
    constants: ChipConstants | None = None,
    partitioned: Program | None = None,
    platform: Platform | None = None,
) -> Predicted:
    """Predict one run of a program on a mesh of such chips.

    Args:
      links: the link of each tuple of mesh axes; by default from `mesh_links.links_of`.
      constants: those of the chip by default.
      partitioned: the same program before its compile, if it is known.
      platform: the kind of machine for which it was compiled; by default that of the mesh.
    """
    if program.open_choices:
        predict = functools.partial(
            predicted, mesh=mesh, chip=chip, links=links, constants=constants, partitioned=partitioned,
            platform=platform,
        )  # fmt: skip
        return _with_open_choices(program, predict)
    if program.before_compile:
        return before_compile(program, mesh, chip)
    if program.schedule is None:
        reason = "the program has no schedule, because it is not compiled or its text lacks one"
        return Predicted(program.name, chip, None, None, None, (reason,))
    evidence = evidence_on(program, platform or platform_on(program, mesh), chip)
    if evidence.chip is None:
        reason = f"it was compiled for {evidence.machine}, not for this chip, and gives no bound"
        return Predicted(program.name, chip, None, None, None, (reason,))
    program = on_whole_axes(program, mesh)
    if links is None:
        links = links_of_program(program, mesh, chip)
    simulated = simulate(program, chip, links, constants or constants_of(chip))
    # As before a compile, nothing hides the transfers of a short step.
    if (simulated.seconds or 0.0) >= shortest_seconds(chip) and (beside := beside_products(program, chip)):
        simulated = simulate(program, chip, links, constants or constants_of(chip), beside)
    if simulated.seconds is not None and simulated.seconds <= 0:
        return Predicted(program.name, chip, None, None, simulated, ("the schedule is empty",))
    bounds = modelled(program, mesh, chip, links)
    least = bounds.lower_seconds or 0.0
    alone = Predicted(
        program.name,
        chip,
        simulated.seconds,
        None,
        simulated,
        simulated.unknown,
        at_least=simulated.at_least,
        least=least,
        longest=_longest(bounds, least),
    )
    if simulated.seconds is None:
        return alone
    if simulated.at_least:
        return replace(alone, seconds=least or simulated.seconds)
    in_turn = max(bounds.upper_seconds or 0.0, simulated.seconds)
    return _with_seconds(alone, simulated.seconds, in_turn, program, mesh, partitioned)


def _with_seconds(
    alone: Predicted,
    schedule: float,
    in_turn: float,
    program: Program,
    mesh: Mesh,
    partitioned: Program | None,
) -> Predicted:
    """Return the prediction with the seconds of its schedule, and those before its compile if known.

    in_turn: seconds if nothing overlaps.
    """
    before = None
    if partitioned is not None and not partitioned.open_choices:
        before = before_compile(partitioned, mesh, alone.chip).seconds
    seconds = schedule if before is None else combined(schedule, before)
    # No step takes less than its longest term.
    seconds = max(seconds, alone.least or 0.0)
    simulated = alone.simulated
    if simulated is not None and seconds != schedule:
        simulated = scaled(simulated, seconds / schedule)
    work = program.work
    return _checked(
        replace(
            alone,
            seconds=seconds,
            simulated=simulated,
            schedule_seconds=schedule,
            partitioned_seconds=before,
            experts=bool(partitioned and partitioned.work and partitioned.work.grouped),
        ),
        "compiled" if before is None else "left_out",
        in_turn,
        (work and work.instructions) or 0.0,
        RangedAmounts.of(program, mesh, alone.chip),
    )


def _with_open_choices(program: Program, predict: Callable[[Program], Predicted]) -> Predicted:
    """Return the prediction of a program whose loops run, or whose branches are taken, as its data says.

    Only a lower bound is known: each loop runs once, and no branch is taken. A branch that costs nearly
    nothing does not matter.
    """
    smallest = predict(assumed.least(program))
    loops = [choice for choice in program.open_choices if choice.kind == "loop"]
    branches = [choice for choice in program.open_choices if choice.kind == "conditional"]
    all_taken = replace(program, open_choices=tuple(loops))
    largest = predict(assumed.once(all_taken))
    if not loops and largest.seconds and smallest.seconds:
        taken = largest.seconds - smallest.seconds
        if taken < _NEGLIGIBLE * largest.seconds:
            return largest
    if largest.seconds is None:
        return largest
    reasons = [f"the trip count of the loop {choice.label} is unknown" for choice in loops]
    if largest.seconds != smallest.seconds:
        reasons += [f"the branches of {choice.label} do not count" for choice in branches]
    iterations = {choice.name: _iteration(all_taken, choice, largest, predict) for choice in loops}
    limits = {choice.name: choice.most for choice in loops if choice.most is not None}
    most = None
    if loops and len(limits) == len(loops):
        most = predict(assumed.once(assumed.assume(all_taken, assumed.Assumed(limits)))).high
        # A step that is short as a whole hides fewer transfers than a long one.
        around = assumed.loops_around(all_taken)
        in_turn = (largest.high or largest.seconds) + sum(
            (each.high or each.seconds)
            * (limits[name] - 1)
            * math.prod(limits[outer] for outer in around[name])
            for name, each in iterations.items()
            if each is not None and limits[name]
        )
        most = None if most is None else max(most, in_turn)
    bound = smallest.least if smallest.seconds is not None else 0.0
    return replace(
        largest,
        seconds=bound or 0.0,
        interval=None,
        at_least=(*dict.fromkeys(reasons), *largest.at_least),
        outside=None,
        least=bound,
        longest=smallest.longest,
        most=most,
        each_iteration=tuple(iteration for iteration in iterations.values() if iteration is not None),
    )


def _iteration(
    program: Program, loop: OpenChoice, first: Predicted, predict: Callable[[Program], Predicted]
) -> Iteration | None:
    """Return what another iteration of a loop takes; None if that is unknown, or nothing.

    Args:
      first: the prediction with one iteration of each loop.
    """

    def of(trips: int) -> Predicted:
        return predict(assumed.once(assumed.assume(program, assumed.Assumed({loop.name: trips}))))

    twice = of(2)
    if twice.seconds is None or first.seconds is None or twice.seconds <= first.seconds:
        return None
    # The longest part of many iterations is that of each.
    many = of(_MANY + 1)
    low = high = None
    if many.low is not None and first.low is not None:
        low = (many.low - first.low) / _MANY
    if twice.high is not None and first.high is not None:
        high = twice.high - first.high
    seconds = twice.seconds - first.seconds
    if low is not None and high is not None and not low <= seconds <= high:
        low = high = None
    return Iteration(loop.label, seconds, low, high, loop.most)


@dataclass(frozen=True)
class RangedAmounts:
    """The amounts of a program in which published runs have a range. None if unknown.

    flops, moved: FLOPs of matrix products, and bytes of HBM, of one device.
    """

    chips: float
    flops: float | None
    moved: float | None

    @classmethod
    def of(cls, program: Program, mesh: Mesh, chip: Chip) -> RangedAmounts:
        """Return the amounts of a program on a mesh of such chips."""
        work = program.work
        moved = None if work is None else work.fused_bytes if program.before_compile else work.bytes_accessed
        return cls(mesh.size / chip.devices, None if work is None else work.matmul_flops, moved)


def _checked(
    found: Predicted, key: str, alone: float, operations: float, amounts: RangedAmounts
) -> Predicted:
    """Return a prediction with the interval of published runs, or why these say nothing about it.

    Args:
      key: the predictions of published runs that it is like, as for `interval_of`.
      alone: seconds of the step if nothing overlaps.
      operations: number of operations that start.
    """
    assert found.seconds is not None
    between = interval_of(found.chip.name, key)
    distance, outside = _outside(found, between, amounts)
    if between is None or outside is None:
        if between is not None and found.least:
            between = replace(between, low=max(between.low, found.least / found.seconds))
        return replace(found, interval=between)
    worst = max((ratio for _, ratio in _published(key)), default=1.0)
    widened = max(worst, 1.0) ** (WIDENED * (1 + math.log10(distance)))
    most = max(alone, found.seconds) * widened + operations * _START_SECONDS
    return replace(found, interval=None, outside=outside, most=most)


def _outside(found: Predicted, between: Interval | None, amounts: RangedAmounts) -> tuple[float, str | None]:
    """Return how far a program is from the published runs, as a factor, and why they say nothing about it.

    The factor is 1 and the reason is None if they do.
    """
    assert found.seconds is not None
    if between is None:
        return 1.0, "no step was published"
    if between.own >= ENOUGH_RUNS:
        return 1.0, None
    distance, farthest = _distance(found.seconds, amounts, found.chip)
    matrix = found.totals.matrix if found.totals else 0.0
    if between.chip is None:
        return distance, f"fewer than {ENOUGH_RUNS} published steps on {found.chip.title} are reproduced"
    if distance > EDGE:
        return distance, farthest
    if matrix < LEAST_MATRIX_SHARE * found.seconds:
        return distance, "in published steps, matrix products take most of the time"
    return distance, None


def _distance(seconds: float, amounts: RangedAmounts, chip: Chip) -> tuple[float, str]:
    """Return how far a program is from the range of published runs, as a factor of at least 1, and in what.

    Of a short step the factor is that of its time: it also has fewer FLOPs and bytes.
    """
    known, kind = checked_range(chip.kind), f"{chip.kind.upper()}s"
    shorter = known.seconds / seconds
    shortest, most = seconds_text(known.seconds), f"{known.chips:,.0f}"
    short = f"the step is {{}} times shorter than the shortest published step on {kind}, {shortest}"
    larger = f"it has {{}} times as many chips as the largest published run on {kind}, which has {most}"
    others = [(amounts.chips / known.chips, larger)]
    if amounts.flops and known.flops:
        fewer = f"a device computes {{}} times fewer FLOPs than that of any published run on {kind}"
        others.append((known.flops / amounts.flops, fewer))
    if amounts.moved and known.moved:
        fewer = f"a device moves {{}} times fewer bytes of HBM than that of any published run on {kind}"
        others.append((known.moved / amounts.moved, fewer))
    distance, sentence = (shorter, short) if shorter > 1 else max(others)
    return max(distance, 1.0), sentence.format(f"{distance:.2g}" if distance < 99.5 else f"{distance:,.0f}")


def predicted_in(snapshot: Snapshot, program: Program, chip: Chip) -> Predicted:
    """Predict one run of a program of a Snapshot with all evidence in it. The Snapshot must have a mesh.

    A program that was compiled for other machines is predicted as before its compile, if that is known: the
    compiler for CPUs fuses and schedules in another way than that of the chip, and published runs say how far
    the estimate before a compile is from a measured step.
    """
    mesh = snapshot.mesh_of(program)
    assert mesh is not None
    program = program_for_chip(snapshot, program, chip)
    return predicted(
        program,
        mesh,
        chip,
        partitioned=partitioned_for(snapshot, program, chip.kind),
        platform=platform_of(snapshot, program),
    )


def combined(schedule: float, partitioned: float) -> float:
    """Return the seconds of a step from two estimates of it: their geometric mean.

    One is from the compiler's estimates of its operations, the other from their FLOPs and bytes, so that one
    is often too long where the other one is too short. A weight that is fitted to published runs is between
    0.5 and 0.55, and predicts runs of other models no better.
    """
    return math.sqrt(schedule * partitioned)


def on_whole_axes(program: Program, mesh: Mesh) -> Program:
    """Return the program with mesh axes for collectives on a part of an axis, which is timed as the whole."""
    collectives = program.collectives or ()
    if all(collective.mesh_axes is not None for collective in collectives):
        return program
    changed = tuple(
        replace(collective, mesh_axes=spanned_axes(collective, mesh)) for collective in collectives
    )
    return replace(program, collectives=changed)


def before_compile(
    program: Program, mesh: Mesh, chip: Chip, constants: BeforeCompile | None = None
) -> Predicted:
    """Predict one run of a partitioned program: matrix products at a share of the peak, what remains of its
    HBM traffic when a compiler has fused it, and exposed communication.

    Of transfers inside of a slice a share is exposed, the same for all programs; on TPUs more of some, and
    less of others (`exposed_inside`). Those between slices count in full: they begin when those inside have
    ended, and most of them are of gradients, at the end. All transfers of a short step count in full, because
    its computation ends before it could hide them. The estimate is not below the longest term
    (`step_model`). The lower end of the interval is not below what every compiler must do: read the
    arguments, write the results and compute the products.

    Args:
      constants: by default those that were fitted to published runs.
    """
    bounds = modelled(on_whole_axes(program, mesh), mesh, chip)
    known = constants or before_compile_constants()
    hidden, unknown = _totals_before_compile(program, bounds, chip, known, known.exposed_share)
    apart, _ = _totals_before_compile(program, bounds, chip, known, 1.0)
    totals = apart if hidden.seconds < shortest_seconds(chip) else hidden
    if unknown or not totals.seconds:
        reasons = unknown or ("the program computes and moves nothing",)
        return Predicted(program.name, chip, None, None, None, reasons)
    at_least = kernels_text(totals)
    least = max(bounds.lower_seconds or 0.0, least_traffic_seconds(program, chip))
    found = Predicted(
        program.name,
        chip,
        max(totals.seconds, least, *(term.least or 0.0 for term in bounds.terms)),
        None,
        None,
        before_compile=totals,
        at_least=at_least,
        least=least,
        longest=_longest(bounds, least),
        experts=bool(program.work and program.work.grouped),
    )
    if at_least:
        return replace(found, seconds=least)
    fusions = (program.work and program.work.fusions) or 0.0
    return _checked(found, "before_compile", apart.seconds, fusions, RangedAmounts.of(program, mesh, chip))


def of_equal_layers(programs: Sequence[Program], layers: int, mesh: Mesh, chip: Chip) -> float | None:
    """Return about the seconds of a partitioned program with many equal layers; None if unknown.

    A layer more adds the same products, collectives and nearly the same traffic. Whether the step is a short
    one, whose transfers all count, depends on all layers.

    programs: the same with one and with two layers.
    """
    known = before_compile_constants()
    all_seconds: list[float] = []
    for share in (known.exposed_share, 1.0):
        first, second = (
            _totals_before_compile(
                program, modelled(on_whole_axes(program, mesh), mesh, chip), chip, known, share
            )
            for program in programs
        )
        if first[1] or second[1] or any(program.open_choices for program in programs):
            return None
        all_seconds.append(first[0].seconds + (layers - 1) * (second[0].seconds - first[0].seconds))
    hidden, apart = all_seconds
    return apart if hidden < shortest_seconds(chip) else hidden


def _longest(bounds: Modelled, least: float) -> Term | None:
    """Return the term that makes up a lower bound; None if the traffic of HBM does."""
    return next((term for term in bounds.terms if term.least == least), None)


def boundary_seconds(program: Program, chip: Chip) -> float:
    """Return the least seconds for reading the arguments and writing the results; 0 if they are unknown."""
    moved = None if program.work is None else program.work.boundary_bytes
    return hbm_time(moved or 0, chip).seconds / default_constants(chip).hbm_efficiency


def traffic_seconds(program: Program, chip: Chip) -> float:
    """Return the seconds in which a partitioned program reads and writes HBM outside of its collectives.

    Each fusion that a GPU runs also has to be started. If only the bytes of arguments and results are known,
    these are read and written once. Without them, a step with a replicated train state would take no longer
    than one with a sharded state.
    """
    least = boundary_seconds(program, chip)
    if program.work is None or program.work.fused_bytes is None:
        return least
    moving = hbm_time(program.work.fused_bytes, chip).seconds / default_constants(chip).hbm_efficiency
    return max(least, moving) + starting_seconds(program, chip)


def product_traffic_seconds(program: Program, chip: Chip) -> float:
    """Return the seconds of `traffic_seconds` in which matrix products read and write; 0 if unknown.

    They count as a part of the products, as in a schedule, where one instruction does both.
    """
    moved = None if program.work is None else program.work.product_bytes
    return hbm_time(moved or 0, chip).seconds / default_constants(chip).hbm_efficiency


def starting_seconds(program: Program, chip: Chip) -> float:
    """Return the seconds in which the fusions of a partitioned program start on a GPU; 0 if unknown."""
    work = program.work
    known = work is not None and work.fused_bytes is not None
    return (work.fusions or 0.0) * default_constants(chip).kernel_seconds if work and known else 0.0


def attention_seconds(program: Program, chip: Chip) -> tuple[float, float]:
    """Return the seconds at the peak of the products that a kernel of attention replaces, and the kernel's.

    Both are 0 if the program has no such kernel. Heads count with the width that they take in matrix units.
    """
    work = program.work
    if work is None or work.attention is None or not work.matmul:
        return 0.0, 0.0
    kernel = work.attention
    dtype = kernel.dtype or max(work.matmul, key=lambda product: product.flops).dtype
    peaks = {name: chip.peak(name) for name in (dtype, *kernel.types)}
    rates = {name: peak.flops_per_second for name, peak in peaks.items() if peak is not None}
    if len(rates) < len(peaks):
        return 0.0, 0.0
    replaced = sum(flops / rates[name] for name, flops in (kernel.types or {dtype: kernel.products}).items())
    constants = default_constants(chip)
    padded = constants.padding(kernel.widths) / constants.kernel_efficiency
    return replaced, kernel.flops * padded / rates[dtype]


def grouped_seconds(program: Program, chip: Chip) -> tuple[float, dict[str, float]]:
    """Return the seconds at the peak of the products that a kernel computes for experts, and the kernel's.

    The kernel multiplies whole tiles, some of them with masks. Its seconds are by operand type, and there are
    none if the program has no such kernel.
    """
    work = program.work
    if work is None or not work.grouped_tiles:
        return 0.0, {}
    more = default_constants(chip).masked - 1
    peaks = {d: peak.flops_per_second for d in work.grouped_tiles if (peak := chip.peak(d))}
    replaced = sum(work.grouped.get(dtype, 0.0) / rate for dtype, rate in peaks.items())
    masks = {dtype: more * work.grouped_masked.get(dtype, 0.0) for dtype in peaks}
    return replaced, {d: (work.grouped_tiles[d] + masks[d]) / rate for d, rate in peaks.items()}


def _uncounted(program: Program) -> dict[str, float]:
    """Return the bytes of the kernels whose time is unknown, by name and line; 0 for unknown ones."""
    work = program.work
    if work is None:
        return {}
    moved = dict.fromkeys([] if work.kernels else work.not_counted, 0.0)
    for calls in work.kernels:
        name = f"{calls.name} ({calls.source})" if calls.source else calls.name
        moved[name] = moved.get(name, 0.0) + (calls.bytes or 0.0)
    return moved


def _totals_before_compile(
    program: Program, bounds: Modelled, chip: Chip, known: BeforeCompile, exposed_share: float
) -> tuple[CoreSeconds, tuple[str, ...]]:
    """Return seconds by reason of a partitioned program, and why others are unknown.

    Args:
      exposed_share: of the transfers inside of a slice.
    """
    starting = starting_seconds(program, chip)
    of_products = product_traffic_seconds(program, chip)
    memory = traffic_seconds(program, chip) - of_products
    totals, unknown = CoreSeconds(of_products, memory, starting=starting), []
    replaced, attention = attention_seconds(program, chip)
    efficiency = default_constants(chip).hbm_efficiency
    for name, moved in _uncounted(program).items():
        totals.kernels[name] = hbm_time(moved, chip).seconds / efficiency
    for term in bounds.terms:
        if term.kind == "memory":
            continue
        if term.seconds is None:
            unknown.append(f"{term.name}: {term.basis}")
        elif term.kind == "compute":
            products, grouped = grouped_seconds(program, chip)
            others = max(0.0, term.seconds - replaced - products)
            totals.matrix += others / known.of(chip) + known.grouped_seconds(grouped, chip) + attention
        else:
            axes = "+".join(term.axes or ())
            work = max(totals.matrix - of_products, totals.memory + of_products)
            for key, seconds, waits in (
                ((axes, False), term.inside, exposed_inside(term, bounds, work, exposed_share)),
                ((axes, True), term.between, term.between),
            ):
                if seconds:
                    totals.waits[key], totals.transfers[key] = waits, seconds
                    totals.messages[key] = term.messages
                    totals.latency[key] = min(term.latency, seconds)
    # Transfers that take longer than all of the computation cannot be hidden behind it.
    transfers = [term for term in bounds.terms if term.kind == "communication" and term.seconds]
    longest = max(transfers, key=lambda term: term.combined, default=None)
    if longest is not None and (rest := longest.combined - totals.seconds) > 0:
        # Not below it when the terms are added in floating point.
        key = "+".join(longest.axes or ()), longest.between > longest.inside
        totals.waits[key] = totals.waits.get(key, 0.0) + rest * (1 + 1e-12)
    return totals, tuple(unknown)


def exposed_inside(term: Term, bounds: Modelled, work: float, share: float) -> float:
    """Return the expected seconds for which the core of a device waits for transfers inside of a slice.

    On TPUs, a step waits for transfers of activations for products only if all of them take longer than its
    products or HBM, and for reductions in full, if the compiler keeps them synchronous.

    Args:
      work: seconds of the FLOPs of matrix products of the step or of HBM, whichever take longer.
      share: of other transfers, that the core waits for. With 1, nothing is hidden.
    """
    if bounds.chip.kind != "tpu" or share == 1.0:
        return share * term.inside
    summed = summed_share(bounds.chip, share)
    beside = sum(one.beside for one in bounds.terms)
    longer = max(0.0, 1 - work / beside) if beside else 0.0
    others = term.inside - term.beside - term.summed
    return share * others + summed * term.summed + longer * term.beside


def summed_share(chip: Chip, share: float) -> float:
    """Return the share of reductions that a step of a TPU waits for, from that of other transfers."""
    return share if chip.name in ASYNCHRONOUS_SUMS else 1.0


def shortest_seconds(chip: Chip) -> float:
    """Return the seconds below which a step on a chip is predicted as a short one."""
    return SHORT * checked_range(chip.kind).seconds


@dataclass(frozen=True)
class CheckedRange:
    """The range of the published runs on one kind of chips that are predicted.

    Attributes:
      seconds: The shortest step, as predicted before its compile.
      chips: The most chips.
      flops: The fewest FLOPs of matrix products of one device; 0 if unknown.
      moved: The fewest bytes of HBM of one device, if all is fused that compilers can fuse; 0 if unknown.
    """

    seconds: float
    chips: float
    flops: float
    moved: float


@functools.cache
def checked_range(kind: Kind) -> CheckedRange:
    """Return the range in which predictions for a kind of chips were checked."""
    names = {chip.name for chip in CHIPS.values() if chip.kind == kind}
    rows = [
        row
        for row in accuracy_table()["rows"]
        if row.get("before_compile") and row.get("measured") and row["chip"] in names
    ]

    def least(name: str) -> float:
        return min((row[name] for row in rows if row.get(name)), default=0.0)

    chips = max((row["chips"] for row in rows if row.get("chips")), default=1)
    return CheckedRange(least("before_compile"), chips, least("flops"), least("moved"))


@functools.cache
def mixtures_on(chip: str) -> int:
    """Return the published runs of mixtures of experts on a chip that are predicted before a compile."""
    rows = accuracy_table()["rows"]
    return sum(row["chip"] == chip and bool(row.get("mixture") and row["before_compile"]) for row in rows)


def links_of_program(program: Program, mesh: Mesh, chip: Chip) -> Links:
    """Return the link of each tuple of mesh axes that a collective of the program uses."""
    every = (spanned_axes(collective, mesh) for collective in program.collectives or ())
    return links_of(mesh, chip, tuple(dict.fromkeys(axes for axes in every if axes)))


def interval_of(chip: str, key: str = "left_out") -> Interval | None:
    """Return the interval for a chip, from the runs in the accuracy table and the own runs.

    key: the predictions of the published runs: `left_out` from all evidence, `compiled` from the schedule
      alone, or `before_compile`. Own runs are of compiled programs.
    """
    own = () if key == "before_compile" else calibration.ratios(chip)
    return interval(_published(key), chip, own)


@functools.lru_cache(maxsize=4)
def _published(key: str) -> tuple[tuple[str, float], ...]:
    """Return chip and measured over predicted seconds of each published run."""
    rows = accuracy_table()["rows"]
    return tuple((row["chip"], row["measured"] / row[key]) for row in rows if row.get(key))


def interval(pairs: Sequence[tuple[str, float]], chip: str, own: Sequence[float] = ()) -> Interval | None:
    """Return the interval of a chip from residuals, as (chip, measured over predicted).

    own: measured over predicted of the user's own runs on the chip. With enough of them, only they count.
    """
    if len(own) >= ENOUGH_RUNS:
        return Interval(*_quantiles(tuple(own)), len(own), chip, len(own))
    of_chip = [*(ratio for name, ratio in pairs if name == chip), *own]
    if len(of_chip) >= ENOUGH_RUNS:
        return Interval(*_quantiles(tuple(of_chip)), len(of_chip), chip, len(own))
    every = [*(ratio for _, ratio in pairs), *own]
    if not every:
        return None
    low, high = _quantiles(tuple(every))
    return Interval(low**WIDENED, high**WIDENED, len(every), None, len(own))


@functools.lru_cache(maxsize=64)  # a search predicts thousands of steps
def _quantiles(ratios: tuple[float, ...]) -> tuple[float, float]:
    """Return the ends of an interval for one more run like these, each with a share `TAIL` beyond it.

    The ends are quantiles at `p (n + 1)` of the ordered ratios, interpolated between two of them, so that a
    new run of the same kind is between them with probability `CLAIMED` (type 6 of Hyndman and Fan 1996,
    doi:10.1080/00031305.1996.10473566). With few runs they are the smallest and the largest ratio, and 1 is
    always inside.
    """
    low, high = np.quantile(ratios, (TAIL, 1 - TAIL), method="weibull")
    return min(1.0, float(low)), max(1.0, float(high))
