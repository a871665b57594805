"""One entry of the table of opcodes is all that an operation needs."""

from __future__ import annotations

import pytest

from inspector import hlo
from inspector.compiled.argument_uses import argument_uses, gradient_results
from inspector.hlo import opcodes
from inspector.hlo.analysis import Analysis
from inspector.hlo.fused_values import fused_values
from inspector.hlo.loop_invariants import needed
from inspector.hlo.moved_arrays import moved_arrays
from inspector.records.collectives import OPERATIONS

# A step of which one operation is a placeholder.
STEP = """HloModule jit_step, num_partitions=2, is_scheduled=true

ENTRY main_spmd {
  w = f32[8,8]{1,0} parameter(0)
  x = f32[8,8]{1,0} parameter(1)
  moved = f32[8,8]{1,0} OPERATION(w), metadata={op_name="jit(step)/transpose(jvp(f))/op"}
  y = f32[8,8]{1,0} dot(moved, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[8,8]{1,0} all-reduce(y), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true
  ROOT changed = f32[8,8]{1,0} OPERATION(g), metadata={op_name="jit(step)/op"}
}
"""


def answers(opcode: str) -> list[object]:
    """Return what analyses with sets of operations of their own say about the program."""
    (module,) = hlo.parser.parse(STEP.replace("OPERATION", opcode))
    analysis = Analysis(module)
    live = fused_values(analysis)
    assert live is not None
    return [
        moved_arrays(module, ["params/w", "batch/x"], ["params/w"], analysis),
        argument_uses(analysis, ["params/w", "batch/x"], ["params/w"]),
        gradient_results(analysis, ["params/w"]),
        [(buffer.value, buffer.first, buffer.last) for buffer in live.buffers],
        hlo.work.work(module, analysis),
        needed(module),
    ]


@pytest.mark.parametrize("like", ["transpose", "convert", "negate", "tanh", "dynamic-slice", "dot"])
def test_one_entry_adds_an_operation(like: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = answers("twiddle")
    monkeypatch.setitem(opcodes.TABLE, "twiddle", opcodes.TABLE[like])
    if like != "dot":  # its FLOPs have a formula
        assert answers("twiddle") == answers(like)
    assert answers("twiddle") != unknown
    assert answers("another") == unknown


def test_every_collective_is_in_the_table() -> None:
    collectives = {opcode for opcode, row in opcodes.TABLE.items() if row.does == "collective"}
    assert {opcode.removesuffix("-start") for opcode in collectives} == OPERATIONS.keys()
