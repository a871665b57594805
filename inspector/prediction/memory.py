"""Memory of a program on one device: by group of arrays, held on several devices, and against a chip."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from inspector.compiled.donation import bytes_in_program, donatable_bytes, is_in_host
from inspector.machines import out_of_memory, targets
from inspector.machines.hardware import Chip
from inspector.prediction.evidence import for_chip, platform_of
from inspector.prediction.step_program import step_program
from inspector.records.assessment import MemoryKind, MemoryNeed
from inspector.records.snapshot import Array, MemoryUse, Mesh, Program, Snapshot
from inspector.records.statistics import sum_known
from inspector.sharding import memory_kinds, totals
from inspector.sharding.array_groups import ARRAY_GROUPS, USE_GROUPS
from inspector.sharding.meshes import is_emulated
from inspector.sharding.once import once_per_snapshot

UNEXPLAINED = "not matched with arrays, of any group or none"
OUTPUTS, TEMPORARIES, CODE = "outputs", "temporaries", "code"
CONSTANTS = USE_GROUPS["constant"]
NEEDED = "needed, according to the compiler"
OUTPUTS_AND_TEMPORARIES = "outputs and temporaries"
# The compiler's figure less that of its schedule: alignment, and buffers that the text does not show.
UNSCHEDULED = "not in the schedule"
Basis = Literal["compiler", "peak", "parts", "estimate", "state", "alive", "unknown"]
# The compiler's peak over the estimate before a compile: 10th and 90th percentile of 23 published train steps
# on v5e and v5p. Their median is 1.00; whole layers recomputed with tensor parallelism have the lowest, 0.79.
ESTIMATE_LOW, ESTIMATE_HIGH = 0.82, 1.14
# The same of small programs: the lowest and highest of ten that were compiled, on v5e (0.11 to 0.81) and H100
# (up to 1.46). Values in VMEM, which take no HBM, and padding count for more in them.
SMALL_BYTES = 200_000_000
SMALL_LOW, SMALL_HIGH = 0.11, 1.46
STATE_AND_BATCH = (*totals.STATE_GROUPS, "batch")


@dataclass(frozen=True)
class GroupBytes:
    """Bytes on one device of a program's arguments or outputs in one group of arrays.

    `group` is None for the rest of the compiler's figure: `arrays` that are none of the Snapshot, such as a
    random key or a parameter in another sharding, pointers of a tuple, and alignment. `in_host` arrays are
    in host memory, which the compiler for emulated devices counts as device memory.
    """

    group: str | None
    arrays: int
    bytes: int | None
    in_host: bool = False

    @property
    def name(self) -> str:
        if self.group is None:
            return UNEXPLAINED
        heading = ARRAY_GROUPS.get(self.group, self.group)
        return f"{heading} in host memory" if self.in_host else heading


@dataclass(frozen=True)
class Breakdown:
    """Bytes of one program on one device, as the compiler counts them.

    arguments, outputs: by group, the unexplained rest last. Their sums are the compiler's figures.
    aliased: outputs that reuse the buffers of donated arguments, included in both.
    temporaries: the compiler's figure for intermediate values. On TPUs it includes VMEM.
    peak: the most bytes in use at one time, according to the compiler, or else to its schedule.
    use: bytes in use over the program, from the schedule; None if unknown.
    constants: large constants that are in no other figure. Compilers for TPUs and GPUs count them as code.
    code: size of the program. code_on_device: whether it is in the device's memory.
    donatable: outputs with an argument of the same bytes.
    host: bytes in host memory, which are in no other figure of a compiler for TPUs or GPUs.
    """

    program: str
    arguments: tuple[GroupBytes, ...]
    outputs: tuple[GroupBytes, ...]
    aliased: int | None
    temporaries: int | None
    code: int | None
    peak: int | None
    code_on_device: bool
    donatable: int | None
    use: MemoryUse | None = None
    host: int | None = None
    constants: int = 0

    @property
    def needed(self) -> int | None:
        """Bytes of the device's memory that the program needs: the peak and the code, at most the total.

        The compiler for TPUs counts memory inside of the chip (VMEM) in the peak of a small program. What it
        reserves in HBM, the total, is then less.
        """
        if self.peak is None:
            return self.total
        peak = self.peak + ((self.code or 0) if self.code_on_device else 0)
        return peak if self.total is None else min(peak, self.total)

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """Name and bytes of the contents of memory at the peak. They add up to `needed`.

        The values are those of the schedule at its peak. The compiler's figure can differ from it by a few
        tenths of a percent: an excess is `UNSCHEDULED`, a lack is taken from the temporaries.
        """
        needed = self.needed
        if needed is None:
            return ()
        code = [(CODE, self.code)] if self.code_on_device and self.code else []
        if self.use is not None and self.use.points:
            return _adding_up((*_at_peak(self.use), *code), needed)
        if self.peak is None:
            return tuple(segments(self))
        arguments = [(part.name, part.bytes) for part in self.arguments if part.bytes and not part.in_host]
        known = (*arguments, *code)
        rest = needed - sum(size for _, size in known)
        if not arguments or rest < 0:
            return ((NEEDED, needed),)
        return (*known, (OUTPUTS_AND_TEMPORARIES, rest)) if rest else known

    @property
    def total(self) -> int | None:
        """The sum of the parts: arguments + outputs + temporaries + constants − aliased, plus code.

        Arrays in host memory do not count, and code only if it is on the device.
        """
        arrays = [part.bytes for part in (*self.arguments, *self.outputs) if not part.in_host]
        code = self.code if self.code_on_device else 0
        reserved = sum_known([*arrays, self.temporaries, self.constants, code])
        return None if self.aliased is None or reserved is None else reserved - self.aliased

    @property
    def not_donated(self) -> int | None:
        """Bytes of outputs that could be written over arguments that are not donated."""
        if self.donatable is None or self.aliased is None:
            return None
        return max(self.donatable - self.aliased, 0)


@dataclass(frozen=True)
class Fit:
    """The memory that a layout needs on one device of a chip, and what decides whether it fits.

    need: None if it is unknown.
    basis: what decides. "compiler": the chip's compiler rejected or accepted all programs, and it knows more
      than our figures. "peak": the most bytes that a program has in use at one time, and its code. "parts":
      the sum of the parts of a program whose peak is unknown. "estimate": the memory of the partitioned train
      step, because nothing was compiled. "state": the train state and the batch alone, which are too large or
      all that is known. "alive": the arrays that were alive at one time, which need more than any program.
      "unknown": nothing.
    message: the compiler's finding if it rejected a program.
    """

    need: MemoryNeed | None
    basis: Basis
    message: str | None = None

    @property
    def fits(self) -> bool | None:
        """Whether the layout fits; None if that is unknown."""
        return False if self.message is not None else None if self.need is None else self.need.fits


def breakdown(snapshot: Snapshot, program: Program) -> Breakdown | None:
    """Return the memory of one program by part; None if the compiler's figures are missing."""
    figures = program.memory
    if figures is None:
        return None
    on_device = snapshot.source.kind in targets.KINDS
    constants = () if on_device else program.large_constants or ()
    return Breakdown(
        program=program.name,
        arguments=_parts(snapshot, program, "input", figures.arguments),
        outputs=_parts(snapshot, program, "output", figures.outputs),
        aliased=figures.aliased,
        temporaries=figures.temporaries,
        code=figures.code,
        peak=program.memory_use.peak_bytes
        if figures.peak is None and program.memory_use is not None
        else figures.peak,
        code_on_device=on_device,
        donatable=_donatable(snapshot, program),
        use=program.memory_use,
        host=figures.host,
        constants=sum(constant.bytes for constant in constants),
    )


