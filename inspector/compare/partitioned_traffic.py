"""The collectives of partitioned programs against those of the compiled programs of the same layout.

Both name the operation of the model that a collective belongs to. Collectives of the same operations are
compared, and each difference gets a reason that their records prove. A difference without such a proof has
the reason `xla`: the records do not show why.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from inspector.hlo.op_name import OpName, parse_op_name
from inspector.prediction.evidence import partitioned_beside
from inspector.records.snapshot import Collective, Program, Snapshot
from inspector.records.statistics import sum_known
from inspector.sharding.traffic import Traffic, traffic

Axes = tuple[str, ...] | None
Reason = Literal[
    "combined", "split", "reduce-scatter", "all-reduce", "ring", "reassociated", "narrower", "wider",
    "out-of-loop", "gathered-again", "other-axes", "removed", "moved", "xla",
]  # fmt: skip
MEANINGS: Mapping[Reason, str] = MappingProxyType({
    "combined": "several collectives are one instruction",
    "split": "one collective is several instructions",
    "reduce-scatter": "a reduce-scatter replaces an all-reduce and a slice",
    "all-reduce": "an all-reduce and a slice replace a reduce-scatter",
    "ring": "collective-permutes that overlap with the computation replace one collective",
    "reassociated": "one all-reduce of a sum replaces one of each summand",
    "narrower": "the same elements in a type of half the size or less",
    "wider": "the same elements in a larger type",
    "out-of-loop": "moved out of a loop",
    "gathered-again": "the backward pass gathers the array again",
    "other-axes": "the same operation communicates over other mesh axes",
    "removed": "removed as dead, or merged with an equal one",
    "moved": "of the same operation, at another place of its computation",
    "xla": "the records do not show why",
})  # fmt: skip
TOLERANCE = 0.01  # difference of wire bytes that counts as agreement
_SUMS = frozenset({"all-reduce", "reduce-scatter"})


@dataclass(frozen=True)
class TrafficRow:
    """Propagated and compiled collectives of one program, set of mesh axes and operation.

    Attributes:
      reasons: reasons of the difference, largest first. Empty if executions and bytes are equal.
    """

    program: str
    mesh_axes: Axes
    op: str
    partitioned: Traffic
    compiled: Traffic
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class TrafficPair:
    """Wire bytes of all collectives of a program over one set of mesh axes."""

    program: str
    mesh_axes: Axes
    partitioned: int | None
    compiled: int | None
    reasons: tuple[Reason, ...]

    @property
    def known(self) -> bool:
        """Whether both are known: a collective in a loop with an unknown trip count runs unknown times."""
        return self.partitioned is not None and self.compiled is not None

    @property
    def agrees(self) -> bool:
        """Whether both are within 1%."""
        return _close(self.partitioned, self.compiled)


def rows_of(snapshot: Snapshot) -> tuple[TrafficRow, ...] | None:
    """Return the rows of all programs of a Snapshot; None if it lacks partitioned or compiled programs."""
    partitioned = partitioned_beside(snapshot)
    return compared(partitioned, snapshot.programs) if partitioned and snapshot.programs else None


def not_compared(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of compiled programs whose collectives, partitioned or compiled, are unknown.

    Programs on one device are left out.
    """
    known = {program.name for program in partitioned_beside(snapshot) if program.collectives is not None}
    return tuple(
        program.name
        for program in snapshot.programs
        if (program.name not in known or program.collectives is None)
        and not ((mesh := snapshot.mesh_of(program)) is not None and mesh.size == 1)
    )


def compared(partitioned: Sequence[Program], compiled: Sequence[Program]) -> tuple[TrafficRow, ...]:
    """Return a row for each program, set of mesh axes and operation that has a collective in either."""
    before = {program.name: program for program in partitioned}
    rows: list[TrafficRow] = []
    for program in compiled:
        known = before.get(program.name)
        if known is None or known.collectives is None or program.collectives is None:
            continue
        rows += _rows(program.name, known.collectives, program.collectives)
    return tuple(rows)


