"""Why a collective exists, as one sentence in terms of the program."""

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import cachetools

from inspector.compiled.causes import CONSTRAINT, omitted_axes, replicating_constraint
from inspector.compiled.collective_roles import makes_results
from inspector.compiled.matched_origins import PartKey, numbered_parts, parts_of_conflict
from inspector.hlo.op_name import BACKWARD, PRODUCTS, READS, RETURN, UPDATES, parse_op_name, phases_of
from inspector.hlo.source_calls import PRIMITIVES, functions_of
from inspector.records.collectives import OPERATIONS, REDUCTIONS, CollectiveRules
from inspector.records.snapshot import Collective, CollectivePart, Conflict, Program
from inspector.sharding.folding import NUMBER
from inspector.sharding.sharding_text import spec_text
from inspector.sharding.traffic import (
    axes_text,
    inputs_of,
    least_bytes,
    outputs_of,
    sent_of_busiest,
    wire_bytes_of_run,
)
from inspector.text.formatting import and_text

GATHERED = "gathered (as all-reduce, twice the bytes)"
# What asks for a sharding, by its name in JAX.
_CONSTRAINTS = {"sharding_constraint": "constraint", "reshard": "reshard"}
# An operation of a jitted function that the line calls, as jnp.roll calls one of JAX. The line lacks it.
_INSIDE = re.compile(r"/p?jit\([^/]*\)/[^/]+\Z")
_SUMS = frozenset({"psum", "psum_invariant"})
# What each device has of its part, by the reduction.
_REDUCED = {
    "reduce_sum": "the sum",
    "reduce_max": "the largest value",
    "reduce_min": "the smallest value",
    "reduce_and": "whether all are true",
    "reduce_or": "whether one is true",
    "reduce_prod": "the product",
}


@dataclass(frozen=True)
class Shared:
    """Collectives of one kind that are there for one reason, such as those of all layers.

    Attributes:
      reason: a sentence, None if it is unknown.
      sent: bytes that leave the device that sends most in all rows, in one run; None if they are unknown.
      most: bytes of the device that sends most of this row.
      least: `sent`, or what it is at least.
    """

    collectives: tuple[Collective, ...]
    reason: str | None
    sent: int | None
    most: int | None
    least: int


_Part = tuple[str, str, tuple[CollectivePart, ...] | None]


# Table and list of one redraw. The rows keep their program, so no other program has the same id.
@cachetools.cached(cachetools.LRUCache(8), id, Lock())
def _shared(program: Program) -> tuple[Program, list[Shared], dict[_Part, str | None]]:
    conflicts = _conflicts(program)
    alike: dict[tuple[str, str, str | None, bool], list[Collective]] = defaultdict(list)
    resolved: dict[int, Conflict | None] = {}
    for collective in program.collectives or ():
        for key, part in numbered_parts(collective):
            resolved[id(part)] = conflicts.get(key)
            unnamed = _reason(program, part, conflicts.get(key), False)
            alike[part.op, axes_text(part), unnamed, makes_results(part)].append(part)
    # What makes results and what does not can have one sentence, without the names of arrays.
    merged: dict[tuple[str, str, str | None], list[Collective]] = defaultdict(list)
    for (op, axes, *_), members in alike.items():
        sentence = _reason(program, members[0], resolved[id(members[0])], True, members)
        merged[op, axes, sentence] += members
    rows, busiest = [], sent_of_busiest([*merged.values()])
    for ((*_, sentence), members), sent in zip(merged.items(), busiest, strict=True):
        least = sent if sent is not None else least_bytes(*members)
        rows.append(Shared(tuple(members), sentence, sent, wire_bytes_of_run(*members), least))
    of_parts = {
        (part.computation, part.name, part.parts): row.reason for row in rows for part in row.collectives
    }
    return program, sorted(rows, key=lambda row: (row.least, row.most or 0), reverse=True), of_parts


def shared(program: Program) -> list[Shared]:
    """Return the collectives of a program by kind, mesh axes and reason, most bytes first."""
    return _shared(program)[1]


def of_part(program: Program, part: Collective) -> str | None:
    """Return the reason that a collective, or a part of a combined one, has in `shared`."""
    return _shared(program)[2].get((part.computation, part.name, part.parts))


def is_of_product(collective: Collective) -> bool:
    """Return whether a collective serves a matrix product or a convolution."""
    return parse_op_name(collective.op_name)[0].primitive in PRODUCTS


def is_gather(collective: Collective) -> bool:
    """Return whether an all-reduce adds parts of an argument to zeros, so that each device has all of it."""
    sent = any(part.inputs for part in collective.parts or ())
    return collective.op == "all-reduce" and sent and is_of_product(collective)


def _conflicts(program: Program) -> dict[PartKey, Conflict]:
    """Return the conflict that each collective, or part of a combined one, resolves, if it is one alone."""
    conflicts: dict[PartKey, Conflict | None] = {}
    for conflict in program.conflicts or ():
        for key in parts_of_conflict(conflict):
            conflicts[key] = conflict if key not in conflicts else None
    return {key: conflict for key, conflict in conflicts.items() if conflict is not None}


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


