"""What JAX refuses, and what costs memory, traffic or work inside of programs, with source lines."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from inspector.audit.context import LEAST_SHARE, AuditContext, FindingFields, finding
from inspector.hlo.op_name import parse_op_name
from inspector.hlo.opcodes import MOVES, TABLE
from inspector.machines.hardware import si_text
from inspector.prediction import memory
from inspector.prediction.memory import Breakdown
from inspector.prediction.step_program import initializers
from inspector.records.snapshot import Array, Collective, Finding, Program, RepeatedWork
from inspector.sharding.sharding_text import refusal_text
from inspector.sharding.traffic import inputs_of, lines_text, parts_of, wire_bytes_of_run
from inspector.text.formatting import and_text, bytes_text, counted
from inspector.text.program_names import subject, title

DONATION_UNUSED, NOT_DONATED = "donation-not-used", "arguments-not-donated"

_MOST_DONATIONS = 5


def donation_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one warning per large donated argument whose memory no output uses, and one for the others."""
    for program in context.programs:
        who = subject(program.name)
        unused = program.donation.unused if program.donation is not None else ()
        ranked = sorted(unused, key=lambda donation: -(donation.bytes or 0))
        for donation in ranked[:_MOST_DONATIONS]:
            message = (
                f"{who} writes no output over the donated argument {donation.path}: {donation.reason}. "
                "Its memory is not reused."
            )
            yield finding("warning", DONATION_UNUSED, message, saved=donation.bytes, path=donation.path)
        if rest := ranked[_MOST_DONATIONS:]:
            message = f"{who} writes no output over {counted(len(rest), 'more donated argument')}."
            yield finding("warning", DONATION_UNUSED, message, saved=sum(one.bytes or 0 for one in rest))


def not_donated_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note about the program with the most bytes of outputs that could be written over arguments."""
    programs = memory.breakdowns(context.snapshot) if knows_donation(context) else ()
    largest = max(programs, key=lambda program: program.not_donated or 0, default=None)
    if largest is not None and (largest.not_donated or 0) >= context.least:
        remedy = "Donate arguments that nothing else uses: JAX deletes them (`donate_argnums`)."
        message = f"{subject(largest.program)}{not_donated_text(largest)}"
        yield finding("note", NOT_DONATED, message, saved=largest.not_donated, remedy=remedy)


def knows_donation(context: AuditContext) -> bool:
    """Return whether it is known what donation saves. That of a layout is a change, with its new peak."""
    known = (program.not_donated for program in memory.breakdowns(context.snapshot))
    return context.snapshot.layout is None and any(size is not None for size in known)


def not_donated_text(program: Breakdown) -> str:
    """Return what the outputs of a program can be written over, without its name."""
    return (
        f" has {bytes_text(program.not_donated)} of outputs on each device that could be written "
        "over arguments of the same size, if these are donated."
    )


REFUSED = "sharding-type-error"


def refused_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a finding for each program that JAX refuses."""
    for program in context.programs:
        if program.sharding_error is not None:
            yield Finding("error", REFUSED, f"{title(program.name)}: {refusal_text(program.sharding_error)}")


UNEVEN_RESULT = "uneven-result-gathered"
CONSTANT = "large-constant"
CACHE = "cache-moved"
REPEATED_WORK = "repeated-work"
WHOLE_STACK, WHOLE_TABLE = "stack-gathered", "table-gathered"
KEPT = "gathered-value-kept"

_MOST_OF_A_PROGRAM = 5
_LEAST_CACHE = 2**20  # bytes of a cache whose size is unknown
# Of the matrix products of all devices. Below it, uneven parts and padding explain the difference.
_LEAST_REPEATED = 1.1
_LEAST_SEARCHED = 1e6  # comparisons of a top-k or a sort on one device
_LEAST_REPEATED_SHARE = 0.1  # of all FLOPs
_LEAST_FLOPS = 1_000  # a device computes as much in 1% of the time in which it starts an operation
_MOST_REPEATED = 2  # kinds in a sentence
# A stack of fewer layers can be one array of another kind, and gathering it at once costs little.
_LEAST_LAYERS = 4
_MOST_PATHS = 3  # in a sentence
_LOOKUPS = frozenset({"gather", "take"})  # primitives that read some rows of a table


