"""Memory of one device: whether the layout fits a chip, what each program needs, and duplicated bytes."""

from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from inspector import figures
from inspector.answers import activations, unknown
from inspector.answers.programs import named
from inspector.answers.section import (
    Block,
    Cell,
    Column,
    Folded,
    Notice,
    NoticeKind,
    Picture,
    Section,
    Table,
    Text,
    columns,
    text,
)
from inspector.audit.programs import not_donated_text
from inspector.compare.question import change_text
from inspector.hlo.op_name import parse_op_name
from inspector.machines import targets
from inspector.machines.hardware import Chip
from inspector.prediction import memory
from inspector.prediction.evidence import for_chip
from inspector.prediction.memory import Basis, Breakdown, Fit
from inspector.prediction.step_program import step_program
from inspector.records.assessment import MemoryNeed
from inspector.records.snapshot import LiveValue, MemoryUse, Snapshot
from inspector.records.statistics import sum_known
from inspector.sharding.array_groups import USE_GROUPS
from inspector.sharding.meshes import on_cpu
from inspector.text.formatting import bytes_text
from inspector.text.program_names import noun, subject, title

_MOST_VALUES = 40  # rows of the table of values
_WIDEST_PX = 1040  # of a figure with little detail


def section(snapshot: Snapshot, chip: Chip | None) -> Section:
    """Return everything about memory.

    Args:
      chip: the chip for a Snapshot without one.
    """
    chip = targets.chip_for(snapshot, chip)
    snapshot = for_chip(snapshot, chip)
    blocks: list[Block] = [verdict(snapshot, chip)]
    blocks += programs(snapshot, chip)
    return Section("memory", "Memory", tuple(blocks))


def verdict(snapshot: Snapshot, chip: Chip | None) -> Notice:
    """Return whether the layout fits into the memory of a chip."""
    fit = memory.fit(snapshot, chip)
    kind: NoticeKind = "unknown" if fit.fits is None else "success" if fit.fits else "error"
    return Notice(kind, (fit_sentence(fit, snapshot, chip),))


def fit_sentence(fit: Fit, snapshot: Snapshot, chip: Chip | None) -> str:
    """Return whether the layout fits into one device of the chip, with the amounts, in a sentence."""
    if fit.message is not None:
        return f"{fit.message}."
    need = fit.need
    if need is None:
        return (
            "The memory that this needs on one device is unknown, because the bytes per device of its arrays "
            "are."
        )
    if chip is None or need.capacity_bytes is None:
        return _need_sentence(fit.basis, need, snapshot)
    program = need.program or "a program"
    amounts = f"{bytes_text(need.peak_bytes)} of the {bytes_text(need.capacity_bytes)} of {_device_of(chip)}"
    excess = need.peak_bytes - need.capacity_bytes
    if fit.basis == "estimate":
        interval = f"{bytes_text(need.low)} to {bytes_text(need.high)}"
        answer = {True: "it probably fits", False: "it probably does not fit", None: "it may fit"}
        return (
            f"Estimated before a compile, {noun(program)} needs about {amounts} "
            f"(80% interval {interval}): {answer[need.fits]}. Only the compiler decides."
        )
    if fit.basis in ("state", "alive"):
        rest = (
            f"{bytes_text(excess)} too much"
            if need.fits is False
            else "whether temporaries also fit is unknown until it is compiled for the chip"
        )
        return f"{_held(fit.basis, snapshot)} alone need at least {amounts}: {rest}."
    if fit.basis == "compiler":
        return (
            f"It fits: the compiler for {chip.title} accepted every program, although {noun(program)} "
            f"needs {amounts} by the figures below."
        )
    rest = f"{bytes_text(excess)} too much" if excess > 0 else f"it fits, with {bytes_text(-excess)} to spare"
    return f"{_needs(fit.basis, need, snapshot, amounts)}: {rest}."


def _need_sentence(basis: Basis, need: MemoryNeed, snapshot: Snapshot) -> str:
    """Return the memory that the layout needs if no chip is known."""
    program, needed = need.program or "a program", bytes_text(need.peak_bytes)
    if basis == "estimate":
        interval = f"{bytes_text(need.low)} to {bytes_text(need.high)}"
        return (
            f"Estimated before a compile, {noun(program)} needs about {needed} on one device (80% interval "
            f"{interval})."
        )
    if basis in ("state", "alive"):
        return f"{_held(basis, snapshot)} alone need at least {needed} on one device."
    return f"{_needs(basis, need, snapshot, needed)} on one device."


def _needs(basis: Basis, need: MemoryNeed, snapshot: Snapshot, amounts: str) -> str:
    """Return what a program needs. A compiler can reserve more than what is in use at the peak."""
    program, on = need.program or "a program", _emulated(snapshot)
    if basis == "peak":
        return f"At its peak, {noun(program)}{on} uses {amounts}"
    return f"{subject(program)}{on} needs {amounts}"


