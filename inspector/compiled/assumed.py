"""The costs of a program for stated counts of its loops and branches.

The trip count of some loops, and the branch of some conditionals, depends on data, so no text says them. Each
figure of a program is a sum of parts, each times the trip counts of the loops and the shares of the branches
around it. A user states these, and a bound assumes the least or the most.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from inspector.records.snapshot import (
    Collective,
    KernelCalls,
    MatmulFlops,
    OpenChoice,
    Pipeline,
    Program,
    Schedule,
    ScheduledOperation,
    Snapshot,
    Work,
    WorkPart,
)
from inspector.records.statistics import sum_known
from inspector.records.typed_json import LARGEST
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import bytes_text, counted

MOST_TRIPS = 10**12
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Assumed:
    """Trip counts of loops, shares of branches and costs of kernels, by the name or the line of each.

    Attributes:
      trips: Iterations of a loop.
      kernels: The cost of one execution of a custom kernel, by its name, the target of its calls, its
        instruction or its line.
      shares: Share of the executions of a conditional that take its branch for a true predicate, or else its
        last one, from 0 to 1. The rest is divided equally between the others.
    """

    trips: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    kernels: Mapping[str, Cost] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.trips or self.shares or self.kernels)


@dataclass(frozen=True)
class Cost:
    """FLOPs of one execution of a kernel on one device, and the bytes that it reads and writes."""

    flops: float
    bytes: int


def with_assumed(snapshots: Sequence[Snapshot], assumed: Assumed) -> list[Snapshot]:
    """Return Snapshots whose programs run their loops, branches and kernels so.

    Raises:
      InvalidInput: no program of them has a loop, a conditional or a kernel with one of these names.
    """
    if not assumed:
        return list(snapshots)
    programs = [
        program for snapshot in snapshots for program in (*snapshot.programs, *(snapshot.partitioned or ()))
    ]
    known = {
        kind: {
            name: choice.label
            for program in programs
            for choice in program.open_choices
            if choice.kind == kind
            for name in (choice.name, choice.label)
        }
        for kind in ("loop", "conditional")
    }
    known["kernel"] = {name: name for program in programs for name in _kernels(program)}
    for kind, names in (
        ("loop", assumed.trips),
        ("conditional", assumed.shares),
        ("kernel", assumed.kernels),
    ):
        for name in names:
            if name not in known[kind]:
                labels = ", ".join(sorted(set(known[kind].values()))[:_MOST_NAMES]) or "none"
                raise InvalidInput(
                    f"the {kind} is {shown(name)}, but must be one whose {_UNKNOWN[kind]} is unknown: "
                    f"{labels}"
                )
    return [
        replace(
            snapshot,
            programs=tuple(assume(program, assumed) for program in snapshot.programs),
            partitioned=snapshot.partitioned
            and tuple(assume(program, assumed) for program in snapshot.partitioned),
        )
        for snapshot in snapshots
    ]


_UNKNOWN = {"loop": "trip count", "conditional": "branch", "kernel": "cost"}
_MOST_NAMES = 20


def _kernels(program: Program) -> Iterator[str]:
    """Yield the names of the kernels whose cost is unknown: their own, targets, instructions and lines."""
    for calls in () if program.work is None else program.work.kernels:
        yield from filter(None, (calls.name, calls.target, calls.source))
    for computation in () if program.schedule is None else program.schedule.computations:
        for operation in computation.operations:
            if operation.uncounted is not None:
                yield from filter(None, (operation.uncounted, operation.name, operation.source))


def assume(program: Program, assumed: Assumed, how: str = "") -> Program:
    """Return a program that runs its loops and branches so often, with one clause for each assumption.

    Args:
      how: how the trip counts are known, at the end of their clauses.
    """
    trips = _by_instruction(program.open_choices, "loop", assumed.trips)
    stated = _by_instruction(program.open_choices, "conditional", assumed.shares)
    kernels = {name: assumed.kernels[name] for name in _kernels(program) if name in assumed.kernels}
    if kernels:
        program = _with_kernels(program, kernels)
    if not trips and not stated:
        return program
    choices = {choice.name: choice for choice in program.open_choices}
    shares = {name: _shares(choices[name], share) for name, share in stated.items()}
    factors = _Factors(trips, shares)
    clauses = [
        f"the loop {choices[name].label} runs {counted(number, 'time')}{how}"
        for name, number in trips.items()
    ] + [
        f"the branch of {choices[name].label} is taken in {share:.4g} of its executions"
        for name, share in stated.items()
    ]
    work = None if program.work is None else _work(program.work, factors)
    return replace(
        program,
        collectives=program.collectives
        and tuple(_collective(collective, factors) for collective in program.collectives),
        work=work,
        flops_per_device=program.flops_per_device if work is None else work.flops,
        schedule=program.schedule and _schedule(program.schedule, factors),
        pipelines=program.pipelines and tuple(_pipeline(pipeline, trips) for pipeline in program.pipelines),
        open_choices=tuple(
            choice for name, choice in choices.items() if name not in trips and name not in shares
        ),
        assumptions=(*program.assumptions, *dict.fromkeys(clauses)),
    )


def _with_kernels(program: Program, kernels: Mapping[str, Cost]) -> Program:
    """Return a program whose kernels have these costs, at the peak of the type of their operands."""
    work, dtypes = program.work, dict[str, str]()
    costs, left = dict(kernels), list[KernelCalls]()
    for calls in () if work is None else work.kernels:
        cost = _first(kernels, calls.name, calls.source, calls.target)
        if cost is None or calls.calls is None:
            left.append(calls)
            continue
        costs.setdefault(calls.name, cost)
        dtypes[calls.name] = calls.dtype or _WIDE
        flops, moved = cost.flops * calls.calls, cost.bytes * calls.calls - (calls.bytes or 0.0)
        products = (MatmulFlops(dtypes[calls.name], flops),)
        flops -= calls.flops or 0.0
        work = work and _with_part(work, WorkPart(calls.within, flops, products, moved, moved, 0.0))
    if work is not None:
        uncounted = tuple(sorted({calls.name for calls in left if calls.flops is None}))
        work = replace(work, kernels=tuple(left), not_counted=uncounted)

    def stated(operation: ScheduledOperation) -> ScheduledOperation:
        kernel = operation.uncounted
        cost = _first(costs, operation.name, kernel, operation.source)
        if kernel is None or cost is None:
            return operation
        dtype = dtypes.get(kernel, _WIDE)
        return replace(operation, flops=cost.flops, bytes=cost.bytes, dtype=dtype, kernel=None)

    schedule = program.schedule and replace(
        program.schedule,
        computations=tuple(
            replace(computation, operations=tuple(map(stated, computation.operations)))
            for computation in program.schedule.computations
        ),
    )
    clauses = [
        f"one execution of {name} takes {cost.flops:.4g} FLOPs and moves {bytes_text(cost.bytes)}"
        for name, cost in kernels.items()
    ]
    return replace(
        program,
        work=work,
        flops_per_device=program.flops_per_device if work is None else work.flops,
        schedule=schedule,
        assumptions=(*program.assumptions, *clauses),
    )


_WIDE = "bf16"  # the type of products of a kernel whose operands are unknown


def _first(costs: Mapping[str, Cost], *names: str | None) -> Cost | None:
    return next((costs[name] for name in names if name is not None and name in costs), None)


def _with_part(work: Work, added: WorkPart) -> Work:
    """Return work with a part added, also to its sums."""
    total = _sum(WorkPart((), **{name: getattr(work, name) for name in _AMOUNTS}), added)
    parts = {part.within: part for part in work.parts}
    if parts:
        parts[added.within] = _sum(parts.get(added.within, replace(_NOTHING, within=added.within)), added)
    return replace(_with_sums(work, total), parts=tuple(parts.values()))


# Name, FLOPs and bytes of one execution of a kernel.
KernelCosts = tuple[tuple[str, float, int], ...]


def with_costs_of_model(program: Program, costs: KernelCosts) -> Program:
    """Return a program whose kernels have the costs that its model states; it can lack some of them."""
    if not costs:
        return program
    return assume(program, Assumed(kernels={name: Cost(flops, moved) for name, flops, moved in costs}))


def least(program: Program) -> Program:
    """Return a program that runs each loop of unknown trip count once, and no branch."""
    return _without_branches(once(program))


def once(program: Program) -> Program:
    """Return a program that runs each loop of unknown trip count once, and each branch."""
    loops = {choice.name: 1 for choice in program.open_choices if choice.kind == "loop"}
    return replace(assume(program, Assumed(loops)), assumptions=program.assumptions)


def loops_around(program: Program) -> dict[str, frozenset[str]]:
    """Return the loops of unknown trip count around each of them, by instruction."""
    paths = [part.within for part in (program.work.parts if program.work else ())]
    paths += [collective.within for collective in program.collectives or ()]
    loops = {choice.name: frozenset[str]() for choice in program.open_choices if choice.kind == "loop"}
    for path in paths:
        names = [place.removesuffix("+1") for place in path if ":" not in place]
        for number, name in enumerate(names):
            if name in loops:
                loops[name] |= loops.keys() & {*names[:number]} - {name}
    return loops


def _without_branches(program: Program) -> Program:
    names = [choice.name for choice in program.open_choices if choice.kind == "conditional"]
    if not names:
        return program
    # No branch at all: less than any share of them can be.
    nothing = _Factors({}, dict.fromkeys(names, ()))
    return replace(
        program,
        collectives=program.collectives
        and tuple(_collective(collective, nothing) for collective in program.collectives),
        work=program.work and _work(program.work, nothing),
        schedule=program.schedule and _schedule(program.schedule, nothing),
        open_choices=(),
    )


@dataclass(frozen=True)
class _Factors:
    """Trip counts, and the share of each branch, by instruction. Without shares no branch is taken."""

    trips: Mapping[str, int]
    shares: Mapping[str, tuple[float, ...]]

    def of(self, within: Iterable[str]) -> tuple[float, tuple[str, ...]]:
        """Return the product of the known counts, and the others."""
        product, rest = 1.0, []
        for place in within:
            name, branch, number = place.partition(":")
            loop = name.removesuffix("+1")
            if branch and (shares := self.shares.get(name)) is not None:
                product *= shares[int(number)] if int(number) < len(shares) else 0.0
            elif not branch and loop in self.trips:
                product *= self.trips[loop] + (loop != name)
            else:
                rest.append(place)
        return product, tuple(rest)


def _by_instruction(
    choices: Iterable[OpenChoice], kind: str, given: Mapping[str, _Number]
) -> dict[str, _Number]:
    return {
        choice.name: given[name]
        for choice in choices
        for name in (choice.name, choice.source)
        if choice.kind == kind and name is not None and name in given
    }


def _pipeline(pipeline: Pipeline, trips: Mapping[str, int]) -> Pipeline:
    """Return a pipeline whose loop has its stated trip count, with the microbatches that this allows."""
    stated = trips.get(pipeline.loop or "")
    if not stated or pipeline.iterations is not None:
        return pipeline
    useful, stack = stated - pipeline.idle, pipeline.stack
    if stack is None or useful < stack or useful % stack:
        return replace(pipeline, trips=stated)
    return replace(pipeline, microbatches=stack, repeats=useful // stack)


def _shares(choice: OpenChoice, stated: float) -> tuple[float, ...]:
    """Return the share of each branch of a conditional."""
    others = (1 - stated) / max(choice.branches - 1, 1)
    return tuple(stated if number == choice.stated else others for number in range(choice.branches))


def _collective(collective: Collective, factors: _Factors) -> Collective:
    if not collective.within:
        return collective
    product, rest = factors.of(collective.within)
    once_each = (
        collective.executions
        if collective.executions_per_iteration is None
        else collective.executions_per_iteration
    )
    if once_each is None:
        return collective
    exact = round(once_each * product, 9)  # 100 × 0.07 is above 7
    number = min(math.ceil(exact), LARGEST)
    whole = not any(":" not in place for place in rest)
    return replace(
        collective,
        executions=number if whole else None,
        executions_per_iteration=None if whole else number,
        conditional=any(":" in place for place in rest) or number > exact,  # then at most the number
        within=rest,
    )


def _work(work: Work, factors: _Factors) -> Work:
    if not work.parts:
        return work
    parts: dict[tuple[str, ...], WorkPart] = {}
    for part in work.parts:
        product, rest = factors.of(part.within)
        scaled = _scaled(part, product, rest)
        parts[rest] = scaled if rest not in parts else _sum(parts[rest], scaled)
    if any(":" not in place for rest in parts for place in rest):
        return replace(work, parts=tuple(parts.values()))
    total = functools.reduce(_sum, parts.values(), _NOTHING)
    return replace(_with_sums(work, total), parts=tuple(parts.values()) if any(parts) else ())


# What parts of work have, and their sum.
_AMOUNTS = ("flops", "matmul", "bytes_accessed", "fused_bytes", "fusions", "product_bytes")
_NOTHING = WorkPart((), 0.0, (), 0.0, 0.0, 0.0, 0.0)


def _with_sums(work: Work, total: WorkPart) -> Work:
    return replace(work, **{name: getattr(total, name) for name in _AMOUNTS})


def _scaled(part: WorkPart, factor: float, within: tuple[str, ...]) -> WorkPart:
    def times(amount: float | None) -> float | None:
        return None if amount is None else amount * factor

    if not factor:
        return replace(_NOTHING, within=within)
    return WorkPart(
        within,
        times(part.flops),
        part.matmul and tuple(replace(product, flops=product.flops * factor) for product in part.matmul),
        times(part.bytes_accessed),
        times(part.fused_bytes),
        times(part.fusions),
        times(part.product_bytes),
    )


def _sum(first: WorkPart, second: WorkPart) -> WorkPart:
    matmul: tuple[MatmulFlops, ...] | None = None
    if first.matmul is not None and second.matmul is not None:
        flops: dict[str, float] = {}
        for product in (*first.matmul, *second.matmul):
            flops[product.dtype] = flops.get(product.dtype, 0.0) + product.flops
        matmul = tuple(MatmulFlops(dtype, number) for dtype, number in sorted(flops.items()))
    sums: dict[str, Any] = {
        name: sum_known((getattr(first, name), getattr(second, name)))
        for name in _AMOUNTS
        if name != "matmul"
    }
    return replace(first, matmul=matmul, **sums)


def _schedule(schedule: Schedule, factors: _Factors) -> Schedule:
    return replace(
        schedule,
        computations=tuple(
            replace(
                computation,
                operations=tuple(
                    replace(operation, times=factors.trips[operation.name])
                    if operation.times is None and operation.name in factors.trips
                    else replace(operation, shares=factors.shares[operation.name])
                    if operation.name in factors.shares
                    else operation
                    for operation in computation.operations
                ),
            )
            for computation in schedule.computations
        ),
    )