@once_per_snapshot
def breakdowns(snapshot: Snapshot) -> tuple[Breakdown, ...]:
    """Return the memory of all programs with figures of the compiler."""
    return tuple(filter(None, (breakdown(snapshot, program) for program in snapshot.programs)))


def segments(program: Breakdown) -> list[tuple[str, int]]:
    """Return (name, bytes) of the parts that are known and not empty; they add up to the total.

    For a program that does not fit, the compiler reports only the bytes that it needs.
    """
    outputs = sum_known(part.bytes for part in program.outputs if not part.in_host)
    own = None if outputs is None else outputs - (program.aliased or 0)
    named: list[tuple[str, int | None]] = [
        (part.name, part.bytes) for part in program.arguments if not part.in_host
    ]
    named += [
        (OUTPUTS, own),
        (TEMPORARIES, program.temporaries),
        (CONSTANTS, program.constants),
    ]
    if program.code_on_device:
        named.append((CODE, program.code))
    parts = [(name, size) for name, size in named if size is not None and size > 0]
    if program.total is None and not parts and program.peak and program.peak > 0:
        return [(NEEDED, program.peak)]
    return parts


def needed_parts(snapshot: Snapshot, needed: int) -> tuple[tuple[str, int], ...]:
    """Return name and bytes of the parts of the memory of a layout on one device. They add up to `needed`.

    needed: the peak of the need that `fit` returns for the Snapshot.
    """
    for breakdown in breakdowns(snapshot):
        if breakdown.needed == needed:
            return breakdown.parts
    program = step_program(snapshot)
    use = None if program is None else program.memory_use
    if program is not None and program.before_compile and use is not None and use.points:
        return _adding_up(_at_peak(use), needed)
    state = state_segments(snapshot)
    if state is not None and sum(size for _, size in state) == needed:
        return tuple(state)
    return ((NEEDED, needed),)