def pairs(rows: Iterable[TrafficRow]) -> tuple[TrafficPair, ...]:
    """Return the sums of each program and set of mesh axes with traffic."""
    grouped: dict[tuple[str, Axes], list[TrafficRow]] = defaultdict(list)
    for row in rows:
        grouped[row.program, row.mesh_axes].append(row)
    found = []
    for (program, axes), group in grouped.items():
        sums = [
            sum_known(pair.partitioned.wire_bytes_per_device for pair in group),
            sum_known(pair.compiled.wire_bytes_per_device for pair in group),
        ]
        if sums == [0, 0]:
            continue
        reasons = dict.fromkeys(reason for row in group if not _equal_bytes(row) for reason in row.reasons)
        found.append(TrafficPair(program, axes, sums[0], sums[1], tuple(reasons)))
    return tuple(found)


def _rows(name: str, before: Sequence[Collective], after: Sequence[Collective]) -> Iterator[TrafficRow]:
    amounts = [
        {(total.mesh_axes, total.op): total for total in traffic(collectives)}
        for collectives in (before, after)
    ]
    reasons = _reasons(before, after)
    for axes, op in dict.fromkeys(key for amount in amounts for key in amount):
        old, new = (amount.get((axes, op), Traffic(axes, op)) for amount in amounts)
        why: tuple[Reason, ...] = ()
        known = None not in (old.wire_bytes_per_device, new.wire_bytes_per_device)
        if known and not _close(old.wire_bytes_per_device, new.wire_bytes_per_device):
            counts = reasons.get((axes, op), Counter())
            why = tuple(reason for reason, _ in counts.most_common()) or ("xla",)
        elif known and old.executions != new.executions:
            why = ("combined" if (old.executions or 0) > (new.executions or 0) else "split",)
        yield TrafficRow(name, axes, op, old, new, why)


def _equal_bytes(row: TrafficRow) -> bool:
    return _close(row.partitioned.wire_bytes_per_device, row.compiled.wire_bytes_per_device)


