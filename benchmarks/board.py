"""The board in the server: eight Snapshots of 126 arrays on 512 devices, compared with one of them.

It includes everything that the page computes: the questions, the specs, and the differences.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from benchmarks.pairing import Result, interleave, seconds_result
from benchmarks.preview import arrays_of_layers
from inspector import layout as layouts
from inspector.compare import difference
from inspector.compare.caveats import caveats
from inspector.compare.compared import compared
from inspector.compare.questions import questions
from inspector.layout.plan import plan
from inspector.machines import hardware
from inspector.records.snapshot import Collective, Program, Snapshot
from inspector.sharding.abstract import AbstractState

PAIRS = 11
LIMIT = 2.0  # seconds for eight Snapshots
SNAPSHOTS = 8  # the capacity of a board
ARRAYS = 126  # as in MaxText's golden of gpt-oss-20b
DEVICES = 512
CHIP = hardware.chip("v5p")
_MESHES = ("16x32", "32x16", "8x64", "64x8")
_RULES = ("batch=fsdp,embed=fsdp,hidden=tensor", "batch=fsdp,embed=tensor,hidden=fsdp")


def measure(pairs: int = PAIRS, arrays: int = ARRAYS) -> list[Result]:
    """Time a board of eight different layouts, and a board of the first one."""
    eight = snapshots(arrays)
    taken = interleave(lambda: board_seconds(eight), lambda: board_seconds(eight[:1]), pairs)
    return [
        seconds_result(
            LIMIT,
            name="board",
            ours=f"board of {len(eight)} Snapshots, {arrays} arrays × {DEVICES} devices each",
            baseline="board of one of them",
            pairs=taken,
        )
    ]


def board_seconds(found: Sequence[Snapshot]) -> float:
    """Return the seconds to compute everything that the board shows."""
    began = time.perf_counter()
    questions(compared([(str(n), one) for n, one in enumerate(found)], CHIP))
    difference.spec_rows(found)
    for one in found[1:]:
        difference.sentences(found[0], one, CHIP)
        caveats(found[0], one)
    return time.perf_counter() - began


def snapshots(arrays: int, count: int = SNAPSHOTS) -> list[Snapshot]:
    """Return plans with different meshes and rules, each with a different program."""
    state = AbstractState("logical", tuple(arrays_of_layers(arrays)), {})
    chosen = [(mesh, rules) for rules in _RULES for mesh in _MESHES][:count]
    found = []
    for number, (mesh, rules) in enumerate(chosen):
        fields = {"mesh": mesh, "axes": "fsdp,tensor", "rules": rules}
        planned = plan(layouts.parse(fields).unwrap(), state)
        found.append(dataclasses.replace(planned, programs=(_program(number),)))
    return found


def _program(number: int) -> Program:
    """Return a train step with as many collectives as 32 layers without a scan."""
    collectives = tuple(
        Collective(op, False, f"{op}.{layer}", "main", 1 + number, False, (axis,), 16, 32, 2**20, 2**21)
        for layer in range(64)
        for op in ("all-gather", "reduce-scatter", "all-reduce")
        for axis in ("fsdp", "tensor")
    )
    return Program("train_step", collectives=collectives)
