"""Donated arguments whose memory no output uses, and arguments of a train step that are not donated."""

from collections.abc import Iterator

from inspector.checks.audit.context import AuditContext, finding
from inspector.core.formatting import counted
from inspector.core.program_names import subject
from inspector.core.snapshot import Finding, Program

UNUSED = "donation-not-used"

_MOST_OF_A_PROGRAM = 5


def applies(context: AuditContext) -> bool:
    """Return whether the donations of a compiled program are known."""
    return any(program.donation is not None for program in context.snapshot.programs)


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one warning per large donated argument whose memory no output uses, and one for the others."""
    for program in context.snapshot.programs:
        if program.donation is not None:
            yield from _of_program(program)


def _of_program(program: Program) -> Iterator[Finding]:
    who = subject(program.name)
    unused = program.donation.unused if program.donation is not None else ()
    ranked = sorted(unused, key=lambda donation: -(donation.bytes or 0))
    for donation in ranked[:_MOST_OF_A_PROGRAM]:
        message = (
            f"{who} writes no output over the donated argument {donation.path}: {donation.reason}. "
            "Its memory is not reused."
        )
        yield finding("warning", UNUSED, message, saved=donation.bytes, path=donation.path)
    rest = ranked[_MOST_OF_A_PROGRAM:]
    if rest:
        message = f"{who} writes no output over {counted(len(rest), 'more donated argument')}."
        yield finding("warning", UNUSED, message, saved=sum(donation.bytes or 0 for donation in rest))