def _close(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return False
    return abs(one - other) <= TOLERANCE * max(one, other)


# --- Reasons ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Component:
    """The collectives of some operations of the model that belong together: XLA merged some of them."""

    before: list[Collective]
    after: list[Collective]


def _reasons(
    before: Sequence[Collective], after: Sequence[Collective]
) -> dict[tuple[Axes, str], Counter[Reason]]:
    """Return the bytes of each reason, by mesh axes and operation."""
    found: dict[tuple[Axes, str], Counter[Reason]] = defaultdict(Counter)
    added: Counter[tuple[Axes, str]] = Counter()
    gathered = {
        path for collective in before if collective.op == "all-gather" for path in collective.arrays or ()
    }
    for component in _components(before, after):
        sent = [_sent_by_kind(component.before), _sent_by_kind(component.after)]
        for kind in dict.fromkeys(key for each in sent for key in each):
            old, new = (each.get(kind, 0) for each in sent)
            if _close(old, new):
                continue
            reason = _reason(component, kind, old, new, gathered)
            found[kind][reason] += abs(old - new)
            if reason == "xla" and new > old:
                added[kind] += new - old
    # An instruction that combines several is often named after one of them only.
    for kind, reasons in found.items():
        combined = min(reasons["removed"], added[kind])
        reasons["removed"] -= combined
        reasons["xla"] -= combined
        added[kind] -= combined
    for axes in {axes for axes, _ in found}:
        _explain_sums(found, added, axes)
    return {kind: +reasons for kind, reasons in found.items()}


def _explain_sums(
    found: Mapping[tuple[Axes, str], Counter[Reason]], added: Counter[tuple[Axes, str]], axes: Axes
) -> None:
    """Explain removed all-reduces by an added reduce-scatter, which sends half as much, or the reverse."""
    changes: tuple[tuple[Reason, Reason, float], ...] = (
        ("all-reduce", "reduce-scatter", 2),
        ("reduce-scatter", "all-reduce", 0.5),
    )
    for before, after, factor in changes:
        old, new = found.get((axes, before)), found.get((axes, after))
        if old is None or new is None:
            continue
        sent = min(added[axes, after], int(old["removed"] / factor))
        old["removed"] -= int(sent * factor)
        old[after] += int(sent * factor)
        new["xla"] -= sent
        new[after] += sent


def _reason(component: _Component, kind: tuple[Axes, str], old: int, new: int, gathered: set[str]) -> Reason:
    """Return why the bytes of one kind of collective differ in these operations."""
    axes, op = kind
    before = [collective for collective in component.before if collective.mesh_axes == axes]
    after = [collective for collective in component.after if collective.mesh_axes == axes]
    ops_before = {collective.op for collective in before}
    ops_after = {collective.op for collective in after}
    if op in _SUMS and (ops_before | ops_after) >= _SUMS and ops_before & _SUMS != ops_after & _SUMS:
        return "reduce-scatter" if "reduce-scatter" in ops_after else "all-reduce"
    rings = "collective-permute" in ops_after - ops_before and bool(ops_before)
    if rings and (op == "collective-permute" or old > new):
        return "ring"
    if op == "all-reduce" and old > new and _is_sum(before, after, op):
        return "reassociated"
    if _left_a_loop(before, after, op):
        return "out-of-loop"
    if old > new and _is_narrower(before, after, op):
        return "narrower"
    if new > old and _is_narrower(after, before, op):
        return "wider"
    if new > old and op == "all-gather" and _is_again(after, gathered):
        return "gathered-again"
    if not component.after:
        return "removed"
    if not before or not after:
        return "other-axes" if component.before else "xla"
    return "moved" if not old or not new else "xla"


def _payloads(collectives: Iterable[Collective], op: str) -> Counter[int]:
    """Return how often each payload is sent in one run."""
    counts: Counter[int] = Counter()
    for collective in collectives:
        if collective.op == op:
            counts[collective.payload_bytes or 0] += collective.executions or 0
    return counts


def _is_sum(before: Sequence[Collective], after: Sequence[Collective], op: str) -> bool:
    """Return whether the compiled program sends the same payloads less often, and no others."""
    old, new = _payloads(before, op), _payloads(after, op)
    return bool(new) and new.keys() <= old.keys() and all(new[size] <= old[size] for size in new)


def _is_narrower(before: Sequence[Collective], after: Sequence[Collective], op: str) -> bool:
    """Return whether the compiled program sends each payload, or all together, divided by 2 or 4."""
    old, new = (sorted(_payloads(collectives, op).elements()) for collectives in (before, after))
    if len(old) != len(new):  # combined, too: fewer are removed collectives
        return len(new) > len(old) and sum(new) in (sum(old) / 2, sum(old) / 4)
    return all(one in (other, other / 2, other / 4) for one, other in zip(new, old, strict=True))


def _left_a_loop(before: Sequence[Collective], after: Sequence[Collective], op: str) -> bool:
    """Return whether the same payload is sent by fewer executions of an instruction outside of loops."""
    old, new = (
        [(one.payload_bytes, one.executions or 0) for one in side if one.op == op] for side in (before, after)
    )
    many, once = {size for size, times in old if times > 1}, {size for size, times in new if times == 1}
    return bool(many & once) and all(times <= 1 for _, times in new)


def _is_again(after: Sequence[Collective], gathered: set[str]) -> bool:
    """Return whether the backward pass gathers an array that is gathered before, too."""
    return any(
        collective.op == "all-gather"
        and any(operation.phase == "backward" for operation in parse_op_name(collective.op_name))
        and bool(gathered & set(collective.arrays or ()))
        for collective in after
    )


def _sent_by_kind(collectives: Iterable[Collective]) -> Counter[tuple[Axes, str]]:
    sent: Counter[tuple[Axes, str]] = Counter()
    for collective in collectives:
        sent[collective.mesh_axes, collective.op] += (collective.executions or 0) * (
            collective.wire_bytes_per_device or 0
        )
    return sent


def _components(before: Sequence[Collective], after: Sequence[Collective]) -> Iterator[_Component]:
    """Yield the collectives of connected operations.

    Two operations are connected if one instruction serves both. An operation is its phase, module and
    primitive; without a name it is the source line.
    """
    parent: dict[OpName | str | None, OpName | str | None] = {}

    def root(key: OpName | str | None) -> OpName | str | None:
        while parent.setdefault(key, key) != key:
            key = parent[key]
        return key

    keys = {}
    for collective in (*before, *after):
        own: Sequence[OpName | str | None] = (
            parse_op_name(collective.op_name) if collective.op_name else (collective.source,)
        )
        keys[id(collective)] = own[0]
        for other in own[1:]:
            parent[root(other)] = root(own[0])
    grouped: dict[OpName | str | None, _Component] = {}
    for number, collectives in enumerate((before, after)):
        for collective in collectives:
            component = grouped.setdefault(root(keys[id(collective)]), _Component([], []))
            (component.before if number == 0 else component.after).append(collective)
    yield from grouped.values()