def of_parts(program: Program, collective: Collective) -> list[tuple[str | None, int | None, str | None]]:
    """Return each reason of a collective with the bytes and the line of its parts; one if not combined.

    The bytes are those of the payload of one execution. Each is None if it is unknown.
    """
    conflicts = _conflicts(program)
    sent: dict[tuple[str | None, str | None], int | None] = {}
    for key, part in numbered_parts(collective):
        why, size = (_reason(program, part, conflicts.get(key)), part.source), part.payload_bytes
        before = sent.get(why, 0)
        sent[why] = None if before is None or size is None else before + size
    rows = [(why, size, line) for (why, line), size in sent.items()]
    return sorted(rows, key=lambda row: -(row[1] or 0))


class _Case(NamedTuple):
    """What conditions and sentences need of one collective, or of several for the same reason.

    Attributes:
      primitive: the operation that is proved to need it, or the collective of JAX that it is; "" if unknown.
      constraint: the constraint or reshard of the code that asks for it, with its line, or out_shardings; ""
        if none is known.
      called: the function of JAX in the code that it comes from; "" if unknown.
      by: who runs it: `code`, `autodiff` or `either`; "" for one of the partitioner.
      reduces: whether it combines values.
      gathers: whether it sends arguments as they are. Then a sum gathers parts, and others have zeros.
      ends_loop: whether it runs in the condition of a loop.
      stages: whether it is the permute of a pipeline.
      does: the effect of its operation on these values, in words.
      combines: the same for a reduction whose parts the sentence names before.
      change: the sharding before and after it; "" if unknown.
    """

    op: str
    axes: str
    primitive: str
    called: str
    by: str
    reduces: bool
    gathers: bool
    ends_loop: bool
    stages: bool
    constraint: str
    does: str
    combines: str
    change: str

    @property
    def part(self) -> str:
        return _REDUCED.get(self.primitive, "")


_MOVES = "the {case.op} over {case.axes} {case.does}{case.change}."
# Key, condition and template of each sentence. The first whose condition holds is the reason.
SENTENCES: Mapping[str, tuple[Callable[[_Case], object], str]] = {
    "called": (lambda case: case.by == "code", "The code calls {case.called} over {case.axes}."),
    "transposed": (
        lambda case: case.by == "autodiff" and case.called,
        "Autodiff adds {case.primitive} over {case.axes}: it is the transpose of the code's {case.called}.",
    ),
    "cotangents": (
        lambda case: case.by == "autodiff" and case.primitive in _SUMS,
        "Autodiff adds {case.primitive} over {case.axes}; the code has none here. The forward pass uses a "
        "value that is equal on the devices along {case.axes}, so the gradients of all of them are added.",
    ),
    "either": (
        lambda case: case.by,
        "{case.primitive} runs over {case.axes}: the code calls it, or autodiff adds it.",
    ),
    "condition": (
        lambda case: case.reduces and case.ends_loop,
        "The condition of a loop depends on values that are sharded over {case.axes}: the {case.op} combines "
        "them before each iteration, so that all devices run equally many.",
    ),
    "stages": (
        lambda case: case.stages,
        "The {case.op} over {case.axes} sends the results of each stage to the next one.",
    ),
    "constrained": (lambda case: case.constraint, "Because of {case.constraint}, " + _MOVES),
    "resharded": (lambda case: case.change and case.primitive, "For {case.primitive}, " + _MOVES),
    "products": (
        lambda case: case.reduces and case.primitive in PRODUCTS and not case.gathers,
        "{case.primitive} sums over a dimension that is sharded over {case.axes}: each device has a partial "
        "sum, and the {case.op} {case.combines}.",
    ),
    "reads": (
        lambda case: case.reduces and case.primitive in READS,
        "{case.primitive} reads along a dimension that is sharded over {case.axes}: only one device has each "
        "element, the others have zeros, and the {case.op} {case.combines}.",
    ),
    "updates": (
        lambda case: case.reduces and case.primitive in UPDATES,
        "{case.primitive} gets updates that are sharded over {case.axes}: each device has a sum of some of "
        "them, and the {case.op} {case.combines}.",
    ),
    "reduced": (
        lambda case: case.reduces and case.part,
        "{case.primitive} reduces a dimension that is sharded over {case.axes}: each device has {case.part} "
        "of its part, and the {case.op} {case.combines}.",
    ),
    "operation": (lambda case: case.primitive, "For {case.primitive}, " + _MOVES),
    "fact": (lambda case: True, "The" + _MOVES.removeprefix("the")),
}


