"""Collectives in the condition of a loop, for a callback on the host, or in a sum over iterations."""

from collections.abc import Iterator

from inspector.audit.context import AuditContext, finding
from inspector.records.snapshot import Collective, CollectiveUse, Finding, Program
from inspector.records.statistics import sum_known
from inspector.sharding.traffic import lines_text, wire_bytes_of_run
from inspector.text.formatting import and_text, bytes_text, counted
from inspector.text.program_names import subject

CONDITION = "collective-in-condition"
CALLBACK = "gathered-for-callback"
ACCUMULATION = "reduced-each-iteration"


def condition_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note per program in which only the condition of a loop needs other devices."""
    for program, collectives in _used(context, "loop-end"):
        largest = collectives[0]
        group = f"all {largest.group_size} devices" if largest.group_size else "devices"
        message = (
            f"{subject(program.name)} runs {_named(collectives)} in the condition of a loop. In each "
            f"iteration {group} wait for each other, and all go on until the last one ends."
        )
        yield finding(
            "note", CONDITION, message, collective=largest.name,
            source=largest.source, axes=largest.axis_names,
        )  # fmt: skip


def callback_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a warning per program that gathers an array for a function on the host."""
    for program, collectives in _used(context, "callback"):
        largest, whole = collectives[0], sum_known(c.payload_bytes for c in collectives)
        message = (
            f"{subject(program.name)} gathers a whole array for a callback on the host: "
            f"{_named(collectives)}, {bytes_text(whole)} on every device. One of them copies it to the host."
        )
        yield finding(
            "warning", CALLBACK, message, collective=largest.name,
            source=largest.source, axes=largest.axis_names,
            wire_bytes=largest.wire_bytes_per_device,
        )  # fmt: skip


def accumulation_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note per program that reduces a sum in each iteration of a loop instead of once after it."""
    for program, collectives in _used(context, "accumulation"):
        repeated = [c for c in collectives if c.executions is not None and c.executions > 1]
        sent = wire_bytes_of_run(*repeated)
        if not repeated or not sent:
            continue
        least = sum(c.wire_bytes_per_device or 0 for c in repeated)
        times = max(collective.executions or 0 for collective in repeated)
        message = (
            f"{subject(program.name)} runs {_named(repeated)} in each of {times} iterations of a loop, "
            f"only to add the result to a sum. {bytes_text(sent)} leave each device; "
            f"one reduction after the loop sends {bytes_text(least)}."
        )
        remedy = (
            "Compute the sum of each device in a `shard_map` around the loop, and reduce it after the loop."
        )
        yield finding(
            "note", ACCUMULATION, message, remedy=remedy, collective=repeated[0].name,
            source=repeated[0].source, axes=repeated[0].axis_names, wire_bytes=sent - least,
        )  # fmt: skip


def has_collectives(context: AuditContext) -> bool:
    """Return whether the use of the collectives of a program is known."""
    return any(
        collective.use is not None
        for program in context.snapshot.programs
        for collective in program.collectives or ()
    )


def _used(context: AuditContext, use: CollectiveUse) -> Iterator[tuple[Program, list[Collective]]]:
    """Yield the programs with collectives of one use, the largest first."""
    for program in context.programs:
        collectives = [c for c in program.collectives or () if c.use == use and c.group_size != 1]
        if collectives:
            yield program, sorted(collectives, key=lambda c: -(c.payload_bytes or 0))


def _named(collectives: list[Collective]) -> str:
    largest, others = collectives[0], len(collectives) - 1
    named = f"{largest.name} at {lines_text(largest)}" if largest.source else largest.name
    return and_text([named, counted(others, "other")]) if others else named
