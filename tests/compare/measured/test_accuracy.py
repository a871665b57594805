"""Predictions of published runs: a run that fails keeps its row, and the runs after it their own programs."""

from __future__ import annotations

import dataclasses
import random

from hypothesis import given
from hypothesis import strategies as st

from inspector.compare.measured import accuracy, published_runs
from inspector.layout import Layout
from inspector.records.snapshot import MatmulFlops, Program, Snapshot, Source, Work
from inspector.text.errors import InvalidInput
from tests.compare.measured.test_published_runs import ROW
from tests.hostile.damage import damaged

WORK = Work(10**15, (MatmulFlops("bf16", 10**15),), 10**12)


def runs(*names: str) -> list[published_runs.PublishedRun]:
    return [published_runs._run(ROW | {"id": name}, name) for name in names]


def planned(layout: Layout) -> Snapshot:
    program = Program("train_step", collectives=(), work=WORK, stage="propagated")
    source = Source("plan", layout.target, "2026-11-25")
    return Snapshot(source, layout.to_json(), layout.mesh(), (), (program,))


def test_a_run_that_cannot_be_traced_has_its_reason():
    """Also the first one, and without the programs of the run before."""
    calls = []

    def refusing(layout: Layout) -> Snapshot:
        calls.append(layout)
        if len(calls) in (1, 3):
            raise InvalidInput("the model cannot be traced")
        return planned(layout)

    seen: list[tuple[str, str]] = []
    compared = accuracy.compared(
        runs("a", "b", "c"),
        refusing,
        lambda run, layout: None,
        lambda run, snapshot: seen.append((run.name, snapshot.source.kind)),
    )
    rows = {row.id: row.reason for row in compared.rows}
    assert list(rows) == ["a", "b", "c"]
    assert rows["a"] == rows["c"] == "the model cannot be traced" != rows["b"]
    assert seen == [("b", "plan")]


def test_a_run_that_cannot_be_compiled_keeps_its_plan():
    def compiled(run: published_runs.PublishedRun, layout: Layout) -> Snapshot:
        if run.name == "b":
            raise InvalidInput("the compiler fails")
        return dataclasses.replace(planned(layout), source=Source("tpu", layout.target, "2026"))

    seen: list[str] = []
    compared = accuracy.compared(
        runs("a", "b", "c"), planned, compiled, lambda run, snapshot: seen.append(run.name)
    )
    reasons = {row.id: row.reason for row in compared.rows}
    assert reasons["b"] == "the compiler fails"
    assert seen == ["a", "a", "b", "c", "c"]


@given(st.integers(0, 2**64))
def test_a_damaged_row_is_a_run_or_refused(seed: int):
    row = damaged(ROW | {"xla_flags": ["--xla_gpu_ftz=true", "ADD_PROXY"]}, random.Random(seed))
    try:
        run = published_runs._run(row, "the row")
    except InvalidInput:
        return
    assert (run.layout is None) == (run.reason is not None)


def test_a_row_whose_remat_is_a_list():
    remat = {"policy": "custom", "context": ["device"], "out_proj": {"a": 1}}
    run = published_runs._run(ROW | {"remat": remat}, "the row")
    assert run.layout is not None and run.layout.sizes["remat"] == "full"
