"""Why collectives are not hidden: the reason of each, its evidence, and what another order could save."""

from collections.abc import Sequence
from dataclasses import replace

from inspector.answers.programs import once
from inspector.answers.section import (
    Block,
    Cell,
    Code,
    Column,
    Inline,
    Section,
    Table,
    Text,
    more,
    text,
    with_code,
)
from inspector.assessment.exposed import Exposed, ExposedCollective, exposed
from inspector.assessment.measured import collective_text
from inspector.machines.hardware import Chip
from inspector.prediction.step_program import main_first
from inspector.records.snapshot import Collective, Program, Snapshot
from inspector.sharding.traffic import lines_text
from inspector.text.formatting import and_text, capitalized, counted, seconds_text, share_text
from inspector.text.program_names import noun

KEY = "exposed_collectives"
HEADING = "Why communication is not hidden"
_MOST_ROWS = 20
_MOST_OTHERS = 3
_MOST_PLAIN = 200  # in JSON, the longest first
UNTRIED = "Which option makes it asynchronous on this chip was not tried."
_AT_ONCE = 0.05  # of the time of a collective
_BASIS = {"profile": "Measured", "schedule": "Predicted"}


def section(snapshot: Snapshot, chip: Chip | None, programs: Sequence[Program] = ()) -> tuple[Section, ...]:
    """Return why the collectives of each program are not hidden; empty if no program has any.

    Args:
      chip: on which programs are predicted that were not profiled. None if none is chosen.
      programs: empty for all.
    """
    every = [exposed(snapshot, program, chip) for program in programs or once(snapshot)]
    inside = [block for known in every if known is not None and known.basis for block in blocks(known)]
    return (Section("exposed", HEADING, tuple(inside)),) if inside else ()


def blocks(known: Exposed) -> tuple[Block, ...]:
    """Return the collectives that a device waits for, the longest first."""
    assert known.basis is not None
    basis, name, waits = _BASIS[known.basis], noun(known.program), seconds_text(known.waits)
    if not known.collectives:
        rest = f" but for {waits}" if known.waits else ""
        return (text(f"{basis}: all collectives of {name} are hidden{rest}.{_conditions(known)}"),)
    exposed_text = seconds_text(sum(own.seconds for own in known.collectives))
    which = counted(len(known.collectives), "collective")
    if exposed_text != waits:
        which = f"collectives, {exposed_text} of it for {len(known.collectives):,} that are not hidden"
    said = text(
        f"{basis}: {name} waits {waits} for {which}. "
        f"At most, the time of operations that are independent of them could be saved.{_conditions(known)}"
    )
    groups: dict[tuple[str, str, str], list[ExposedCollective]] = {}
    for own in known.collectives:
        key = collective_text(own.collective), own.reason, lines_text(own.collective, "")
        groups.setdefault(key, []).append(own)
    rows = sorted(groups.values(), key=lambda group: -sum(own.seconds for own in group))
    table = Table.of(
        f"exposed:{known.program}",
        rows[:_MOST_ROWS],
        {
            "Collectives": _named,
            Column(
                "Exposed", "seconds", "Seconds of a run in which the device waits for them"
            ): lambda group: sum(own.seconds for own in group),
            Column("Saves at most", "seconds", "Exposed seconds that other operations could fill"): (
                lambda group: sum(own.saves for own in group)
            ),
            "Why, of the longest": lambda group: with_code(reason_text(group[0])),
        },
        wrap=True,
    )
    return (said, table, *more(len(rows) - _MOST_ROWS, "row"))


def _named(group: Sequence[ExposedCollective]) -> Cell:
    """Return operation, axes and line of collectives, and the name of the longest."""
    first = group[0].collective
    several = f"{len(group):,} × " if len(group) > 1 else ""
    source: tuple[Inline, ...] = (" at ", Code(lines)) if (lines := lines_text(first, "")) else ()
    return (f"{several}{collective_text(first)}", *source, ": ", Code(first.name))


def of_collective(
    snapshot: Snapshot, program: Program, collective: Collective, chip: Chip | None
) -> tuple[Block, ...]:
    """Return why one collective of a program is not hidden, or that it is."""
    known = exposed(snapshot, program, chip)
    if known is None or known.basis is None:
        return ()
    own = known.of(collective)
    if own is None:
        return (text(f"{_BASIS[known.basis]}: the device does not wait for it.{_conditions(known)}"),)
    return (_sentence(known, own),)


def _sentence(known: Exposed, own: ExposedCollective) -> Text:
    assert known.basis is not None
    waits = seconds_text(own.seconds)
    if own.whole is not None:
        whole = seconds_text(own.whole)
        waits = f"all of its {whole}" if waits == whole else f"{waits} of its {whole}"
    return text(
        f"{_BASIS[known.basis]}: the device waits for {waits} in one run. ",
        *with_code(reason_text(own)),
        f" At most {seconds_text(own.saves)} could be saved.{_conditions(known)}",
    )