def _held(basis: Basis, snapshot: Snapshot) -> str:
    if basis == "alive":
        return "The arrays that were alive at one time"
    return "Arguments and results" if snapshot.layout is None else "State and batch"


def _emulated(snapshot: Snapshot) -> str:
    return " (compiled for emulated devices)" if on_cpu(snapshot.mesh) else ""


def _device_of(chip: Chip) -> str:
    article = "an" if chip.title.startswith("NVIDIA") else "a"
    whole = f"{article} {chip.title} chip"
    return whole if chip.devices == 1 else f"one of the {chip.devices} devices of {whole}"


def programs(snapshot: Snapshot, chip: Chip | None) -> tuple[Block, ...]:
    """Return the memory that each program needs: over the program, what donation saves, and all numbers."""
    missing = unknown.no_programs(snapshot, "outputs, temporaries and the peak are")
    if missing is not None:
        return (_before_compile(snapshot, chip) or missing, *activations.sections(snapshot, chip))
    breakdowns = memory.breakdowns(snapshot)
    if not breakdowns:
        source = unknown.source_text(snapshot)
        said = unknown.unknown(f"The memory of the programs is unknown: {source} does not contain it.")
        return (said, *activations.sections(snapshot, chip))
    return (
        *_donation(breakdowns),
        *_over_time(breakdowns, chip),
        *activations.sections(snapshot, chip),
        _numbers(breakdowns),
    )


def _over_time(breakdowns: Sequence[Breakdown], chip: Chip | None) -> Iterator[Block]:
    """Yield the memory over each program, that of the largest one open and the others folded."""
    known = [breakdown for breakdown in breakdowns if breakdown.use is not None and breakdown.use.points]
    known.sort(key=lambda one: -(one.needed or 0))
    for number, breakdown in enumerate(known):
        assert breakdown.use is not None
        blocks = over_program(breakdown, chip)
        if number == 0:
            blocks = (*blocks, _values_at_peak(breakdown.program, breakdown.use))
            yield Section("memory_over_program", f"Memory over {noun(breakdown.program)}", blocks)
        else:
            yield Folded(f"Memory over {noun(breakdown.program)}", blocks)


def _before_compile(snapshot: Snapshot, chip: Chip | None) -> Section | None:
    """Return the estimate of the memory of the main program; None if it is unknown."""
    program = step_program(snapshot)
    interval = None if program is None else memory.estimated_interval(snapshot, program)
    if program is None or interval is None or program.memory_use is None:
        return None
    use, (low, high) = program.memory_use, interval
    sentence = (
        f"Estimated before a compile: {_peak_sentence(use)} The compiler's peak is between "
        f"{bytes_text(low)} and {bytes_text(high)} in 80% of cases. The order is that of the "
        "model; a compiler fuses and reorders its operations."
    )
    picture = _over_program(program.name, use, sentence, chip, "estimated before a compile")
    blocks = (picture, text(sentence), _values_at_peak(program.name, use))
    return Section("memory_over_program", f"Memory over {noun(program.name)}, estimated", blocks)


def over_program(program: Breakdown, chip: Chip | None) -> tuple[Block, ...]:
    """Return the bytes in use over one program, and a sentence about its peak.

    Several values of a schedule can share memory, so its peak can be above what the compiler reserves.
    """
    use = program.use
    assert use is not None
    sentence = _peak_sentence(use)
    if program.total is not None and use.peak_bytes > program.total:
        sentence = (
            f"{_peak_sentence(use, 'at most ')} The compiler reserves {bytes_text(program.total)}: some of "
            "these values share memory, which the schedule does not show."
        )
    return (_over_program(program.program, use, sentence, chip), text(sentence))


def _over_program(name: str, use: MemoryUse, sentence: str, chip: Chip | None, stage: str = "") -> Picture:
    heading = f"{title(name)} on one device"

    def draw(width_px: int) -> go.Figure | None:
        width_px = min(width_px, _WIDEST_PX)
        return figures.memory_timeline.memory_timeline(use, heading, *_limit(chip), stage, width_px=width_px)

    return Picture(f"memory_over_{name}", sentence, draw)


def _limit(chip: Chip | None) -> tuple[int | None, str]:
    """Return the bytes of one device of a chip, and the name of the chip."""
    return (None, "") if chip is None else (memory.capacity_of(chip), chip.title)


def _peak_sentence(use: MemoryUse, most: str = "") -> str:
    groups = sorted(use.groups, key=lambda group: -group.bytes[use.peak])
    parts = ", ".join(
        f"{USE_GROUPS[group.group]} {bytes_text(group.bytes[use.peak])}"
        for group in groups
        if group.bytes[use.peak] >= 0.01 * use.peak_bytes
    )
    return f"At its peak, {most}{bytes_text(use.peak_bytes)} are in use: {parts}."


