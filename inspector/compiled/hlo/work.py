"""What one run of a program computes and touches, every loop counted as often as it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from inspector.compiled.hlo.accesses import accessed, accessed_by_fusion, moves_nothing
from inspector.compiled.hlo.asynchronous import DONE, START, begun, chains
from inspector.compiled.hlo.calls import Runs, runs
from inspector.compiled.hlo.flops import (
    COUNTED,
    ELEMENTWISE,
    others,
    product,
    target,
)
from inspector.compiled.hlo.module import Computation, Instruction, Module
from inspector.compiled.hlo.sizes import MOST, elements_of_text, result_sizes
from inspector.compiled.hlo.text import NAME
from inspector.core.snapshot import MatmulFlops, Work

_CALLS = frozenset({"call", "async-start", "while", "conditional"})
# Custom calls that compute nothing: they tell where values are to be, and what runs beside what.
_MARKS = frozenset({
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "AnnotateDevicePlacement", "LayoutConstraint",
    "MoveToHost", "MoveToDevice", "AllocateBuffer", "AssumeGatherIndicesInBound", "Pin", "Unpin",
    "ConcatBitcast", "CreateBuffer", START, DONE,
})  # fmt: skip
# Compilers write it before all that may hold strings; a fusion has no other computation.
_FUSED = re.compile(rf",\s*+calls\s*+=\s*+%?+({NAME})")
# Computations within what a reduction applies, which compilers write flat.
_DEEPEST = 20


def work(module: Module, known: Mapping[str, Runs] | None = None) -> Work:
    """FLOPs and bytes of one run of a program, on one device if it is a partitioned one.

    known: what `runs` says of the module, where that has been asked before; it takes half of the time.

    `flops` are those of XLA's HloCostAnalysis (`compiled.cost_analysis()["flops"]`), which counts elementwise
    operations on integers too and transcendental ones not at all, but each computation as often as it runs:
    XLA counts the body of a loop once. Of a conditional XLA counts the dearest branch, this every one, and
    XLA takes 1 off for each custom call. A custom call that is no matrix product counts nothing, as its text
    does not tell what it does; `not_counted` names the targets of those that run.

    `matmul` has the matrix products and convolutions among them by the type of their operands, the wider one
    where there are two. Some compilers for CPUs convert bfloat16 operands first, and then it is float32.

    `bytes_accessed` is `["bytes accessed"]` of the same analysis except that
    - each computation counts as often as it runs, and every branch of a conditional;
    - a tuple's table of pointers is no traffic, and a tuple that is read or written is its arrays;
    - a fusion reads of an operand the parts alone where it only gathers from it, or cuts out of it after a
      conversion or another order; XLA looks for direct slices. Where it reads the whole array, too, the parts
      are no more than that, and several broadcasts of one operand read it once;
    - a fusion whose result is an operand with a part written into it writes the part, also through a bitcast,
      and for a scatter, too;
    - an asynchronous pair counts once, at its start; a custom call reads its operands and writes its result.
    In a program before optimization, nothing is fused yet, so that its bytes say little.

    A figure is None where it depends on a loop's count or a shape that is not known, and for a text that ends
    too early.
    """
    entry = module.by_name.get(module.entry) if module.entry is not None else None
    if module.truncated or entry is None:
        return Work(None, None, None)
    return _Count(module).of(entry, runs(module) if known is None else known)


@dataclass
class _Total:
    """A sum of which a term may be unknown."""

    value: int | None = 0

    def add(self, times: int | None, each: int | None) -> None:
        """Add a product; what is nothing, or never runs, is known whatever the other factor is."""
        if times == 0 or each == 0 or self.value is None:
            return
        if times is None or each is None:
            self.value = None
            return
        self.value += times * each
        if self.value > MOST:
            self.value = None

    @property
    def figure(self) -> float | None:
        return None if self.value is None else float(self.value)


class _Run:
    """One run of a computation without the computations that it calls; None where it is not known.

    `products` are the FLOPs of matrix products by type, under None those of an unknown type or number.
    """

    __slots__ = ("bytes", "calls", "flops", "fuses", "loops", "not_counted", "products")

    def __init__(self) -> None:
        self.flops: int | None = 0
        self.bytes: int | None = 0
        self.products: dict[str | None, _Total] = {}
        self.calls: list[str] = []
        self.fuses: list[str] = []
        self.loops = False
        self.not_counted: set[str] = set()


class _Count:
    """The work of one module's computations, each counted once."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._applied: dict[str, int | None] = {}
        self._fusions: dict[str, int | None] = {}
        self._depth = 0
        self._carried_on = chains(module).carried_on

    def of(self, entry: Computation, known: Mapping[str, Runs]) -> Work:
        """All that the entry runs, directly or not."""
        flops, touched = _Total(), _Total()
        products: dict[str | None, _Total] = {}
        not_counted: set[str] = set()
        # What is only applied to elements is counted there. What is fused moves nothing itself.
        for name, run in self._reached(entry).items():
            times = known[name].count
            flops.add(times, run.flops)
            touched.add(times, run.bytes)
            if times != 0:
                not_counted |= run.not_counted
            for dtype, each in run.products.items():
                products.setdefault(dtype, _Total()).add(times, each.value)
        return Work(flops.figure, _matmul(products), touched.figure, tuple(sorted(not_counted)))

    def _reached(self, entry: Computation) -> dict[str, _Run]:
        found: dict[str, _Run] = {}
        fused: list[str] = []
        waiting = [entry.name]
        for moves in (True, False):
            while waiting:
                name = waiting.pop()
                computation = self._module.by_name.get(name)
                if computation is not None and name not in found:
                    found[name] = run = self._run(computation, moves)
                    fused += run.fuses
                    waiting += run.calls if moves else (*run.calls, *run.fuses)
            waiting = fused
        return found

    def _run(self, computation: Computation, moves: bool) -> _Run:
        run = _Run()
        # Sums that become None once a term is.
        flops: int | None = 0
        touched: int | None = 0
        results = result_sizes(computation) if moves else {}
        for written in computation.instructions:
            instruction = begun(written) if written.opcode.endswith("-start") else written
            opcode = instruction.opcode
            fused = None
            if opcode in ELEMENTWISE:
                flops = _plus(flops, elements_of_text(instruction.shape_text))
            elif opcode in COUNTED:
                if (computation.name, instruction.name) in self._carried_on:
                    continue
                flops = _plus(flops, self._counted(run, computation, instruction))
            elif opcode == "fusion":
                called = _FUSED.search(instruction.attributes_text)
                fused = self._module.by_name.get(called[1]) if called else None
                if fused is not None:
                    run.fuses.append(fused.name)
            elif opcode in _CALLS:
                run.calls += [called.computation for called in instruction.called]
                run.loops |= opcode in ("while", "conditional")
            if not moves or moves_nothing(opcode):
                continue
            if fused is None:
                touched = _plus(touched, accessed(computation, instruction, results))
            else:
                touched = _plus(touched, self._fusion(fused))
        run.flops, run.bytes = flops, touched
        return run

    def _counted(self, run: _Run, computation: Computation, instruction: Instruction) -> int | None:
        found = product(computation, instruction)
        if found is None and instruction.opcode == "custom-call":
            called = target(instruction)
            if called not in _MARKS and not called.startswith("xla.sdy."):
                run.not_counted.add(called or "a custom call without a target")
        if found is None:
            return others(computation, instruction, self._once)
        dtype = found.dtype if found.flops is not None else None
        run.products.setdefault(dtype, _Total()).add(1, found.flops)
        return found.flops

    def _fusion(self, fused: Computation) -> int | None:
        # Compilers let fusions that are alike share a computation.
        if fused.name not in self._fusions:
            self._fusions[fused.name] = accessed_by_fusion(fused)
        return self._fusions[fused.name]

    def _once(self, name: str) -> int | None:
        """FLOPs of one application of a computation; None where it has loops, or is not in the text."""
        if name in self._applied:
            return self._applied[name]
        computation = self._module.by_name.get(name)
        if computation is None or self._depth == _DEEPEST:
            return None
        self._applied[name] = None  # while it is not known, and for ever if it applies itself
        self._depth += 1
        run = self._run(computation, moves=False)
        total = _Total(run.flops)
        for called in (*run.calls, *run.fuses):
            total.add(1, self._once(called))
        self._depth -= 1
        self._applied[name] = None if run.loops else total.value
        return self._applied[name]


def _plus(total: int | None, each: int | None) -> int | None:
    return None if total is None or each is None else total + each


def _matmul(products: dict[str | None, _Total]) -> tuple[MatmulFlops, ...] | None:
    """The products by type, without those that never run; None where one is not known."""
    if any(each.value is None for each in products.values()):
        return None
    return tuple(
        MatmulFlops(dtype, float(each.value))
        for dtype, each in sorted(products.items(), key=lambda item: item[0] or "")
        if each.value and dtype is not None
    )