def _conditions(known: Exposed) -> str:
    return f" This holds if {and_text(known.assumed)}." if known.assumed else ""


def reason_text(own: ExposedCollective) -> str:
    """Return the reason with its evidence, in sentences that have names between backticks."""
    if own.reason == "synchronous":
        how = UNTRIED if own.overlap is None else own.overlap.text(own.options)
        return f"It is synchronous. {how} {_meanwhile(own)}"
    if own.reason == "shared links":
        others = [f"`{other.name}` ({collective_text(other)})" for other in own.others[:_MOST_OTHERS]]
        use = "uses" if len(others) == 1 else "use"
        return (
            f"Links are shared: for {seconds_text(own.queued)}, {and_text(others)} {use} the links that it "
            "needs."
        )
    when = "at once"
    if own.whole and own.before_use > _AT_ONCE * own.whole:
        when = f"after {share_text(own.before_use / own.whole, 0)} of its time"
    if own.reason == "used at once":
        return f"Its result is used {when}, by {_user(own)}. {_meanwhile(own)}"
    sentences = [
        f"{'Little' if own.available else 'Nothing'} is left to compute meanwhile: {_independent(own)}.",
        f"Its result is used {when}, by {_user(own)}.",
    ]
    if own.synchronous:
        sentences.append("It is synchronous, but asynchronous it would not be hidden either.")
    if own.elsewhere > own.available:
        sentences.append(
            f"In the previous or next iteration, {seconds_text(own.elsewhere)} of operations are "
            "independent: if the loop is a `jax.lax.scan`, `unroll=2` lets them run meanwhile."
        )
    return " ".join(sentences)


def _independent(own: ExposedCollective) -> str:
    """Return how long operations take that could run meanwhile."""
    if own.available <= 0.0:
        rest = ", need its result or run meanwhile already" if own.before_use else " or need its result"
        return f"all others in the same {own.place} make its input{rest}"
    return (
        f"{seconds_text(own.available)} of operations in the same {own.place} could run meanwhile, because "
        "they neither make its input nor need its result"
    )


def _meanwhile(own: ExposedCollective) -> str:
    if own.available <= 0.0:
        return f"Asynchronous, it would not be hidden either: {_independent(own)}."
    return f"{capitalized(_independent(own))}."


def _user(own: ExposedCollective) -> str:
    if own.user is None:
        return f"the result of the {own.place}"
    name = f"`{own.user.name}`{' in the next iteration' if own.in_next else ''}"
    return f"{name} (`{own.user.source}`)" if own.user.source else name


def json_of(snapshot: Snapshot, chip: Chip | None, programs: Sequence[Program] = ()) -> dict[str, object]:
    """Return why collectives are not hidden under a key for `--json`; empty if no program has any.

    Arguments are those of `section`.
    """
    every = [exposed(snapshot, program, chip) for program in programs or main_first(snapshot)]
    known = [_plain(program) for program in every if program is not None]
    return {KEY: known} if known else {}


def of_collective_json(
    snapshot: Snapshot, program: Program, collective: Collective, chip: Chip | None
) -> dict[str, object]:
    """Return the same for one collective, which is not in the list if it is hidden."""
    known = exposed(snapshot, program, chip)
    if known is None:
        return {}
    own = known.of(collective)
    return {KEY: [_plain(replace(known, collectives=() if own is None else (own,)))]}


def _plain(known: Exposed) -> dict[str, object]:
    return {
        "program": known.program,
        "basis": known.basis,
        "assumed": list(known.assumed),
        "unknown": known.unknown or None,
        "remedy": known.remedy.replace("`", "") or None,
        "waits": known.waits,
        "count": len(known.collectives),
        "seconds": None if known.basis is None else sum(own.seconds for own in known.collectives),
        "collectives": [
            {
                "name": own.collective.name,
                "op": own.collective.op,
                "axes": list(own.collective.axis_names),
                "source": own.collective.source,
                "reason": own.reason,
                "sentence": reason_text(own).replace("`", ""),
                "seconds": own.seconds,
                "whole": own.whole,
                "saves_at_most": own.saves,
                "synchronous": own.synchronous,
                "options": list(own.switched_off),
                "independent": own.available,
                "independent_in_other_iteration": own.elsewhere,
                "computed_before_use": own.before_use,
                "used_by": None if own.user is None else own.user.name,
                "used_at": None if own.user is None else own.user.source,
                "queued": own.queued,
                "shared_with": [other.name for other in own.others],
            }
            for own in known.collectives[:_MOST_PLAIN]
        ],
    }