_STATE_HEADINGS = frozenset(ARRAY_GROUPS[group] for group in (*STATE_AND_BATCH, "cache"))


def _by_kind(parts: Iterable[tuple[str, int]]) -> dict[MemoryKind, int]:
    kinds: dict[MemoryKind, int] = {}
    for name, size in parts:
        kind: MemoryKind = "temporaries"
        if name in _STATE_HEADINGS:
            kind = "state"
        elif name == ARRAY_GROUPS["activation"]:
            kind = "activations"
        elif name in (CONSTANTS, CODE):
            kind = "constants"
        elif name in (NEEDED, UNEXPLAINED):
            kind = "unknown"
        kinds[kind] = kinds.get(kind, 0) + size
    return {kind: kinds[kind] for kind in get_args(MemoryKind) if kinds.get(kind)}


def state_segments(snapshot: Snapshot) -> list[tuple[str, int]] | None:
    """Return (name, bytes) of the train state and the batch on the device with the most, by group.

    They are a lower bound of the memory of a program. Return None if the bytes are unknown.
    """
    sizes = totals.by_group(_packed(snapshot), STATE_AND_BATCH)
    if sizes is None:
        return None
    return [(ARRAY_GROUPS[group], number) for group, number in sizes.items() if number]


def _at_peak(use: MemoryUse) -> list[tuple[str, int]]:
    """Return (name, bytes) of each group of values at the peak."""
    return [(USE_GROUPS[group.group], group.bytes[use.peak]) for group in use.groups]


def _adding_up(parts: Sequence[tuple[str, int]], needed: int) -> tuple[tuple[str, int], ...]:
    """Return the parts that are not empty, changed so that they add up to `needed`."""
    excess = sum(size for _, size in parts) - needed
    if excess < 0:
        parts = (*parts, (UNSCHEDULED, -excess))
    sizes = dict(parts)
    # Values that a program computes can share buffers. Its arguments and its code cannot.
    order = [TEMPORARIES, *reversed(USE_GROUPS.values()), *sizes]
    for name in sorted(sizes, key=order.index):
        if excess > 0 and name != CODE:
            taken = min(excess, sizes[name])
            sizes[name] -= taken
            excess -= taken
    return tuple((name, size) for name, size in sizes.items() if size)


def bytes_everywhere(array: Array, mesh: Mesh | None) -> int | None:
    """Return the bytes of an array on all devices together; None if its placement is unknown."""
    if array.shards is not None and array.bytes is not None and array.shape is not None:
        return totals.shard_bytes([array]).total()
    if array.bytes_per_device is None or mesh is None:
        return None
    return array.bytes_per_device * mesh.size


def capacity_of(chip: Chip) -> int:
    """Return the bytes of one device that programs may use: XLA's limit if known, else the HBM as sold."""
    return chip.allocatable_bytes or chip.hbm_bytes_per_device


