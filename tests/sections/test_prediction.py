"""The inputs of a prediction before a compile are those of its number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector.core.snapshot import ScheduledOperation
from inspector.machines.prediction.calibration import before_compile_constants
from inspector.machines.prediction.predicted import before_compile, predicted
from inspector.media.markdown.render import render
from inspector.sections.prediction import blocks, interval_text, operations
from tests.accuracy import test_fitting
from tests.machines.prediction import schedules


@pytest.mark.parametrize(("flops", "short"), [(1e9, True), (1e16, False)])
def test_the_share_of_communication_is_named_only_where_it_is_used(flops: float, short: bool) -> None:
    one = replace(test_fitting.program(1, flops, 10**6), stage="propagated")
    found = before_compile(one, test_fitting.MESH, test_fitting.CHIP)
    assert (found.interval is None) == short
    written = render(blocks(found, one, test_fitting.MESH))
    share = f"{before_compile_constants().exposed_share:.0%} of the modelled communication"
    assert (share in written) != short
    assert ("All of the modelled communication" in written) == short


def test_an_unknown_interval_comes_from_no_runs() -> None:
    one = replace(test_fitting.program(1, 1e16, 10**6), stage="propagated")
    found = before_compile(one, test_fitting.MESH, test_fitting.CHIP)
    assert interval_text(found).startswith("The interval comes from")
    unknown = replace(found, interval=None, compiled_for="TPUs")
    assert interval_text(unknown) == "Compiled for TPUs, not for this chip: the interval is unknown."


def test_the_joined_names_of_merged_operations_are_cut_in_the_table() -> None:
    name = "jit(step)/(" + ":".join(f"jvp(Net)/layers_{n}/gather" for n in range(500)) + ")"
    one = ScheduledOperation("all", "fusion", cycles=1000, op_name=name)
    program = replace(test_fitting.program(1, 1e9, 1), schedule=schedules.schedule(one))
    table = operations(predicted(program, test_fitting.MESH, test_fitting.CHIP), program)
    (cell,) = (row[-1] for row in table.rows)
    assert len(cell) <= 120 and cell.startswith("jit(step)") and cell.endswith("/gather)")
