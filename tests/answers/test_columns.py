"""The order of columns: bytes are visible beside the name, on a page that cuts the others off."""

from __future__ import annotations

from collections.abc import Iterator

from inspector.answers import arrays, catalogue, collectives
from inspector.answers.catalogue import Subject
from inspector.answers.section import Block, Columns, Folded, Section, Table, columns
from tests.compare import glances
from tests.figures import samples


def tables(blocks: Iterator[Block] | tuple[Block, ...]) -> Iterator[Table]:
    for block in blocks:
        match block:
            case Table():
                yield block
            case Section(blocks=inside) | Folded(blocks=inside):
                yield from tables(inside)
            case Columns(columns):
                for column in columns:
                    yield from tables(column)


def test_a_kind_is_one_that_is_known_and_a_name_can_have_a_colon() -> None:
    assert [(column.heading, column.kind) for column in columns("Bytes:bytes", "Values:count", "a:b")] == [
        ("Bytes", "bytes"),
        ("Values", "count"),
        ("a:b", "text"),
    ]


def test_bytes_come_after_what_names_the_row() -> None:
    compiled = glances.compiled(1000, glances.sent(("data",), 8), glances.sent(("model",), 4))
    for snapshot in (samples.snapshot(), compiled):
        every = [*tables(catalogue.reported(Subject.of(snapshot, None)))]
        every += [collectives.each(program, program.collectives or ()) for program in snapshot.programs]
        assert any(table.key == "array_table" for table in every)
        for table in every:
            kinds = [column.kind for column in table.columns]
            if "bytes" in kinds:
                assert kinds.index("bytes") <= 2, (table.key, table.columns)


def test_arrays_are_sorted_by_bytes() -> None:
    snapshot = samples.snapshot()
    (table,) = tables(arrays.folded_table(snapshot).blocks)
    held = [row[1] for row in table.rows]
    assert held == sorted(held, reverse=True) and len(set(held)) > 1
