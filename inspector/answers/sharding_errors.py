"""The reason why JAX refuses a program on explicit mesh axes, and changes of the code that it accepts."""

from collections.abc import Iterable

from inspector.answers.section import (
    Block,
    Code,
    Column,
    Inline,
    Notice,
    Section,
    Strong,
    Table,
    text,
    with_code,
)
from inspector.records.snapshot import Program, ShardingChoice, ShardingError, Snapshot
from inspector.records.statistics import by_key
from inspector.sharding.sharding_text import spec_text, type_text
from inspector.sharding.traffic import sent_by_busiest, traffic
from inspector.text.formatting import and_text, mesh_axes_text
from inspector.text.program_names import title

_NO_CHOICE = "No change of this operation alone that JAX accepts is known."


def sections(snapshot: Snapshot) -> tuple[Section, ...]:
    """Return a section if JAX refuses programs of the Snapshot, else nothing."""
    blocks = tuple(refusals(snapshot.programs))
    if not blocks:
        return ()
    return (Section("sharding_errors", "Programs that JAX refuses", blocks),)


def refusals(programs: Iterable[Program]) -> list[Block]:
    """Return the errors of these programs. Programs with the same error are named together."""
    names = by_key(
        (program.sharding_error, program.name) for program in programs if program.sharding_error is not None
    )
    return [
        block
        for number, (error, which) in enumerate(names.items())
        for block in _refusal(error, which, number)
    ]


def _refusal(error: ShardingError, names: list[str], number: int) -> Iterable[Block]:
    parts: list[Inline] = [Strong(and_text([title(name) for name in names])), ": JAX refuses "]
    parts.append(Code(error.operation) if error.operation else "the program")
    if error.source:
        parts += [" at ", Code(error.source)]
    yield Notice("error", (*parts, f" ({error.error}). ", *with_code(error.message)))
    if error.operands:
        yield Table.of(
            f"refused_operands:{number}",
            error.operands,
            {
                "Operand": lambda operand: operand.name,
                Column("Type", "code", "As JAX prints it: size@mesh axis."): lambda operand: Code(
                    type_text(operand)
                ),
                Column("PartitionSpec", "code"): lambda operand: Code(spec_text(operand.spec)),
            },
            wrap=True,
        )
    if not error.choices:
        yield text(_NO_CHOICE, quiet=True)
        return
    yield Table.of(
        f"refused_choices:{number}",
        error.choices,
        {
            Column("Change", "code", "JAX accepts the operation with this change."): lambda change: Code(
                change.code
            ),
            Column("Result", "code", "PartitionSpec of the result."): lambda change: Code(
                spec_text(change.result)
            ),
            Column(
                "Collectives", help="Of one execution of the operation, by XLA's partitioner."
            ): _collectives,
            Column("Bytes sent", "bytes", "Bytes that leave one device in one execution."): _bytes_sent,
        },
        wrap=True,
    )


def _collectives(choice: ShardingChoice) -> str | None:
    if choice.collectives is None:
        return None
    rows = traffic(choice.collectives)
    texts = [
        f"{f'{row.instructions} × ' if row.instructions > 1 else ''}{row.op} over "
        f"{mesh_axes_text(row.mesh_axes)}"
        for row in rows
    ]
    return ", ".join(texts) or "none"


def _bytes_sent(choice: ShardingChoice) -> int | None:
    if choice.collectives is None:
        return None
    return sent_by_busiest({None: choice.collectives})[None]