def fit(snapshot: Snapshot, chip: Chip | None) -> Fit:
    """Return the memory of a layout or job, and whether it fits into one device of a chip.

    This is the memory of the program with the most bytes, or the arrays that were alive at one time.

    chip: None if no chip is known. Whether it fits is then unknown, unless a compiler decided.
    """
    of_this_chip = chip is not None and targets.chip_of(snapshot) == chip
    capacity = None if chip is None else capacity_of(chip)
    fit = _fit(for_chip(snapshot, chip), chip, capacity, of_this_chip)
    alive = snapshot.most_alive_bytes or 0
    if fit.basis == "compiler" or alive <= (fit.need.peak_bytes if fit.need else 0):
        return fit
    fits = False if capacity and alive > capacity else None
    need = MemoryNeed(alive, alive, high=None, capacity_bytes=capacity, fits=fits, parts={"unknown": alive})
    return Fit(need, "alive")


def _fit(snapshot: Snapshot, chip: Chip | None, capacity: int | None, of_this_chip: bool) -> Fit:
    """Return the memory of the program with the most bytes."""

    def need(size: int, fits: bool | None, program: str | None) -> MemoryNeed:
        parts = _by_kind(needed_parts(snapshot, size))
        return MemoryNeed(
            size, size, high=size, capacity_bytes=capacity, fits=fits, program=program, parts=parts
        )

    rejected = out_of_memory.findings(snapshot)
    if rejected and (of_this_chip or chip is None):
        worst = max(rejected, key=lambda finding: finding.bytes or 0)
        capacity = capacity if worst.available is None else worst.available
        known = None if worst.needed is None else need(worst.needed, False, worst.program)
        return Fit(known, "compiler", worst.message)
    programs = [
        program
        for program in snapshot.programs
        if chip is None or platform_of(snapshot, program) == chip.kind
    ]
    counted = [
        (parts.needed, parts)
        for program in programs
        if (parts := breakdown(snapshot, program)) is not None and parts.needed is not None
    ]
    if counted:
        size, parts = max(counted, key=lambda pair: pair[0])
        accepted = capacity is not None and of_this_chip and size > capacity
        basis: Basis = "compiler" if accepted else "parts" if parts.peak is None else "peak"
        fits = None if capacity is None else accepted or size <= capacity
        return Fit(need(size, fits, parts.program), basis)
    # A text alone has no analysis of the compiler, but the schedule that it follows from.
    scheduled = [
        (program.memory_use.peak_bytes, program.name)
        for program in programs
        if program.memory_use is not None and not program.before_compile
    ]
    if scheduled:
        size, name = max(scheduled)
        return Fit(need(size, None if capacity is None else size <= capacity, name), "peak")
    step, least = step_program(snapshot), _held(snapshot)
    use = None if step is None or not step.before_compile else step.memory_use
    if least is None and use is not None and not _of_programs(snapshot).arrays:
        least = 0  # the programs take no array that is known, and their estimate has their arguments
    if least is None:
        return Fit(None, "unknown")
    too_large = capacity is not None and least > capacity
    if step is None or use is None or too_large:
        return Fit(replace(need(least, False if too_large else None, None), high=None), "state")
    return Fit(estimated_need(step, use.peak_bytes, least, capacity), "estimate")


def estimated_need(program: Program, peak: int, held: int, capacity: int | None) -> MemoryNeed:
    """Return the memory of a partitioned program, which was estimated before a compile.

    Args:
      peak: bytes of its peak.
      held: bytes of the train state and the batch, which no program can be below.
    """
    use, size, (low, high) = program.memory_use, max(peak, held), peak_interval(peak, held)
    parts: dict[MemoryKind, int] = {"state": min(held, size), "unknown": max(size - held, 0)}
    if use is not None and use.points:
        parts = _by_kind(_adding_up(_at_peak(use), size))
    fits = probably_fits(low, high, capacity)
    return MemoryNeed(
        size, low, high=high, capacity_bytes=capacity, fits=fits, program=program.name, parts=parts
    )


def _held(snapshot: Snapshot) -> int | None:
    """Return the bytes on one device that a step holds whatever a compiler does; None if unknown.

    These are the train state and the batch, or the arguments and the results of a program that was compiled
    for another kind of machine.
    """
    state = totals.totals(_packed(_of_programs(snapshot)), STATE_AND_BATCH)
    known = [state.per_device] if state.per_device is not None and state.arrays else []
    held = map(_arguments_and_results, snapshot.programs)
    return max((size for size in (*known, *held) if size is not None), default=None)


