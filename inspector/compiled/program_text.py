"""Read collectives, work, schedule and memory of one compiled program from its HLO text, for a Snapshot."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from inspector import hlo
from inspector.compiled.argument_uses import NO_USES, ArgumentUses, argument_uses, gradient_results
from inspector.compiled.memory_use import memory_use
from inspector.compiled.residuals import kept_gathers, residuals
from inspector.hlo import entry, ragged_rows, remarkable
from inspector.hlo.analysis import Analysis, open_choices
from inspector.hlo.collective_uses import uses
from inspector.hlo.entry import EntryValue
from inspector.hlo.later_passes import with_ragged_products
from inspector.hlo.live_values import live_values
from inspector.hlo.moved_arrays import Moved, moved_arrays, paths_of
from inspector.hlo.pipelines import pipelines
from inspector.hlo.remarkable import fingerprint
from inspector.hlo.schedule import schedule
from inspector.records.snapshot import (
    ArgumentUse,
    Collective,
    CollectivePart,
    KeptGather,
    LargeConstant,
    Memory,
    MemoryUse,
    Mesh,
    OpenChoice,
    Pipeline,
    Program,
    ProgramArray,
    Residuals,
    Schedule,
    UnevenGather,
    Work,
)
from inspector.records.statistics import sum_known
from inspector.text.errors import InvalidInput

# Inputs and outputs of programs that are not arrays of a Snapshot.
_NOT_ARRAYS = frozenset({"key", "loss"})


@dataclass(frozen=True)
class ProgramFacts:
    """Facts from a program's text.

    All are None if there is no text or it cannot be parsed. `problem` says why the groups of a collective are
    invalid; then most facts are None.

    `work` is that of one device after partitioning, `ideal` that of all devices before; one of them is None.
    The schedule and the memory are also None if the text is not scheduled. `uses` has the facts that the text
    says about the inputs. `gradients` has the paths of the outputs that are gradients. `reused` has the
    paths of the inputs over which outputs are written.
    """

    collectives: tuple[Collective, ...] | None = None
    work: Work | None = None
    ideal: Work | None = None
    schedule: Schedule | None = None
    memory_use: MemoryUse | None = None
    uses: ArgumentUses = NO_USES
    gradients: frozenset[str] = frozenset()
    reused: frozenset[str] | None = None
    large_constants: tuple[LargeConstant, ...] | None = None
    uneven_gathers: tuple[UnevenGather, ...] | None = None
    kept_gathers: tuple[KeptGather, ...] | None = None
    pipelines: tuple[Pipeline, ...] | None = None
    fingerprint: str | None = None
    residuals: Residuals | None = None
    open_choices: tuple[OpenChoice, ...] = ()
    assumptions: tuple[str, ...] = ()
    problem: str | None = None

    def added_to(self, program: Program) -> Program:
        """Return the record of the program with its facts replaced by these."""
        return replace(
            program,
            flops_per_device=None if self.work is None else self.work.flops,
            collectives=self.collectives,
            work=self.work,
            schedule=self.schedule,
            memory_use=self.memory_use,
            large_constants=self.large_constants,
            uneven_gathers=self.uneven_gathers,
            kept_gathers=self.kept_gathers,
            open_choices=self.open_choices,
            assumptions=tuple(dict.fromkeys((*program.assumptions, *self.assumptions))),
            pipelines=self.pipelines,
            fingerprint=self.fingerprint,
            residuals=self.residuals,
            first_used=self.uses.first_used or None,
        )


def read(
    text: str | None,
    mesh: Mesh | None,
    shardings: Iterable[ProgramArray] = (),
    memory: Memory | None = None,
    local: bool = False,
) -> ProgramFacts:
    """Read a compiled program's text.

    Args:
      shardings: its arrays, so that collectives can name them.
      memory: the compiler's figures, if they are known.
      local: whether the source files that the text names are files of this machine, which may be read.

    Text that cannot be parsed gives unknown facts and no error, because XLA changes its format.
    """
    module = parsed(text)
    if module is None:
        return ProgramFacts()
    return read_module(replace(module, local=local), mesh, shardings, memory)


def read_module(
    module: hlo.module.Module,
    mesh: Mesh | None,
    shardings: Iterable[ProgramArray] = (),
    memory: Memory | None = None,
    room: hlo.replica_groups.Room | None = None,
) -> ProgramFacts:
    """Return the facts of a program that is parsed already. The arguments are those of `read`.

    room: bounds the listed devices of all programs of a file.
    """
    shardings = tuple(shardings)
    arguments, results = flat_paths(shardings)
    module = ragged_rows.with_stated_rows(module)
    analysis = Analysis(module)
    facts = ProgramFacts(
        large_constants=remarkable.large_constants(module),
        uneven_gathers=remarkable.uneven_gathers(analysis, results),
        fingerprint=fingerprint(module),
    )
    try:
        uses = argument_uses(analysis, arguments, results)
        collectives = collectives_of(module, mesh, shardings, analysis, room, uses.updated)
        if module.entry is None or module.truncated is not None:
            return replace(facts, collectives=collectives)
        work = ideal = None
        if entry.is_partitioned(module):
            work = with_repeated(hlo.work.work(module, analysis), analysis, mesh, shardings)
        else:
            ideal = hlo.work.work_of_all_devices(module)
        live = live_values(analysis)
        return replace(
            facts,
            collectives=collectives,
            work=work,
            ideal=ideal,
            schedule=schedule(analysis, collectives),
            memory_use=memory_use(
                analysis, arguments, results, None if memory is None else memory.peak, uses.by_path, live
            ),
            uses=uses,
            gradients=gradient_results(analysis, results),
            reused=reused_inputs(module, shardings),
            kept_gathers=kept_gathers(analysis, live, collectives),
            pipelines=pipelines(analysis, collectives),
            residuals=residuals(analysis, live) if entry.is_partitioned(module) else None,
            open_choices=open_choices(analysis),
            assumptions=ragged_rows.assumptions(module),
        )
    except InvalidInput as error:
        return replace(facts, problem=str(error))


def collectives_of(
    module: hlo.module.Module,
    mesh: Mesh | None,
    shardings: Iterable[ProgramArray],
    analysis: Analysis,
    room: hlo.replica_groups.Room | None = None,
    updated: Mapping[str, ArgumentUse] = MappingProxyType({}),
) -> tuple[Collective, ...]:
    """Return the collectives of a module, each with the paths of the arrays that it moves.

    `room` bounds the listed devices of all programs of a file. `updated` is that of `ArgumentUses`.

    Raises:
      InvalidInput: the groups of a collective are invalid.
    """
    arguments, results = flat_paths(shardings)
    order = [*arguments, *results]
    moved = moved_arrays(module, arguments, results, analysis, updated) or {}
    used = uses(analysis)
    collectives = []
    for collective in hlo.collectives.collectives(module, mesh, analysis, room):
        key = (collective.computation, collective.name)
        arrays = [
            Moved(*(tuple(path for path in paths if path not in _NOT_ARRAYS) for paths in operand))
            for operand in moved.get(key, ())
        ]
        collectives.append(
            replace(
                collective,
                arrays=paths_of(arrays, order) if key in moved else None,
                parts=_with_arrays(collective, arrays),
                use=used.get(key, "other"),
            )
        )
    return tuple(collectives)


def _with_arrays(collective: Collective, operands: Sequence[Moved]) -> tuple[CollectivePart, ...] | None:
    """Return the parts of a collective with the arrays that its operands move; None if none is known."""
    parts = collective.parts or ()
    if len(parts) != len(operands):
        # One operand, or operands that are sent together.
        inputs = tuple(dict.fromkeys(path for operand in operands for path in operand.inputs))
        outputs = tuple(dict.fromkeys(path for operand in operands for path in operand.outputs))
        one_part = CollectivePart(collective.payload_bytes, inputs, outputs)
        return (one_part,) if inputs or outputs else None
    return tuple(
        replace(part, inputs=operand.inputs, outputs=operand.outputs)
        for part, operand in zip(parts, operands, strict=True)
    )


def with_repeated(
    work: Work, analysis: Analysis, mesh: Mesh | None, shardings: Iterable[ProgramArray]
) -> Work:
    """Return the work of a compiled program with the part that several devices compute alike."""
    specs = [array.compiled for array in shardings if array.used and array.role == "input"]
    return replace(work, repeated=hlo.work.repeated_work(analysis.module, analysis, mesh, specs))


def flat_paths(shardings: Iterable[ProgramArray]) -> tuple[list[str], list[str]]:
    """Return the paths of the arguments that a program uses and those of its results, in order."""
    used = [array for array in shardings if array.used]
    inputs, outputs = ([array.path for array in used if array.role == role] for role in ("input", "output"))
    return inputs, outputs


def reused_inputs(module: hlo.module.Module, shardings: Iterable[ProgramArray]) -> frozenset[str]:
    """Return the paths of the inputs over which a compiled program writes outputs."""
    inputs, _ = flat_paths(shardings)
    return frozenset(inputs[number] for number in entry.donated(module) if number < len(inputs))


def memory_of(module: hlo.module.Module, use: MemoryUse | None) -> Memory | None:
    """Return the memory that the text of a compiled program shows, without temporaries.

    None if its arguments or results are unknown, or if its schedule is, which has the peak.
    """
    arguments, results = entry.inputs(module), entry.outputs(module)
    if use is None or arguments is None or results is None:
        return None
    sizes = [_on_device(value) for value in arguments]
    written = [sizes[number] for number in entry.donated(module) if number < len(sizes)]
    return Memory(
        arguments=sum_known(sizes),
        outputs=sum_known(_on_device(value) for value in results),
        aliased=sum_known(written),
        peak=use.peak_bytes,
    )


def _on_device(value: EntryValue) -> int | None:
    """Return the bytes of an argument or a result; 0 in the memory of the host."""
    if value.memory_space:
        return 0
    return None if value.shape is None else value.shape.bytes


def with_uses(
    shardings: Iterable[ProgramArray],
    uses: ArgumentUses,
    gradients: frozenset[str],
    reused: frozenset[str] | None,
) -> tuple[ProgramArray, ...]:
    """Return the arrays of a program, with the use of each and whether an output is written over it."""
    return tuple(
        replace(
            sharding,
            use=uses.by_path.get(sharding.path),
            # Without an alias, outputs have separate memory, also if the compiler drops the input.
            reused=None if reused is None else sharding.path in reused,
        )
        if sharding.role == "input"
        else replace(sharding, use="gradient" if sharding.path in gradients else None)
        for sharding in shardings
    )


def ideal_work(text: str | None) -> Work | None:
    """Return the work of all devices before partitioning and optimization, without bytes."""
    module = parsed(text)
    if module is None:
        return None
    try:
        work, restored = hlo.work.work_of_all_devices(module), with_ragged_products(module)
        if restored is module:
            return work
        return replace(work, matmul_on_tpu=hlo.work.work_of_all_devices(restored).matmul)
    except InvalidInput:
        return None


def parsed(text: str | None) -> hlo.module.Module | None:
    if not text:
        return None
    try:
        modules = hlo.parser.parse(text)
    except InvalidInput:
        return None
    return modules[0] if len(modules) == 1 else None