def compilers_figure(program: Breakdown, use: MemoryUse) -> str:
    """Return how the compiler's peak differs from that of its schedule, "" if it does not."""
    change = None if program.peak is None else change_text(use.peak_bytes, program.peak)
    if program.peak is None or not change:
        return ""
    sentence = (
        f"The compiler's own figure of {noun(program.program)} is {bytes_text(program.peak)} ({change})."
    )
    if program.total is not None and program.peak > program.total:
        sentence += (
            " It counts memory inside of the chip, such as VMEM: "
            f"the program reserves only {bytes_text(program.total)} in HBM."
        )
    return sentence


def _values_at_peak(name: str, use: MemoryUse) -> Folded:
    alike: dict[tuple[str, ...], list[LiveValue]] = {}
    for live_value in use.values:
        key = (_value_name(live_value), live_value.group, live_value.shape, live_value.source or "")
        alike.setdefault(key, []).append(live_value)
    rows = sorted(alike.values(), key=lambda row: -sum(one.bytes for one in row))[:_MOST_VALUES]
    table = Table.of(
        f"memory_at_peak_{name}",
        rows,
        {
            "Value:code": lambda row: _value_name(row[0]),
            "Bytes:bytes": lambda row: sum(value.bytes for value in row),
            "Padding:bytes": lambda row: sum(value.padding for value in row),
            "Values:count": lambda row: len(row),
            "Group": lambda row: USE_GROUPS[row[0].group],
            "Shape in HLO:code": lambda row: row[0].shape,
            "Source:code": lambda row: row[0].source or "",
        },
    )
    return Folded(f"Largest values at the peak of {noun(name)}", (table,))


def _value_name(value: LiveValue) -> str:
    if value.path is not None:
        return value.path
    operation = parse_op_name(value.op_name)[0]
    return "/".join(filter(None, (operation.module, operation.primitive))) or value.name


def rows(program: Breakdown) -> list[tuple[str, int | None]]:
    """Return (figure of the compiler, bytes) of one program, their sum, and what is in use at the peak."""
    parts: list[tuple[str, int | None]] = []
    for whole, inside in (("Arguments", program.arguments), ("Outputs", program.outputs)):
        parts.append((whole, sum_known(part.bytes for part in inside)))
        parts += [(f"{whole}: {part.name}", part.bytes) for part in inside]
    parts.append(("Temporaries", program.temporaries))
    if program.constants:
        parts.append(("Constants", program.constants))
    parts += [("Aliased, counted once", program.aliased)]
    code = ("Code" if program.code_on_device else "Code, in host memory", program.code)
    found = [*parts, code, ("Reserved", program.total)]
    found += [] if program.peak is None else [("Peak", program.needed)]
    return found if program.host is None else [*found, ("In host memory", program.host)]


def _donation(programs: Sequence[Breakdown]) -> list[Text]:
    blocks = []
    for program in programs:
        name = named(program.program, begins=True)
        if program.aliased:
            size = bytes_text(program.aliased)
            said = f" writes {size} of its outputs over donated arguments, which count once."
            blocks.append(text(name, said, quiet=True))
        if program.not_donated:
            blocks.append(text(name, not_donated_text(program), quiet=True))
    return blocks


def _numbers(programs: Sequence[Breakdown]) -> Folded:
    totals = (compilers_figure(program, program.use) for program in programs if program.use is not None)
    note = [text(total, quiet=True) for total in totals if total]
    listed = [dict(rows(program)) for program in programs]
    names = _in_order([list(numbers) for numbers in listed])
    known = list(zip(programs, listed, strict=True))
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        (name, *(numbers.get(name, _missing(name, program)) for program, numbers in known)) for name in names
    )
    headings = columns("Part", *(Column(title(program.program), "bytes") for program in programs))
    table = Table("memory_table", headings, cells)
    return Folded("All numbers, in bytes on one device", (*note, table))


def _missing(name: str, program: Breakdown) -> int | None:
    """Return the bytes of a part that a program lacks: 0, or None if it is unknown.

    That is so of a peak, and of each group if an argument or result matches no array: it can be of any group.
    """
    inside = {"Arguments": program.arguments, "Outputs": program.outputs}.get(name.partition(":")[0], ())
    unmatched = any(part.group is None and (part.arrays or part.bytes is None) for part in inside)
    return None if unmatched or name == "Peak" else 0


def _in_order(lists: Sequence[Sequence[str]]) -> list[str]:
    """Merge the lists so that each keeps its order."""
    merged: list[str] = []
    for names in lists:
        at = 0
        for name in names:
            if name in merged:
                at = merged.index(name) + 1
            else:
                merged.insert(at, name)
                at += 1
    return merged