def _reason(
    program: Program,
    collective: Collective,
    conflict: Conflict | None,
    named: bool = True,
    members: Sequence[Collective] = (),
) -> str | None:
    """Return why a collective is there, or else what it does to which arrays; None if neither is known.

    Args:
      conflict: the operation that needs it in another sharding; None if it is not known to be for one.
      named: whether the sentence names the arrays that it moves.
      members: the collectives that the sentence is for, if it is for several.
    """
    if collective.mesh_axes is None and collective.axis_parts is None:
        return None
    what = "values"
    # The names of what some of them move are not those of all.
    for paths, words in ((inputs_of, "parts of"), (outputs_of, "what becomes")):
        every = [paths(member) for member in (members or (collective,)) if named]
        if what == "values" and every and all(every):
            what = f"{words} {_named(_patterns(itertools.chain.from_iterable(every)))}"
    op, by = collective.op, ""
    named_after = parse_op_name(collective.op_name)[0].primitive
    returned = collective.operation == RETURN
    primitive = called = "" if returned else collective.operation or ""
    if conflict is not None:
        names = {conflict.operation, parse_op_name(conflict.op_name)[0].primitive}
        same = names & {primitive, named_after} - {""}
        # Another operation of the same line can be matched with it.
        conflict, primitive = (conflict, primitive or same.pop()) if same else (None, primitive)
        moved = {side.value for side in conflict.sides if side.spec != side.used} if conflict else set()
        if moved and all(value.startswith("result") for value in moved):
            primitive = ""  # what uses the result needs it
    if op not in REDUCTIONS and primitive == named_after and _INSIDE.search(collective.op_name or ""):
        primitive = ""
    change = _change(collective, conflict)
    constraint = "" if op in REDUCTIONS else _constraint(collective, conflict, named_after)
    if returned and not constraint and _are_fixed(program, outputs_of(collective)):
        constraint = "out_shardings of jit"
    if named_after in PRIMITIVES:
        primitive, change, constraint = named_after, "", ""
        called = collective.call or ""
        by = collective.requested_by or "either"
        if (
            by == "either"
            and "/" in (collective.op_name or "")
            and not phases_of(collective.op_name) & BACKWARD
        ):
            by = "code"
        if by == "code" and not collective.call:
            called = and_text(functions_of(named_after), "or")
    does = (OPERATIONS[op].does if op in OPERATIONS else CollectiveRules.does).format(what=what)
    if is_gather(collective):
        gathers = OPERATIONS["all-gather"].does.format(what=what)
        does = f"{gathers}, as a sum with zeros that sends twice the bytes"
    case = _Case(
        op,
        axes_text(collective),
        primitive=primitive,
        called=called,
        by=by,
        reduces=op in REDUCTIONS,
        gathers=any(part.inputs for part in collective.parts or ()),
        ends_loop=collective.use in ("condition", "loop-end"),
        stages=collective.name in {pipeline.collective for pipeline in program.pipelines or ()},
        constraint=constraint,
        does=does,
        combines="combines them" if op == "all-reduce" else "combines them, and each device keeps its part",
        change=change,
    )
    name = next(name for name, (holds, _) in SENTENCES.items() if holds(case))
    # Without arrays and a line, it says what the columns of a table have.
    known = name != "fact" or what != "values" or collective.source is not None
    return SENTENCES[name][1].format(case=case) if known else None


def _constraint(collective: Collective, conflict: Conflict | None, named_after: str) -> str:
    """Return the constraint or reshard of the code that asks for a collective; "" if none is known to.

    The result of an operation can be constrained so that an operand must be gathered.
    """
    if named_after in _CONSTRAINTS and collective.source is not None:
        return f"the {_CONSTRAINTS[named_after]} in {collective.source}"
    omitted = () if conflict is None else omitted_axes(conflict)
    places = {place for place, *_, axis in omitted if collective.mesh_axes == (axis,)}
    whole = None if conflict is None else replicating_constraint(conflict, collective.axis_names)
    if not places and whole is not None and whole.startswith(CONSTRAINT):
        places = {whole}
    return f"the {places.pop()}".replace(CONSTRAINT, "constraint in ") if len(places) == 1 else ""


def _are_fixed(program: Program, paths: Sequence[str]) -> bool:
    """Return whether the code gives the sharding of these results to jit; of all if none is known."""
    results = [array for array in program.shardings if array.role == "output"]
    own = [array for array in results if array.path in paths] or results
    return bool(own) and all(array.requested is not None for array in own)


def _change(collective: Collective, conflict: Conflict | None) -> str:
    """Return the sharding before and after a collective, if it moves one operand or result of an operation.

    An operation can have several that others move: it moves the one that gains or loses all its mesh axes.
    """
    constrained = conflict is not None and conflict.operation == "sharding_constraint"
    changes: set[tuple[str, ...]] = set()
    for side in conflict.sides if conflict is not None and (constrained or collective.mesh_axes) else ():
        specs = (side.spec, side.used) if side.value.startswith("operand") else (side.used, side.spec)
        before, after = ({axis for entry in spec for axis in entry or ()} for spec in specs)
        if constrained or before ^ after == {*collective.axis_names}:
            changes.add(tuple(map(spec_text, specs)))
    # Parts of mesh axes are not in the text of a spec.
    ((old, new),) = changes if len(changes) == 1 else [("", "")]
    return f": {old} becomes {new}" if old != new else ""


def _named(arrays: Sequence[str]) -> str:
    more = len(arrays) - 2
    return and_text([*arrays[:2], *([f"{more} more"] if more > 0 else [])])
