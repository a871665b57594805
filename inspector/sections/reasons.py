"""Why a collective exists, as one sentence in terms of the program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import cachetools

from inspector.compiled.collective_roles import makes_results, moves_gradients
from inspector.compiled.matched_conflicts import PartKey, numbered_parts, parts_of_conflict
from inspector.compiled.op_name import parse_op_name
from inspector.compiled.source_calls import PRIMITIVES
from inspector.core.collectives import REDUCTIONS
from inspector.core.folding import NUMBER
from inspector.core.formatting import and_text
from inspector.core.sharding_text import spec_text
from inspector.core.snapshot import Collective, CollectivePart, Conflict, ConflictSide, Program, Spec
from inspector.core.traffic import axes_text, outputs_of, wire_bytes_of_run

_PRODUCTS = frozenset({"dot", "dot_general", "conv_general_dilated", "ragged_dot", "einsum"})
_READS = frozenset({"gather", "dynamic_slice", "take", "dynamic-slice", "_take"})
_UPDATES = frozenset({"scatter", "scatter-add", "scatter_add", "dynamic_update_slice"})
# The result of each reduction other than a sum.
_OTHERS = {
    "reduce_max": "the largest value",
    "reduce_min": "the smallest value",
    "argmax": "the place of the largest value",
    "argmin": "the place of the smallest value",
    "reduce_and": "whether all are true",
    "reduce_or": "whether one is true",
    "reduce_prod": "the product",
}


@dataclass(frozen=True)
class Shared:
    """Collectives of one kind that are there for one reason, such as those of all layers.

    Attributes:
      reason: a sentence, None if it is unknown.
      sent: bytes that leave one device in one run; None if they are unknown.
    """

    collectives: tuple[Collective, ...]
    reason: str | None
    sent: int | None


_Part = tuple[str, str, tuple[CollectivePart, ...] | None]


# Table and list of one redraw. The rows keep their program, so no other program has the same id.
@cachetools.cached(cachetools.LRUCache(8), id, Lock())
def _shared(program: Program) -> tuple[Program, list[Shared], dict[_Part, str | None]]:
    conflicts = _conflicts(program)
    alike: dict[tuple[str, str, str | None], list[Collective]] = defaultdict(list)
    specs = _specs(program)
    resolved: dict[int, Conflict | None] = {}
    for collective in program.collectives or ():
        for key, part in numbered_parts(collective):
            resolved[id(part)] = conflicts.get(key)
            unnamed = _reason(part, conflicts.get(key), (), specs)
            alike[part.op, axes_text(part), unnamed].append(part)
    rows = []
    for members in alike.values():
        # If some move values that are no arrays, the names of the others are not those of all.
        named = members if all(member.arrays for member in members) else ()
        arrays = _patterns(path for member in named for path in member.arrays or ())
        sentence = _reason(members[0], resolved[id(members[0])], arrays, specs)
        rows.append(Shared(tuple(members), sentence, wire_bytes_of_run(*members)))
    of_parts = {
        (part.computation, part.name, part.parts): row.reason for row in rows for part in row.collectives
    }
    return program, sorted(rows, key=lambda row: row.sent or 0, reverse=True), of_parts


def shared(program: Program) -> list[Shared]:
    """Return the collectives of a program by kind, mesh axes and reason, most bytes first."""
    return _shared(program)[1]


def of_part(program: Program, part: Collective) -> str | None:
    """Return the reason that a collective, or a part of a combined one, has in `shared`."""
    return _shared(program)[2].get((part.computation, part.name, part.parts))


def is_of_product(collective: Collective) -> bool:
    """Return whether a collective serves a matrix product or a convolution."""
    return parse_op_name(collective.op_name)[0].primitive in _PRODUCTS


def _conflicts(program: Program) -> dict[PartKey, Conflict]:
    """Return the first conflict that each collective, or part of a combined one, resolves."""
    conflicts: dict[PartKey, Conflict] = {}
    for conflict in program.conflicts or ():
        for key in parts_of_conflict(conflict):
            conflicts.setdefault(key, conflict)
    return conflicts


def _patterns(paths: Iterable[str]) -> list[str]:
    """Return the paths, with `*` for the numbers in which they differ, as those of layers do."""
    alike: dict[tuple[str, ...], list[list[str]]] = defaultdict(list)
    for path in dict.fromkeys(paths):
        parts = NUMBER.split(path)
        alike[tuple(parts[::2])].append(parts)
    return [
        "".join(texts[0] if len({*texts}) == 1 else "*" for texts in zip(*same, strict=True))
        for same in alike.values()
    ]


def of_parts(program: Program, collective: Collective) -> list[tuple[str | None, int | None]]:
    """Return each reason of a collective with the bytes of its parts; one reason if it is not combined.

    The bytes are those of the payload of one execution; None if they are unknown.
    """
    conflicts, specs = _conflicts(program), _specs(program)
    sent: dict[str | None, int | None] = {}
    for key, part in numbered_parts(collective):
        why, size = _reason(part, conflicts.get(key), part.arrays or (), specs), part.payload_bytes
        before = sent.get(why, 0)
        sent[why] = None if before is None or size is None else before + size
    return sorted(sent.items(), key=lambda row: -(row[1] or 0))


def reason(program: Program, collective: Collective) -> str | None:
    """Return why a collective is there; None if its operation is unknown.

    A matrix product whose operands are sharded over the dimension that it sums is followed by an all-reduce,
    and an operand that an operation uses in another sharding is gathered or moved.
    """
    parts = list(numbered_parts(collective))
    # That of a combined collective is the reason of its largest part.
    key, part = max(parts, key=lambda pair: pair[1].payload_bytes or 0)
    resharded = _conflicts(program).get(key)
    return _reason(part, resharded, part.arrays or (), _specs(program))


def _specs(program: Program) -> dict[str, Spec | None]:
    """Return the PartitionSpec of each input and output by its path."""
    return {sharding.path: sharding.compiled for sharding in program.shardings}


def _reason(
    collective: Collective,
    resharded: Conflict | None,
    arrays: Sequence[str],
    specs: Mapping[str, Spec | None],
) -> str | None:
    """Return why a collective is there.

    Args:
      arrays: the paths, or patterns of paths, by which the sentence names what it moves.
      specs: the PartitionSpecs of the inputs and outputs of the program.
    """
    if collective.mesh_axes is None and collective.axis_parts is None:
        return None
    # Parts of mesh axes are not in the text of a spec.
    if resharded is not None and any(
        spec_text(side.spec) != spec_text(side.used) for side in resharded.sides
    ):
        return _of_conflict(resharded, collective, arrays, specs)
    primitive = parse_op_name(collective.op_name)[0].primitive
    if not primitive:
        return _of_results(collective, arrays, specs)
    axes = axes_text(collective)
    if primitive in PRIMITIVES:
        return _of_request(collective, primitive, axes)
    if collective.op in REDUCTIONS and collective.use in ("condition", "loop-end"):
        return (
            f"The condition of a loop depends on values that are sharded over {axes}: the {collective.op} "
            "combines them before each iteration, so that all devices run equally many."
        )
    if collective.op in REDUCTIONS:
        return _of_sum(primitive, axes, collective.op)
    if makes_results(collective):
        gathers = collective.op == "all-gather"
        ends = "needed whole" if gathers else "needed in another sharding"
        if moves_gradients(collective):
            named = f"The gradient of {_named(arrays)}" if arrays else "A gradient"
        else:
            named = f"What becomes {_named(arrays)}" if arrays else "A result"
        verb = "collects its shards" if gathers else "moves its shards"
        return (
            f"{named} is computed in shards, and {ends} ({primitive}): the {collective.op} {verb} along "
            f"{axes}."
        )
    # These need not be its shards: the program can slice an array that is not cut along these axes.
    what = f"parts of {_named(arrays)}" if arrays else "shards"
    return f"{primitive} needs operands in another sharding: the {collective.op} moves {what} along {axes}."


def _of_results(
    collective: Collective, arrays: Sequence[str], specs: Mapping[str, Spec | None]
) -> str | None:
    """Return why a nameless all-gather makes results, as parameters in ZeRO-1; None if it is unknown."""
    results, axes = outputs_of(collective), set(collective.axis_names)
    known = [spec for path in results if (spec := specs.get(path)) is not None]
    sharded = {axis for spec in known for entry in spec for axis in entry or ()}
    if collective.op != "all-gather" or not results or len(known) < len(results) or axes & sharded:
        return None
    named, over = _named(arrays) if arrays else "A result", axes_text(collective)
    verb, pronoun = ("are", "them") if len(arrays) > 1 else ("is", "it")
    return (
        f"{named} {verb} computed in shards along {over}, and returned replicated along {over}: the "
        f"all-gather collects {pronoun}."
    )


def _of_request(collective: Collective, primitive: str, axes: str) -> str:
    """Return who calls a collective of JAX: the code, or autodiff for an operation of the code."""
    call, backward = collective.call, parse_op_name(collective.op_name)[0].phase == "backward"
    if collective.requested_by == "autodiff" and call:
        return f"Autodiff adds {primitive} over {axes}: it is the transpose of the code's {call}."
    if collective.requested_by == "autodiff":
        return (
            f"Autodiff adds {primitive} over {axes}; the code has none here. The forward pass uses a "
            f"value that is equal on the devices along {axes}, so the {collective.op} adds the gradients of "
            "all of them."
        )
    if backward and not call:
        return (
            f"The backward pass runs {primitive} over {axes}: autodiff adds it, or a derivative rule of the "
            "code calls it."
        )
    if backward:
        return f"The backward pass runs {primitive} over {axes}, because the code calls {call} here."
    if collective.requested_by is None and "/" not in (collective.op_name or ""):
        return f"{primitive} runs over {axes}: the code calls it here, or autodiff adds it."
    return f"The code calls {call or primitive} over {axes}."


def _of_sum(primitive: str, axes: str, op: str) -> str:
    adds = "adds them" if op == "all-reduce" else "adds them, and each device keeps its part"
    if primitive in _PRODUCTS:
        return (
            f"{primitive} sums over a dimension that is sharded over {axes}: each device has a partial sum, "
            f"and the {op} {adds}."
        )
    if primitive in _READS:
        return (
            f"{primitive} reads along a dimension that is sharded over {axes}: only one device has each "
            f"element, the others have zeros, and the {op} {adds}."
        )
    if primitive in _UPDATES:
        return (
            f"{primitive} gets updates that are sharded over {axes}: each device has a sum of some of them, "
            f"and the {op} {adds}."
        )
    if primitive in _OTHERS:
        return (
            f"{primitive} reduces a dimension that is sharded over {axes}: each device has "
            f"{_OTHERS[primitive]} of its part, and the {op} combines them."
        )
    return (
        f"{primitive} reduces a dimension that is sharded over {axes}: each device has the result of its "
        f"part, and the {op} {adds if 'sum' in primitive else 'combines them'}."
    )


def _of_conflict(
    conflict: Conflict,
    collective: Collective,
    arrays: Sequence[str],
    specs: Mapping[str, Spec | None],
) -> str:
    side = next((side for side in conflict.sides if side.spec != side.used), conflict.sides[0])
    before, after = spec_text(side.spec), spec_text(side.used)
    if side.value.startswith("result"):
        before, after = after, before
    moves = (
        f"the {collective.op} over {axes_text(collective)} "
        f"{'collects' if collective.op == 'all-gather' else 'moves'}"
    )
    if conflict.operation == "sharding_constraint":
        where = f" ({conflict.source})" if conflict.source else ""
        asked = f"a sharding constraint{where} asks for {after}"
        return f"The value is sharded as {before}, and {asked}: {moves} it."
    whole = all(specs.get(path) == side.spec for path in collective.arrays or ())
    name, several = (_named(arrays), len(arrays) > 1) if arrays else (_side_name(side), False)
    if arrays and not whole:
        # Such as the part of one layer, or another sharding of the array inside of the program.
        name = f"{'Values' if several else 'A value'} from {name}"
    verb, pronoun = ("are", "them") if several else ("is", "it")
    return (
        f"{name} {verb} sharded as {before}, and {conflict.operation} uses {pronoun} as {after}: "
        f"{moves} {pronoun}."
    )


def _side_name(side: ConflictSide) -> str:
    kind, _, number = side.value.partition(" ")
    return f"{kind.capitalize()} {number}"


def _named(arrays: Sequence[str]) -> str:
    more = len(arrays) - 2
    return and_text([*arrays[:2], *([f"{more} more"] if more > 0 else [])])
