"""What the board costs the server: eight Snapshots of 126 arrays on 512 devices, against one of them.

All that is computed for the page: the questions and the specs of all, and what differs from the baseline.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from benchmarks.pairing import Result, at_most, interleave
from benchmarks.preview import arrays_of_layers
from inspector import layout as layouts
from inspector.compare import difference
from inspector.core.abstract import AbstractState
from inspector.core.snapshot import Collective, Program, Snapshot
from inspector.layout.plan import plan
from inspector.machines import hardware

PAIRS = 11
LIMIT = 2.0  # seconds for the board of eight, in the server
SNAPSHOTS = 8  # as many as a board holds
ARRAYS = 126  # of MaxText's golden of gpt-oss-20b
DEVICES = 512
CHIP = hardware.chip("v5p")
_MESHES = ("16x32", "32x16", "8x64", "64x8")
_RULES = ("batch=fsdp,embed=fsdp,hidden=tensor", "batch=fsdp,embed=tensor,hidden=fsdp")


def measure(pairs: int = PAIRS, arrays: int = ARRAYS) -> list[Result]:
    """Time the board of eight layouts that all differ, and that of the first of them alone."""
    eight = snapshots(arrays)
    taken = interleave(lambda: board_seconds(eight), lambda: board_seconds(eight[:1]), pairs)
    result = Result(
        name="board",
        ours=f"board of {len(eight)} Snapshots, {arrays} arrays × {DEVICES} devices each",
        baseline="board of one of them",
        pairs=taken,
        target=f"under {LIMIT:.0f} s",
    )
    return [result.judged(at_most(result.seconds[0].median, LIMIT))]


def board_seconds(found: Sequence[Snapshot]) -> float:
    """Compute everything that the board shows, once."""
    began = time.perf_counter()
    difference.questions(found, 0, CHIP)
    difference.spec_rows(found)
    for one in found[1:]:
        difference.sentences(found[0], one, CHIP)
        difference.caveats(found[0], one)
    return time.perf_counter() - began


def snapshots(arrays: int, count: int = SNAPSHOTS) -> list[Snapshot]:
    """Plans on every mesh by every set of rules, each with a program of its own."""
    state = AbstractState("logical", tuple(arrays_of_layers(arrays)), {})
    chosen = [(mesh, rules) for rules in _RULES for mesh in _MESHES][:count]
    found = []
    for number, (mesh, rules) in enumerate(chosen):
        fields = {"mesh": mesh, "axes": "fsdp,tensor", "rules": rules}
        planned = plan(layouts.parse(fields).unwrap(), state)
        found.append(dataclasses.replace(planned, programs=(_program(number),)))
    return found


def _program(number: int) -> Program:
    """A train step with as many collectives as one of 32 layers that are not scanned has."""
    collectives = tuple(
        Collective(
            op, False, f"{op}.{layer}", "main", 1 + number, False, (axis,), 16, 32, 2**20, 2**21
        )
        for layer in range(64)
        for op in ("all-gather", "reduce-scatter", "all-reduce")
        for axis in ("fsdp", "tensor")
    )
    return Program("train_step", collectives=collectives)
