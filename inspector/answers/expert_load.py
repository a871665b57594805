"""Tokens of each expert and device of a mixture, next to the all-to-alls that wait for the busiest."""

from collections.abc import Sequence
from typing import NamedTuple

from inspector.answers.programs import once
from inspector.answers.section import Block, Section, Table, more, text, unknown, with_code
from inspector.compiled.collective_roles import EXPERTS, by_role
from inspector.records.collectives import OPERATIONS
from inspector.records.snapshot import Collective, ExpertLoad, Program, Snapshot
from inspector.sharding.traffic import wire_bytes_of_run
from inspector.text.formatting import bytes_text, counted
from inspector.text.program_names import noun

KEY = "expert_load"
HEADING = "Tokens of experts"
_MOST_ROWS = 8
NOT_RUN = "The router decides in a run, and this program did not run here."
NOT_SAID = "Neither the program nor its profile has the number of tokens of each expert."


class Exchange(NamedTuple):
    """A program whose devices exchange tokens of experts.

    Attributes:
      load: the tokens of each expert; None if unknown.
      collectives: the exchanges.
      expected: the load of the busiest device that the layout expects, as a multiple of the mean. None if it
        expects none.
      waits: whether the exchanges send more if a device is busier. None if unknown.
    """

    program: str
    load: ExpertLoad | None
    collectives: tuple[Collective, ...]
    expected: float | None
    waits: bool | None

    @property
    def sent(self) -> int | None:
        """Bytes that one device sends in one run; None if unknown."""
        return wire_bytes_of_run(*self.collectives)


def exchange(snapshot: Snapshot, program: Program) -> Exchange | None:
    """Return the exchanges of a program's experts; None without them and without known tokens of experts."""
    exchanges = tuple(
        collective
        for role, collectives in by_role(program, snapshot).items()
        for collective in collectives
        if (operation := OPERATIONS.get(collective.op)) is not None
        and operation.route == "all-to-all"
        and (role == EXPERTS or collective.op == "ragged-all-to-all")
    )
    if not exchanges and program.expert_load is None:
        return None
    sizes = dict((snapshot.layout or {}).get("sizes") or {})
    routing = sizes.get("routing")
    dropless = None if routing is None else routing == "dropless"
    expected = sizes.get("imbalance") if dropless else None
    return Exchange(program.name, program.expert_load, exchanges, expected, dropless)


def section(snapshot: Snapshot, programs: Sequence[Program] = ()) -> tuple[Section, ...]:
    """Return the tokens of experts of the first program that exchanges any; empty if none does.

    programs: empty for all.
    """
    known = _first(snapshot, programs)
    if known is None:
        return ()
    blocks = _unknown(snapshot, known) if known.load is None else _known(known, known.load)
    return (Section("expert-load", HEADING, blocks),)


def json_of(snapshot: Snapshot, programs: Sequence[Program] = ()) -> dict[str, object]:
    """Return the same under a key for `--json`; empty if no program exchanges tokens."""
    known = _first(snapshot, programs)
    if known is None:
        return {}
    load, (reason, remedy) = known.load, _why_unknown(snapshot)
    return {
        KEY: {
            "program": known.program,
            "tokens": None if load is None else load.tokens,
            "devices": None if load is None else load.devices,
            "imbalance": None if load is None else load.imbalance,
            "expected": known.expected,
            "sent_bytes": known.sent,
            "unknown": reason if load is None else None,
            "remedy": remedy.replace("`", "") if load is None else None,
        }
    }


def _first(snapshot: Snapshot, programs: Sequence[Program]) -> Exchange | None:
    every = (exchange(snapshot, program) for program in programs or once(snapshot))
    return next((own for own in every if own is not None), None)


def of_collective(snapshot: Snapshot, program: Program, collective: Collective) -> tuple[Block, ...]:
    """Return the same for one exchange; empty for another collective."""
    return section(snapshot, [program]) if _exchanges(snapshot, program, collective) else ()


def of_collective_json(snapshot: Snapshot, program: Program, collective: Collective) -> dict[str, object]:
    """Return `json_of` for one exchange; empty for another collective."""
    return json_of(snapshot, [program]) if _exchanges(snapshot, program, collective) else {}


def _exchanges(snapshot: Snapshot, program: Program, collective: Collective) -> bool:
    known = exchange(snapshot, program)
    key = collective.computation, collective.name
    return known is not None and any((own.computation, own.name) == key for own in known.collectives)


def _known(known: Exchange, load: ExpertLoad) -> tuple[Block, ...]:
    share = sum(load.tokens) / len(load.tokens)
    said = (
        f"Measured with the last state: the busiest of {counted(len(load.tokens), 'expert')} got "
        f"{max(load.tokens) / (share or 1):.2f} × its equal share of tokens."
    )
    if load.imbalance is not None:
        said += (
            f" In a layer, the experts of the busiest device got {load.imbalance:.2f} × their equal share on "
            "average."
        )
    parts = [text(said, _waits(known))]
    rows = load.devices if load.devices and known.collectives else load.tokens
    if len({*rows}) == 1:
        return tuple(parts)
    what = "device" if rows is load.devices else "expert"
    busiest = sorted(range(len(rows)), key=lambda number: -rows[number])
    mean = sum(rows) / len(rows) or 1
    table = Table.of(
        f"expert_load:{known.program}",
        busiest[:_MOST_ROWS],
        {
            f"{what.capitalize()}:count": lambda number: number,
            "Tokens:count": lambda number: rows[number],
            "× equal share": lambda number: f"{rows[number] / mean:.2f}",
        },
    )
    return (*parts, table, *more(len(rows) - _MOST_ROWS, what))


def _waits(known: Exchange) -> str:
    """Return the bytes of the exchanges of tokens, and whether they wait for the busiest device."""
    if not known.collectives:
        return " No all-to-all waits for it."
    sent = f" {_sends(known)}"
    if known.waits is None:
        return f"{sent}."
    if not known.waits:
        return f"{sent}, whatever the load: buffers have a fixed size, and drop tokens beyond it."
    expected = "" if known.expected is None else f" The layout expects {known.expected:g} ×."
    return f"{sent}, and wait for this device.{expected}"


def _sends(known: Exchange) -> str:
    return f"All-to-alls of their tokens send {bytes_text(known.sent)} from each device in one run"


def _unknown(snapshot: Snapshot, known: Exchange) -> tuple[Block, ...]:
    reason, remedy = _why_unknown(snapshot)
    expected = "" if known.expected is None else f" Its times assume {known.expected:g} × the equal share."
    who = f"Tokens of each expert and device in {noun(known.program)}: unknown."
    return (unknown(*with_code(f"{who} {reason}{expected} {_sends(known)}. {remedy}")),)


def _why_unknown(snapshot: Snapshot) -> tuple[str, str]:
    """Return the reason and the remedy if the tokens of each expert are unknown."""
    if snapshot.layout is None:
        return NOT_SAID, "Describe the program as a Model with `routing`, and run it with `inspect`."
    own = ":" in str(snapshot.layout.get("model"))
    needs = " The model needs `Model.routing`." if own else ""
    return NOT_RUN, f"Run the layout, on emulated devices or those of this machine.{needs}"
