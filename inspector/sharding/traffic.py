"""The bytes that collectives send in one run of a program: sums by operation, mesh axes and network."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from inspector.records.snapshot import Collective
from inspector.records.statistics import by_key
from inspector.text.formatting import bytes_text, counted, mesh_axes_text, some_text

Axes: TypeAlias = tuple[str, ...] | None


Key = TypeVar("Key")
Amount = TypeVar("Amount", bound=Any)


@dataclass(frozen=True)
class Traffic:
    """The collectives of one operation along the same mesh axes, summed over one run of the program.

    Bytes are those of the device that sends most of the row. Of the branches of a conditional, the largest
    counts as taken each time (`total_of_taken`): also for `executions` and the payload.
    `of_busiest` are those of the device that sends most in all rows, so these add up. A sum is None if
    one of its terms is unknown, `mesh_axes` is None if the axes are. `network` is that of the collectives, if
    rows are by network. `axis_parts` are the parts of mesh axes along which they send, if `mesh_axes` are
    unknown.
    `wire_bytes_per_iteration` is the sum for those in loops whose trip count is unknown, in one
    iteration of them; None without any, or if it is unknown.
    """

    mesh_axes: tuple[str, ...] | None
    op: str
    instructions: int = 0
    executions: int | None = 0
    payload_bytes: int | None = 0
    wire_bytes_per_device: int | None = 0
    conditional: bool = False
    network: str | None = None
    wire_bytes_per_iteration: int | None = None
    axis_parts: tuple[str, ...] | None = None
    of_busiest: int | None = field(default=None, compare=False)


def traffic(collectives: Iterable[Collective], networks_apart: bool = False) -> tuple[Traffic, ...]:
    """Return the traffic by mesh axes and operation, first what sends most in one run, at least.

    Args:
      networks_apart: make a separate row for the collectives between TPU slices.
    """
    groups: dict[tuple[Axes, Axes, str, str | None], list[Collective]] = {}
    for collective in collectives:
        parts = collective.axis_parts if collective.mesh_axes is None else None
        key = (collective.mesh_axes, parts, collective.op, collective.network if networks_apart else None)
        groups.setdefault(key, []).append(collective)
    rows = []
    busiest = sent_of_busiest([*groups.values()])
    for ((axes, parts, op, network), group), of_busiest in zip(groups.items(), busiest, strict=True):
        branches, sent = any(one.conditional for one in group), wire_bytes_of_run(*group)
        payload = _total((one, one.executions, one.payload_bytes) for one in group)
        counts, repeated = (len(_instructions(group)), executions_of(group)), wire_bytes_of_iteration(*group)
        row = Traffic(axes, op, *counts, payload, sent, branches, network, repeated, parts, of_busiest)
        rows.append((sent or repeated or 0, sent is not None, row))
    return tuple(row for *_, row in sorted(rows, key=lambda ranked: ranked[:2], reverse=True))


def axes_text(collective: Collective | Traffic) -> str:
    """Return the mesh axes as text, and the network if it is not that of a slice: `data between slices`.

    Parts of mesh axes are in words: `2 parts of data`.
    """
    text = mesh_axes_text(collective.axis_parts if collective.mesh_axes is None else collective.mesh_axes)
    return text if collective.network is None else f"{text} between slices"


def parts_of(collective: Collective) -> tuple[Collective, ...]:
    """Return a collective for each array that a combined one sends; itself if it is not combined.

    Each has the bytes, the arrays and the name of its part. Together they send no more than the whole.
    """
    parts, whole = collective.parts or (), collective.payload_bytes
    if len(parts) < 2 or collective.arrays is None:
        return (collective,)
    sent = []
    together = max(sum(min(part.payload_bytes or 0, whole or 0) for part in parts), whole or 0)
    for part in parts:
        wire, size = collective.wire_bytes_per_device, part.payload_bytes
        if wire and size is not None:
            wire = wire * min(size, whole) // together if whole else None
        of_part = replace(
            collective,
            payload_bytes=size,
            wire_bytes_per_device=wire if size is not None else None,
            arrays=tuple(dict.fromkeys((*part.inputs, *part.outputs))),
            parts=(part,),
            operation=part.operation,
        )
        # In a shard_map, whatever the code combines is its own collective: else the name is of the operand.
        manual = collective.requested_by is not None and "shard_map" in (part.op_name or "")
        if part.requested_by or (part.op_name is not None and not manual):
            of_part = replace(
                of_part, op_name=part.op_name, source=part.source, library_source=part.library_source,
                requested_by=part.requested_by, call=part.call,
            )  # fmt: skip
        sent.append(of_part)
    return tuple(sent)


def lines_text(collective: Collective, unknown: str = "unknown") -> str:
    """Return the source lines of a collective, or of what was combined into it; `unknown` without any."""
    return some_text([*dict.fromkeys(part.source for part in parts_of(collective) if part.source)]) or unknown


def inputs_of(collective: Collective) -> tuple[str, ...]:
    """Return the paths of the program's arguments that a collective sends, whole or in slices."""
    return _of_parts(collective, "inputs")