def _of_programs(snapshot: Snapshot) -> Snapshot:
    """Return a Snapshot without the arrays of a recorded run that none of its programs takes or returns."""
    used = {sharding.path for program in snapshot.programs for sharding in program.shardings}
    if snapshot.layout is not None or not used:
        return snapshot
    return replace(snapshot, arrays=tuple(array for array in snapshot.arrays if array.path in used))


def _arguments_and_results(program: Program) -> int | None:
    """Return the bytes of the arguments, and of the results that are not written over them.

    A compiler for CPUs counts those in host memory, too, so the bytes are then unknown.
    """
    figures = program.memory
    in_host = any(one.memory_kind == memory_kinds.PINNED for one in program.shardings)
    if figures is None or figures.arguments is None or in_host:
        return None
    if figures.outputs is None or figures.aliased is None:
        return figures.arguments
    # Another compiler can write results over donated arguments if this one does not.
    donates = any(argument.donated for argument in program.shardings)
    separate = 0 if donates and not figures.aliased else figures.outputs - figures.aliased
    return figures.arguments + max(separate, 0)


def probably_fits(low: int, high: int, capacity: int | None) -> bool | None:
    """Return whether an estimated peak fits; None if the capacity is inside of its interval or unknown."""
    if capacity is None:
        return None
    return False if low > capacity else True if high <= capacity else None


def estimated_interval(snapshot: Snapshot, program: Program) -> tuple[int, int] | None:
    """Return the interval of the peak of a partitioned program, in bytes; None if it is unknown."""
    if program.memory_use is None or not program.before_compile:
        return None
    held = _held(snapshot) if program is step_program(snapshot) else None
    return peak_interval(program.memory_use.peak_bytes, held or 0)


def peak_interval(estimated: int, at_least: int) -> tuple[int, int]:
    """Return the ends of the 80% interval of a peak that was estimated before a compile, in bytes."""
    small = estimated < SMALL_BYTES
    low = max(round((SMALL_LOW if small else ESTIMATE_LOW) * estimated), at_least)
    return low, max(round((SMALL_HIGH if small else ESTIMATE_HIGH) * estimated), low)


def _packed(snapshot: Snapshot) -> Snapshot:
    """Return the Snapshot with the bytes of arrays as a compiler packs them."""
    if not any(map(memory_kinds.is_packed, snapshot.arrays)):
        return snapshot
    arrays = tuple(
        replace(
            array,
            bytes=array.bytes and memory_kinds.packed_bytes(array.dtype, array.bytes, array.bytes),
            bytes_per_device=memory_kinds.packed_per_device(array),
        )
        if memory_kinds.is_packed(array)
        else array
        for array in snapshot.arrays
    )
    return replace(snapshot, arrays=arrays)


def _parts(snapshot: Snapshot, program: Program, role: str, counted: int | None) -> tuple[GroupBytes, ...]:
    by_path, mesh = {array.path: array for array in snapshot.arrays}, snapshot.mesh_of(program)
    sizes: dict[tuple[str, bool], list[int]] = defaultdict(list)
    used = [sharding for sharding in program.shardings if sharding.role == role and sharding.used]
    for sharding in used:
        array = by_path.get(sharding.path)
        if array is None:
            continue
        number = bytes_in_program(array, sharding, mesh)
        in_host = is_in_host(array, sharding, mesh)
        # Other compilers count host memory apart.
        if number is not None and (not in_host or is_emulated(mesh)):
            sizes[array.group, in_host].append(number)
    parts = [
        GroupBytes(group, len(sizes[group, in_host]), sum(sizes[group, in_host]), in_host)
        for in_host in (False, True)
        for group in ARRAY_GROUPS
        if (group, in_host) in sizes
    ]
    rest = None if counted is None else counted - sum(part.bytes or 0 for part in parts)
    if rest is not None and rest < 0:  # more than the whole: a compiler packs an array tighter than its dtype
        return (GroupBytes(None, len(used), counted),)
    unmatched = sum(sharding.path not in by_path for sharding in used)
    return (*parts, *([] if rest == 0 else [GroupBytes(None, unmatched, rest)]))


def _donatable(snapshot: Snapshot, program: Program) -> int | None:
    """Return the bytes of outputs in device memory that could be written over an argument."""
    if program.donation is not None:
        return program.donation.donatable
    by_path = {array.path: array for array in snapshot.arrays}
    return donatable_bytes(program, by_path, snapshot.mesh_of(program))
