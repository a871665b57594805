"""FLOPs and bytes of one run of a program, with loop bodies counted as often as they run."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

from inspector.hlo import kernel_costs
from inspector.hlo.accesses import accessed, accessed_by_fusion, moves_nothing
from inspector.hlo.analysis import Analysis, Runs
from inspector.hlo.asynchronous import DONE, START, begun
from inspector.hlo.flops import COUNTED, others, product
from inspector.hlo.module import Computation, Instruction, Module, operand_names, operand_shapes, result_sizes
from inspector.hlo.opcodes import ANNOTATIONS, RUNS, TABLE
from inspector.hlo.shapes import MAX_COUNT, elements_of
from inspector.hlo.text import NAME
from inspector.hlo.varying import (
    ComputationRun,
    Digits,
    Places,
    arguments_of,
    places_of,
    runs_before_partitioning,
    runs_of_devices,
)
from inspector.records.snapshot import KernelCalls, MatmulFlops, Mesh, RepeatedWork, Spec, Work, WorkPart

# Custom calls that compute nothing. Some of them move data.
_COMPUTE_NOTHING = ANNOTATIONS | {
    "AnnotateDevicePlacement", "MoveToHost", "MoveToDevice", "SliceId", "ZeroCrop", "X64Combine",
    "X64SplitHigh", "X64SplitLow", "GatherScatterIndicesBitpacked", START, DONE,
}  # fmt: skip
# Compilers write `calls` before any attribute with strings.
_FUSED = re.compile(rf",\s*+calls\s*+=\s*+%?+({NAME})")
# Limit of nested computations in the one that a reduction applies.
_MAX_DEPTH = 20
_MOST_REPEATED = 8  # kinds in a record


def work(module: Module, analysis: Analysis | None = None) -> Work:
    """Return FLOPs and bytes of one run of a program, per device if it is partitioned.

    `flops` is XLA's `compiled.cost_analysis()["flops"]` with these differences:
    - A loop body counts as often as it runs, where XLA counts it once.
    - All branches of a conditional count, where XLA counts the most expensive one.
    - A custom call of a known library, and a kernel that states its cost, count with it. Others count 0,
      where XLA counts −1. `kernels` has those that run, and `not_counted` their names.

    `matmul` is the part of matrix products and convolutions by operand type, the wider one of two. Some CPU
    compilers convert bfloat16 operands to float32 first.

    `bytes_accessed` is `cost_analysis()["bytes accessed"]` with these differences:
    - Loop bodies and branches count as above.
    - The pointers of a tuple count 0, and a tuple that is read or written counts its arrays.
    - A fusion that only gathers from an operand, or slices it after a conversion or transpose, reads only
      those slices. Several broadcasts of an operand read it once.
    - A fusion that updates a slice of an operand in place writes the slice, also for a bitcast or scatter.
    - Arrays outside of the device's memory, such as in VMEM of a TPU, count 0.
    - An asynchronous operation counts once, at its start. A custom call reads its operands and writes its
      result. The workspace of a library call for a matrix product or convolution counts 0.
    Before optimization nothing is fused, so the bytes and instructions are far more than those that will run.

    `instructions` is the number of instructions that read or write memory.

    `boundary_bytes` are those of the parameters and the result of the entry.

    A figure is None if it depends on an unknown trip count or shape, or if the text is truncated.
    """
    entry = module.by_name.get(module.entry) if module.entry is not None else None
    if module.truncated or entry is None:
        return Work(None, None, None)
    return WorkCount(analysis or Analysis(module)).of(entry)


def work_of_all_devices(module: Module) -> Work:
    """Return the work of a program that is not partitioned, without bytes.

    Inside of `shard_map` and `pmap`, the shapes are those of one device. There an operation counts once for
    each device along the mesh axes over which its operands differ. Devices with the same operands repeat its
    work.
    Before fusion, each intermediate value would count as memory traffic.
    """
    analysis = Analysis(module)
    local = runs_before_partitioning(module, analysis)
    if local is None:
        return replace(work(module, analysis), bytes_accessed=None)
    places, runs = local
    flops, products, not_counted = _Total(), dict[str | None, _Total](), set[str]()
    for run, _, ways, amount in _amounts(analysis, places, runs):
        flops.add(run.times, _times(ways, amount.flops.value))
        for dtype, total in amount.products.items():
            products.setdefault(dtype, _Total()).add(run.times, _times(ways, total.value))
        not_counted.update(_not_counted(amount.kernels.items()))
    return Work(flops.figure, _matmul(products), None, tuple(sorted(not_counted)))


def repeated_work(
    module: Module, analysis: Analysis, mesh: Mesh | None, specs: Sequence[Spec | None] | None = None
) -> tuple[RepeatedWork, ...] | None:
    """Return the FLOPs of one device that others compute as well, the most FLOPs first.

    They are those of operations whose operands are the same on all devices along a mesh axis, without
    conversions, clones in fusions and branches, which may never be taken: a lower bound.
    Return None if this cannot be known: a trip count is unknown, or the text is truncated.

    Args:
      specs: the mesh axes of each argument, None for unknown ones. The text of some versions contains them.
    """
    devices = module.partitions
    if devices is None or (module.replicas or 1) != 1:
        return None
    places = places_of(mesh, devices)
    arguments = arguments_of(module, places, specs)
    runs = () if devices == 1 else runs_of_devices(module, analysis, places, arguments)
    if runs is None:
        return None
    totals = Counter[tuple[Digits, bool]]()
    parts: dict[tuple[Digits, bool], Counter[tuple[str, str | None]]] = defaultdict(Counter)
    largest: dict[tuple[Digits, bool, str], tuple[int, Instruction]] = {}
    for run, instruction, _, amount in _amounts(analysis, places, runs):
        value = amount.flops.value
        if value is None or run.times is None:
            return None
        alike = places.everywhere - run.operands[instruction.name]
        # Compilers convert types that a platform cannot compute, and convert them again for each use.
        name = run.computation.name
        left_out = instruction.name in analysis.clones.get(name, ()) or analysis.runs[name].conditional
        if alike and value and instruction.opcode != "convert" and not left_out:
            # A search and a sort compare: they take longer than their FLOPs.
            key = alike, kernel_costs.searches(instruction)
            totals[key] += run.times * value
            kind = instruction.target or instruction.opcode
            parts[key][kind, module.source(instruction.metadata)] += run.times * value
            first = largest.get((*key, kind), (0, instruction))
            own = run.times * value, instruction
            largest[*key, kind] = max(first, own, key=itemgetter(0))

    def repeated(alike: Digits, searched: bool) -> RepeatedWork:
        flops, of_lines, by_kind = totals[alike, searched], parts[alike, searched], Counter[str]()
        for (kind, _), number in of_lines.items():
            by_kind[kind] += number
        ((kind, most),), ((_, line), of_line) = by_kind.most_common(1), of_lines.most_common(1)[0]
        named, example = 2 * most > flops, largest[alike, searched, kind][1]
        return RepeatedWork(
            flops=float(flops),
            devices=places.ways(alike),
            axes=places.axes_of(alike),
            operation="search" if searched else example.opcode if named else "several",
            op_name=example.metadata.get("op_name") if named else None,
            source=line if 2 * of_line > flops else None,
        )

    ranked = sorted(totals, key=lambda key: -totals[key])
    return tuple(repeated(*key) for key in ranked[:_MOST_REPEATED])


def _times(ways: int, amount: int | None) -> int | None:
    return None if amount is None else ways * amount


def _amounts(
    analysis: Analysis, places: Places, runs: Iterable[ComputationRun]
) -> Iterator[tuple[ComputationRun, Instruction, int, _Run]]:
    """Yield each instruction with FLOPs, the devices on which its operands differ, and the amount."""
    count = WorkCount(analysis)
    for run in runs:
        for instruction in run.computation.instructions:
            opcode = instruction.opcode
            if not (TABLE[opcode].flops or opcode in COUNTED or opcode.endswith("-start")):
                continue  # most instructions: only the computations that they call have FLOPs
            amount = count.alone(run.computation, instruction)
            if amount.flops.value != 0 or amount.kernels:
                yield run, instruction, places.ways(run.operands[instruction.name]), amount


@dataclass
class _Total:
    """A sum with possibly unknown terms."""

    value: int | None = 0

    def add(self, times: int | None, term: int | None) -> None:
        """Add times × term; it is 0 if one factor is 0 and the other unknown."""
        if times == 0 or term == 0 or self.value is None:
            return
        if times is None or term is None:
            self.value = None
            return
        self.value += times * term
        if self.value > MAX_COUNT:
            self.value = None

    @property
    def figure(self) -> float | None:
        return None if self.value is None else float(self.value)


@dataclass(slots=True)
class _Sum:
    """Work of several runs.

    products: FLOPs of matrix products by operand type, None for those of unknown type or number.
    hbm: bytes without those of arrays outside of the device's memory.
    """

    flops: _Total = field(default_factory=_Total)
    hbm: _Total = field(default_factory=_Total)
    products: dict[str | None, _Total] = field(default_factory=dict)

    def add(self, times: int | None, run: _Sum) -> None:
        self.flops.add(times, run.flops.value)
        self.hbm.add(times, run.hbm.value)
        for dtype, total in run.products.items():
            self.products.setdefault(dtype, _Total()).add(times, total.value)


class _Kernel(NamedTuple):
    """A kernel whose time is unknown. `dtype` is the type of its operands."""

    name: str
    target: str
    source: str | None
    dtype: str | None


@dataclass(slots=True)
class _Calls:
    """The executions of a kernel, and the FLOPs and bytes of all of them."""

    count: _Total = field(default_factory=_Total)
    flops: _Total = field(default_factory=_Total)
    bytes: _Total = field(default_factory=_Total)

    def add(self, times: int | None, calls: _Calls) -> None:
        self.count.add(times, calls.count.value)
        self.flops.add(times, calls.flops.value)
        self.bytes.add(times, calls.bytes.value)


@dataclass(slots=True)
class _Run(_Sum):
    """Work of one run of a computation, without the computations that it calls."""

    instructions: int = 0  # that move data
    bytes: _Total = field(default_factory=_Total)
    calls: list[str] = field(default_factory=list)
    fuses: list[str] = field(default_factory=list)
    loops: bool = False
    kernels: dict[_Kernel, _Calls] = field(default_factory=dict)  # whose time is unknown


def _not_counted(kernels: Iterable[tuple[_Kernel, _Calls]]) -> set[str]:
    """Return the names of the kernels whose FLOPs are unknown."""
    return {kernel.name for kernel, calls in kernels if calls.flops.value is None}


def _parts(parts: Mapping[tuple[str, ...] | None, _Sum]) -> tuple[WorkPart, ...]:
    """Return the parts as records; none if nothing depends on data, or if that is unknown."""
    if None in parts or not any(parts):
        return ()
    return tuple(
        WorkPart(within, part.flops.figure, _matmul(part.products), part.hbm.figure)
        for within, part in parts.items()
        if within is not None
    )


def _boundary(entry: Computation) -> _Total:
    """Return the bytes of the parameters and the result of the entry computation."""
    ends = [instruction for instruction in entry.instructions if instruction.opcode == "parameter"]
    total = _Total()
    for end in (*ends, entry.root):
        total.add(1, end.shape.bytes if end is not None and end.shape is not None else None)
    return total


class WorkCount:
    """Work of a module; each computation is visited once."""

    def __init__(self, analysis: Analysis) -> None:
        self._module = analysis.module
        self._runs: Mapping[str, Runs] = analysis.runs
        self._clones = analysis.clones
        self._wholes: dict[str, _Run | None] = {}
        self._fusions: dict[str, int | None] = {}
        self._depth = 0
        self._elsewhere: dict[str, dict[str, int]] = {}
        self._carried_on = analysis.chains.carried_on

    def of(self, entry: Computation) -> Work:
        """Return the work of the entry and all that it calls."""
        total, instructions, cloned = _Sum(), _Total(), _Total()
        kernels: dict[tuple[_Kernel, tuple[str, ...] | None], _Calls] = {}
        parts: dict[tuple[str, ...] | None, _Sum] = {}
        for name, run in self._reached(entry).items():
            runs = self._runs[name]
            if runs.count == 0:
                continue
            parts.setdefault(runs.within, _Sum()).add(runs.per_iteration, run)
            total.add(runs.count, run)
            instructions.add(runs.count, run.instructions)
            computation = self._module.by_name[name]
            for clone in self._clones.get(name, ()):
                cloned.add(runs.count, self.alone(computation, computation.by_name[clone]).flops.value)
            # An unknown trip count without a loop in `within` leaves the number of calls unknown.
            times = runs.count if runs.within is None else runs.per_iteration
            for kernel, calls in run.kernels.items():
                kernels.setdefault((kernel, runs.within), _Calls()).add(times, calls)
        return Work(
            total.flops.figure,
            _matmul(total.products),
            total.hbm.figure,
            tuple(sorted(_not_counted((kernel, calls) for (kernel, _), calls in kernels.items()))),
            instructions.figure,
            _boundary(entry).figure,
            cloned_flops=cloned.figure or 0.0,
            parts=_parts(parts),
            kernels=tuple(
                KernelCalls(*kernel, within or (), calls.count.figure, calls.bytes.figure, calls.flops.figure)
                for (kernel, within), calls in kernels.items()
            ),
        )

    def _reached(self, entry: Computation) -> dict[str, _Run]:
        runs: dict[str, _Run] = {}
        fused: list[str] = []
        waiting = [entry.name]
        for moves in (True, False):
            while waiting:
                name = waiting.pop()
                computation = self._module.by_name.get(name)
                if computation is not None and name not in runs:
                    runs[name] = run = self._run(computation, moves)
                    fused += run.fuses
                    waiting += run.calls if moves else (*run.calls, *run.fuses)
            waiting = fused
        return runs

    def amounts(
        self, computation: Computation, instruction: Instruction, results: Mapping[str, int | None]
    ) -> tuple[MatmulFlops | None, int | None, str | None]:
        """Return the matrix products and the bytes of one execution of an instruction.

        The third result is the name of a custom kernel whose time does not follow from these: its FLOPs are
        unknown, or it solves step by step. None without any.

        A fusion counts with all that it contains, other called computations do not. Products of several
        operand types count with the type of most FLOPs. None if unknown.

        results: the bytes of each result of the computation by name, from `result_sizes`.
        """
        run = _Run()
        self._add(run, computation, instruction, results)
        for fused in filter(None, map(self._whole, run.fuses)):
            run.add(1, fused)
            run.kernels |= fused.kernels
        matmul = _matmul(run.products)
        kernel = next((kernel.name for kernel in run.kernels), None)
        if matmul is None or kernel is not None:
            return None, run.bytes.value, kernel
        flops = sum(part.flops for part in matmul)
        dtype = max(matmul, key=lambda part: part.flops).dtype if matmul else ""
        return MatmulFlops(dtype, flops), run.bytes.value, None

    def alone(self, computation: Computation, instruction: Instruction) -> _Run:
        """Return the FLOPs of one execution, without the computations that the instruction calls."""
        run = _Run()
        self._add(run, computation, instruction, None)
        return run

    def _whole(self, name: str) -> _Run | None:
        """Return the work of a computation with all that it calls; None if it is missing, or calls itself."""
        if name not in self._wholes:
            self._wholes[name] = None
            computation = self._module.by_name.get(name)
            if computation is None or self._depth == _MAX_DEPTH:
                return self._wholes.pop(name)
            self._depth += 1
            run = self._run(computation, moves=False)
            for called in map(self._whole, (*run.calls, *run.fuses)):
                if called is None:
                    run.flops.value = None
                else:
                    run.add(1, called)
                    run.kernels |= called.kernels
                    run.loops |= called.loops
            self._depth -= 1
            self._wholes[name] = run
        return self._wholes[name]

    def _run(self, computation: Computation, moves: bool) -> _Run:
        run = _Run()
        results = result_sizes(computation) if moves else None
        for instruction in computation.instructions:
            self._add(run, computation, instruction, results)
        return run

    def _add(
        self,
        run: _Run,
        computation: Computation,
        written: Instruction,
        results: Mapping[str, int | None] | None,
    ) -> None:
        """Add one instruction. Without the bytes of the results, the moved bytes are not counted."""
        instruction = begun(written) if written.opcode.endswith("-start") else written
        opcode, row = instruction.opcode, TABLE[instruction.opcode]
        fused, uncounted = None, None
        if row.flops:
            run.flops.add(row.flops, elements_of(instruction.shape_text))
        elif opcode in COUNTED:
            if (computation.name, instruction.name) in self._carried_on:
                return
            flops, uncounted = self._counted(run, computation, instruction)
            run.flops.add(1, flops)
        elif opcode == "fusion":
            called = _FUSED.search(instruction.attributes_text)
            fused = self._module.by_name.get(called[1]) if called else None
            if fused is not None:
                run.fuses.append(fused.name)
        elif row.does in RUNS:
            run.calls += [called.computation for called in instruction.called]
            run.loops |= row.does in ("while", "conditional")
        if results is None or moves_nothing(opcode):
            return
        run.instructions += 1
        moved = accessed(computation, instruction, results) if fused is None else self._fusion(fused)
        run.bytes.add(1, moved)
        # Of a slice of an array in VMEM the whole array is subtracted, so that this is a lower bound.
        outside = self._outside(computation, written)
        in_hbm = None if moved is None else max(0, moved - outside)
        run.hbm.add(1, in_hbm)
        if uncounted is not None:
            uncounted.bytes.add(1, in_hbm)

    def _outside(self, computation: Computation, instruction: Instruction) -> int:
        """Return the bytes of operands and results that are not in the device's memory."""
        if computation.name not in self._elsewhere:
            self._elsewhere[computation.name] = {
                op.name: shape.outside_bytes
                for op in computation.instructions
                if op.shape_text and "S(" in op.shape_text and (shape := op.shape) is not None
            }
        known = self._elsewhere[computation.name]
        if not known:
            return 0
        names = {name or "" for name in (instruction.name, *operand_names(instruction))}
        return sum(known.get(name, 0) for name in names)

    def _counted(
        self, run: _Run, computation: Computation, instruction: Instruction
    ) -> tuple[int | None, _Calls | None]:
        """Return the FLOPs of one execution, and the calls of its kernel if the time of this is unknown."""
        matmul = product(computation, instruction)
        if matmul is None:
            flops, custom = others(computation, instruction, self._once), instruction.opcode == "custom-call"
            counts = 0 if flops is None and custom else flops
            unknown = flops is None and custom and _computes(instruction)
            if not unknown and not kernel_costs.is_solver(instruction):
                return counts, None
            calls = run.kernels.setdefault(self._kernel(computation, instruction), _Calls())
            calls.count.add(1, 1)
            calls.flops.add(1, flops)
            return counts, calls
        dtype = matmul.dtype if matmul.flops is not None else None
        run.products.setdefault(dtype, _Total()).add(1, matmul.flops)
        return matmul.flops, None

    def _kernel(self, computation: Computation, instruction: Instruction) -> _Kernel:
        return _Kernel(
            kernel_costs.name_of(instruction),
            instruction.target,
            self._module.source(instruction.metadata),
            kernel_costs.operand_type(operand_shapes(computation, instruction)),
        )

    def _fusion(self, fused: Computation) -> int | None:
        # Equal fusions share a computation.
        if fused.name not in self._fusions:
            self._fusions[fused.name] = accessed_by_fusion(fused)
        return self._fusions[fused.name]

    def _once(self, name: str) -> int | None:
        """Return the FLOPs of one application of a computation; None if it has loops or is missing."""
        run = self._whole(name)
        return None if run is None or run.loops else run.flops.value


def _computes(call: Instruction) -> bool:
    """Return whether a custom call computes anything."""
    return call.target not in _COMPUTE_NOTHING and not call.target.startswith("xla.sdy.")


def _matmul(products: dict[str | None, _Total]) -> tuple[MatmulFlops, ...] | None:
    """Return the products by type, without those that never run; None if one is unknown."""
    if any(product.value is None for product in products.values()):
        return None
    return tuple(
        MatmulFlops(dtype, float(product.value))
        for dtype, product in sorted(products.items(), key=lambda pair: pair[0] or "")
        if product.value and dtype is not None
    )