def outputs_of(collective: Collective) -> tuple[str, ...]:
    """Return the paths of the program's results that are made of the values that a collective sends."""
    return _of_parts(collective, "outputs")


def _of_parts(collective: Collective, role: str) -> tuple[str, ...]:
    if collective.parts is None or collective.arrays is None:
        return collective.arrays or ()
    return tuple(dict.fromkeys(path for part in collective.parts for path in getattr(part, role)))


def wire_bytes_of_run(*collectives: Collective) -> int | None:
    """Return the bytes that leave the device that sends most in all executions of one run.

    Return None if they are unknown.
    """
    total = _total((one, one.executions, one.wire_bytes_per_device) for one in collectives)
    if total is None or all(collective.source_target_pairs is None for collective in collectives):
        return total
    return sum(sent_by_busiest({None: collectives}).values())


def executions_of(collectives: Iterable[Collective]) -> int | None:
    """Return how often one run executes these instructions, parts of one only once; None if unknown."""
    return _total((one, one.executions, 1) for one in _instructions(collectives))


def _instructions(collectives: Iterable[Collective]) -> list[Collective]:
    """Return a collective for each instruction: the parts of a combined one are one."""
    every = {(one.computation, one.name) if one.parts else id(one): one for one in collectives}
    return [*every.values()]


def total_of_taken(
    terms: Iterable[tuple[Sequence[str], Amount]], zero: Amount, largest: Callable[[list[Amount]], Amount]
) -> Amount:
    """Return the sum of amounts; of branches that exclude each other, only of the largest.

    Args:
      terms: each amount with the branches around it, as `Collective.within`.
      largest: returns the largest of some sums.

    >>> terms = [((), 1), (("conditional.2:0",), 3), (("conditional.2:1",), 4), (("conditional.2:1",), 5)]
    >>> total_of_taken(terms, 0, max)
    10
    """
    total, conditionals = zero, dict[str, dict[str, list[tuple[Sequence[str], Amount]]]]()
    for within, amount in terms:
        branches = [place for place in within if ":" in place]
        if not branches:
            total = total + amount
            continue
        of_conditional = conditionals.setdefault(branches[0].partition(":")[0], {})
        of_conditional.setdefault(branches[0], []).append((branches[1:], amount))
    for taken in conditionals.values():
        total = total + largest([total_of_taken(inside, zero, largest) for inside in taken.values()])
    return total


def sent_of_busiest(groups: Sequence[Sequence[Collective]]) -> list[int | None]:
    """Return the bytes of each group in `sent_by_busiest`; None if they are unknown."""
    sent = sent_by_busiest(dict(enumerate(groups)))
    return [None if wire_bytes_of_run(*group) is None else sent[at] for at, group in enumerate(groups)]