def uneven_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a warning per result that is replicated although the program computes it in parts."""
    for program in context.programs:
        who = subject(program.name)
        for gather in (program.uneven_gathers or ())[:_MOST_OF_A_PROGRAM]:
            message = (
                f"{who} computes {gather.path} in {gather.parts} parts over dimension {gather.dimension}, "
                f"but every device gets all of it ({bytes_text(gather.bytes)} with padding): "
                f"{gather.size:,} is not divisible by {gather.parts}, and JAX shards no result unevenly. "
                f"{gather.collective} gathers it{_at(gather.source)}."
            )
            remedy = f"Pad the dimension to a multiple of {gather.parts}."
            yield finding(
                "warning", UNEVEN_RESULT, message, remedy=remedy, path=gather.path, source=gather.source,
                saved=gather.bytes and gather.bytes - gather.bytes // gather.parts,
            )  # fmt: skip


def constant_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a warning per constant that is worth it: a live array of its type is closed over, for example."""
    for program in context.programs:
        who = subject(program.name)
        large = [constant for constant in program.large_constants or () if constant.bytes >= context.least]
        for constant in large[:_MOST_OF_A_PROGRAM]:
            message = (
                f"{who} contains the constant {constant.variable or constant.name}, {constant.shape}: "
                f"{bytes_text(constant.bytes)} on each device{_at(constant.source)}. An array that a jitted "
                "function uses without having it as argument becomes a constant."
            )
            remedy, source = "Pass the array as an argument.", constant.source
            yield finding("warning", CONSTANT, message, saved=constant.bytes, remedy=remedy, source=source)
        if len(large) > _MOST_OF_A_PROGRAM:
            rest = large[_MOST_OF_A_PROGRAM:]
            message = f"{who} contains {counted(len(rest), 'more large constant')}."
            yield finding("warning", CONSTANT, message, saved=sum(constant.bytes for constant in rest))


def cache_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a warning per collective that moves a whole cache in each run."""
    for program in context.programs:
        who = subject(program.name)
        caches = _caches(program)
        for collective in itertools.chain.from_iterable(map(parts_of, program.collectives or ())):
            moved = [path for path in collective.arrays or () if path in caches]
            sent = wire_bytes_of_run(collective)
            # Tokens that are written into a cache move with it, and are small.
            arrays = (context.by_path.get(path) for path in moved)
            least = min(((array and array.bytes_per_device) or _LEAST_CACHE for array in arrays), default=0)
            if not moved or not sent or (collective.payload_bytes or 0) < least:
                continue
            paths = and_text(moved)
            message = (
                f"{who} sends {bytes_text(sent)} from each device in each run, because {collective.name}, "
                f"{collective.op} of {bytes_text(collective.payload_bytes)}, moves the cache "
                f"{paths}{_at(lines_text(collective, ''))}. "
                "The sharding in which the cache is used differs from the one in which it is kept."
            )
            facts: FindingFields = {
                "collective": collective.name,
                "source": collective.source,
                "wire_bytes": sent,
            }
            yield finding("warning", CACHE, message, **facts)


def whole_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a warning per all-gather of all layers of a stack at once, a note per one of a whole table."""
    for program in context.programs:
        who = subject(program.name)
        loops = _trip_counts(program)
        for collective, array in _whole_weights(program, context):
            layers = (array.shape or (0,))[0]
            facts: FindingFields = {
                "path": array.path,
                "collective": collective.name,
                "source": collective.source,
            }
            gather = (
                f"{collective.name}, {bytes_text(collective.payload_bytes)} on each "
                f"device{_at(lines_text(collective, ''))}"
            )
            if layers >= _LEAST_LAYERS and layers in loops and len(array.shape or ()) > 1:
                message = (
                    f"{who} gathers all {layers} layers of {array.path} at once ({gather}), but its "
                    "loop uses one layer in each iteration."
                )
                whole = collective.payload_bytes or 0
                saved = whole - whole // layers
                yield finding("warning", WHOLE_STACK, message, saved=saved, **facts)
            elif {name.primitive for name in parse_op_name(collective.op_name)} & _LOOKUPS:
                table = f"the whole table {array.path} ({gather})"
                message = f"{who} gathers {table} before it looks up rows."
                yield finding("note", WHOLE_TABLE, message, **facts)


def kept_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note per program that keeps gathered values from its forward to its backward pass."""
    for program in context.programs:
        who = subject(program.name)
        kept = program.kept_gathers or ()
        whole = sum(gather.bytes for gather in kept)
        if whole < context.least:
            continue
        largest = kept[0]
        paths = list(dict.fromkeys(path for gather in kept for path in gather.arrays))
        more = f", and {counted(len(kept) - 1, 'other')}" if len(kept) > 1 else ""
        is_named = 0 < len(paths) <= _MOST_PATHS and all(gather.arrays for gather in kept)
        of = f" of {and_text(paths)}" if is_named else ""
        message = (
            f"{who} keeps {bytes_text(whole)} of gathered values{of} on each device, from its "
            f"forward pass to its backward pass: the result of {largest.collective}{_at(largest.source)}, "
            f"{bytes_text(largest.bytes)}{more}."
        )
        yield finding("note", KEPT, message, collective=largest.collective, source=largest.source)


def _whole_weights(program: Program, context: AuditContext) -> Iterator[tuple[Collective, Array]]:
    """Yield each all-gather of the whole of a parameter that is worth it, with the parameter.

    An array gathered after an update, as in ZeRO-1, is a result and no parameter of the program.
    A program that computes in bfloat16 gathers half of the bytes of float32 parameters.
    """
    for collective in itertools.chain.from_iterable(map(parts_of, program.collectives or ())):
        for path in inputs_of(collective) if collective.op == "all-gather" else ():
            array = context.by_path.get(path)
            if array is None or array.group != "params" or not array.shape:
                continue
            if (array.bytes or 0) >= context.least and 2 * (collective.payload_bytes or 0) >= (
                array.bytes or 0
            ):
                yield collective, array


def has_weights(context: AuditContext) -> bool:
    """Return whether the collectives of a program are connected with the parameters that they move."""
    return any(
        collective.arrays is not None
        for program in context.snapshot.programs
        for collective in program.collectives or ()
    ) and any(array.group == "params" for array in context.snapshot.arrays)


def _trip_counts(program: Program) -> set[int]:
    """Return the trip counts of the loops of a compiled program."""
    computations = program.schedule.computations if program.schedule else ()
    return {
        operation.times
        for computation in computations
        for operation in computation.operations
        if operation.opcode == "while" and operation.times is not None
    }


def work_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note per set of mesh axes along which programs repeat work."""
    notes: dict[object, list[tuple[str, Finding]]] = defaultdict(list)
    for program, note in _work_notes(context) if context.snapshot.layout is None else ():
        notes[program.mesh, note.axes].append((title(program.name), note))
    for (_, note), *others in notes.values():
        more = f" Work of {and_text([name for name, _ in others])} is repeated, too." if others else ""
        yield replace(note, message=note.message + more)