def sent_by_busiest(groups: Mapping[Key, Sequence[Collective]]) -> dict[Key, int]:
    """Return by group the bytes that leave the device that sends most in all groups together, in one run.

    In a collective-permute, only sources send, and none that is its own target. Unknown bytes do not count.
    """
    # By pairs, None for all devices, then by the branches around them.
    by_pairs: dict[Any, dict[tuple[str, ...], Counter[Key]]] = defaultdict(lambda: defaultdict(Counter))
    for key, collectives in groups.items():
        for collective in collectives:
            size = (collective.executions or 0) * (collective.wire_bytes_per_device or 0)
            by_pairs[collective.source_target_pairs][collective.within][key] += size
    of_all = by_pairs.pop(None, {})
    by_source: dict[int, tuple[int, ...]] = defaultdict(tuple)
    for number, pairs in enumerate(by_pairs):
        for device in {source for source, target in pairs if source != target}:
            by_source[device] += (number,)
    of_sources = [*by_pairs.values()]
    largest, every = partial(max, key=Counter.total), list[Counter[Key]]()
    for sources in dict.fromkeys(by_source.values()) or [()]:  # many devices are sources of the same pairs
        taken: dict[tuple[str, ...], Counter[Key]] = defaultdict(Counter)
        for sizes in (of_all, *(of_sources[number] for number in sources)):
            for within, sent in sizes.items():
                taken[within].update(sent)
        every.append(total_of_taken(taken.items(), Counter(), largest))
    most: Counter[Key] = largest(every)
    return {key: most[key] for key in groups}


def wire_bytes_of_iteration(*collectives: Collective) -> int | None:
    """Return the bytes that leave one device in one iteration of the loops whose trip count is unknown.

    Return None if no collective is in such a loop, or if the bytes are unknown.
    """
    inside = [collective for collective in collectives if collective.executions_per_iteration is not None]
    if not inside:
        return None
    return _total((one, one.executions_per_iteration, one.wire_bytes_per_device) for one in inside)


def least_bytes(*collectives: Collective) -> int:
    """Return the bytes that a device sends in one run, at least: what sends most is the largest by this.

    A loop whose trip count is unknown counts with one iteration, other unknown bytes count 0.
    """
    known = wire_bytes_of_run(*collectives)
    times = ((one, one.executions, one.executions_per_iteration or 0) for one in collectives)
    terms = ((one, n if n is not None else least, one.wire_bytes_per_device or 0) for one, n, least in times)
    return known if known is not None else _total(terms) or 0


def _total(terms: Iterable[tuple[Collective, int | None, int | None]]) -> int | None:
    """Return the sum of executions × amount; an instruction that never runs adds 0."""
    amounts = [
        (one.within, 0 if times == 0 else None if times is None or amount is None else times * amount)
        for one, times, amount in terms
    ]
    known = [(within, amount) for within, amount in amounts if amount is not None]
    return total_of_taken(known, 0, max) if len(known) == len(amounts) else None


def grouped(rows: Iterable[Traffic]) -> dict[str, list[Traffic]]:
    """Group rows by the text of their mesh axes, most known bytes first and unknown axes last.

    Rows of the same axes over different networks are apart.
    """
    by_axes = by_key((axes_text(row), row) for row in rows)
    return dict(sorted(by_axes.items(), key=lambda item: (item[1][0].mesh_axes is None, -_known(item[1]))))


def total_text(rows: Sequence[Traffic]) -> str:
    """Return the known bytes and the number of collectives with unknown bytes: `8.0 MiB + 2 unknown`."""
    unknown = sum(row.instructions for row in rows if row.wire_bytes_per_device is None)
    if all(row.wire_bytes_per_device is None for row in rows):
        return "unknown"
    return bytes_text(_known(rows)) + (f" + {counted(unknown, 'collective')} unknown" if unknown else "")


def _known(rows: Sequence[Traffic]) -> int:
    return sum(max(row.wire_bytes_per_device or 0, 0) for row in rows)