def _work_notes(context: AuditContext) -> Iterator[tuple[Program, Finding]]:
    """Yield a note per program of which devices compute the same, that with the most FLOPs first."""
    no_steps = initializers(context.snapshot)
    programs = [program for program in context.programs if program.work and program not in no_steps]
    flops_of = {id(program): program.work.flops_once or 0.0 for program in programs if program.work}
    least = max(LEAST_SHARE * max(flops_of.values(), default=0.0), _LEAST_FLOPS)
    for program in sorted(programs, key=lambda program: -flops_of[id(program)]):
        who, flops = title(program.name), flops_of[id(program)]
        share = repeated_share(program)
        repeated = (program.work.repeated if program.work else None) or ()
        if share is not None and share >= _LEAST_REPEATED_SHARE and share * flops >= least:
            assert program.work is not None
            most = [one for one in repeated if one.flops >= LEAST_SHARE * repeated[0].flops]
            kinds = " ".join(map(_repeated_text, most[:_MOST_REPEATED]))
            # A lower bound is not rounded up.
            part_of_all = f"at least {math.floor(share * 100)}% of the FLOPs of all devices"
            message = f"{who}: {part_of_all} are repeated. {kinds}"
            if program.work.not_counted:
                message += f" Not counted: {and_text(program.work.not_counted)}, whose FLOPs are unknown."
            yield program, finding(
                "note", REPEATED_WORK, message, ratio=1 / (1 - share),
                axes=repeated[0].axes or (), source=repeated[0].source,
            )  # fmt: skip
            continue
        ratio = program.repeated_on(context.mesh)
        if ratio is not None and ratio >= _LEAST_REPEATED and (1 - 1 / ratio) * flops >= least:
            message = (
                f"{who}: the matrix products of all devices have {ratio:.2f} times the FLOPs of the program."
            )
            yield program, finding("note", REPEATED_WORK, message, ratio=ratio)
            continue
        searches = [part for part in repeated if part.operation == "search" and part.flops >= _LEAST_SEARCHED]
        if searches:
            message = f"{who}: {' '.join(map(_repeated_text, searches))}"
            axes, source = searches[0].axes or (), searches[0].source
            yield program, finding("note", REPEATED_WORK, message, axes=axes, source=source)


def _repeated_text(part: RepeatedWork) -> str:
    along = f" along {and_text([f'`{axis}`' for axis in part.axes])}" if part.axes else ""
    most = "" if part.operation == "several" else f", most of it in {_operation(part)}{_at(part.source)}"
    flops = si_text(part.flops, "FLOP")
    return f"{part.devices} devices{along} compute the same, at least {flops} each{most}."


def _operation(part: RepeatedWork) -> str:
    primitive = parse_op_name(part.op_name)[0].primitive or part.operation
    # A product can have the name of a merged transpose; mul and integer_pow are one opcode, and it counted.
    by_opcode = TABLE[primitive].does in MOVES or TABLE[part.operation].does == "elementwise"
    return f"`{part.operation if by_opcode else primitive}`"


def has_work(context: AuditContext) -> bool:
    """Return whether the work of a program is known before and after partitioning."""
    return any(
        program.repeated_on(context.mesh) is not None or repeated_share(program) is not None
        for program in context.snapshot.programs
    )


def has_caches(context: AuditContext) -> bool:
    """Return whether a program with known collectives has a cache."""
    return any(program.collectives is not None and _caches(program) for program in context.snapshot.programs)


def repeated_share(program: Program) -> float | None:
    """Return the share of all FLOPs that devices compute as others do, at least; None if unknown."""
    work = program.work
    if work is None or work.repeated is None or not work.flops_once:
        return None
    return sum(part.flops * (1 - 1 / part.devices) for part in work.repeated) / work.flops_once


def _caches(program: Program) -> set[str]:
    return {sharding.path for sharding in program.shardings if sharding.use == "cache"}


def _at(source: str | None) -> str:
    return f" at {source}" if source else ""
