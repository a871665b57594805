"""Memory of one device: whether the layout fits a chip, what each program needs, and duplicated bytes."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Snapshot
from inspector.core.statistics import sum_known
from inspector.figures.memory_bars import memory_bars
from inspector.machines.hardware import Chip
from inspector.machines.prediction import memory
from inspector.machines.prediction.memory import Breakdown, Duplication, Fit
from inspector.sections import unknown
from inspector.sections.section import (
    Block,
    Cell,
    Code,
    Column,
    Folded,
    Notice,
    NoticeKind,
    Picture,
    Section,
    Table,
    Text,
    columns,
    notice,
    text,
)

_WIDEST_PX = 1040


def section(snapshot: Snapshot, chip: Chip | None, replicated: bool = True) -> Section:
    """Return everything about memory.

    Args:
      chip: the chip that the layout should fit; without one, the verdict is left out.
      replicated: whether to add the tables of replicated data.
    """
    blocks: list[Block] = []
    if chip is not None:
        blocks.append(verdict(snapshot, chip))
    blocks += programs(snapshot, chip)
    if replicated:
        blocks += duplication(snapshot)
    return Section("memory", "Memory", tuple(blocks))


def verdict(snapshot: Snapshot, chip: Chip) -> Notice:
    """Return whether the layout fits into the memory of a chip."""
    fit = memory.fit(snapshot, chip)
    kind: NoticeKind = "unknown" if fit.fits is None else "success" if fit.fits else "error"
    return Notice(kind, (fit_sentence(fit, snapshot, chip),))


def fit_sentence(fit: Fit, snapshot: Snapshot, chip: Chip) -> str:
    """Return whether the layout fits into one device of the chip, with the amounts, in a sentence."""
    capacity = bytes_text(fit.capacity)
    device = _device_of(chip)
    if fit.message is not None:
        return f"{fit.message}."
    if fit.needed is None:
        return (
            f"Whether this fits into the {capacity} of {device} is unknown, because the bytes per device of "
            "its arrays are."
        )
    amounts = f"{bytes_text(fit.needed)} of the {capacity} of {device}"
    excess = fit.needed - fit.capacity
    if fit.basis == "state":
        rest = (
            f"{bytes_text(excess)} too much"
            if fit.fits is False
            else "whether outputs and temporaries also fit is unknown until the layout is built"
        )
        return f"Train state and batch alone need at least {amounts}: {rest}."
    if fit.basis == "compiler":
        return (
            f"It fits: the compiler for {chip.title} accepted every program, although the parts "
            f"of {fit.program} add up to {amounts}. Some of them share memory."
        )
    emulated = " (compiled for emulated devices)" if snapshot.source.kind == "cpu" else ""
    rest = (
        f"{bytes_text(excess)} too much"
        if excess > 0
        else f"it fits, with {bytes_text(-excess)} to spare"
    )
    sentence = f"{fit.program}{emulated} needs {amounts}: {rest}."
    if fit.largest is not None:
        name, size = fit.largest
        sentence += f" The largest part is {name}, {bytes_text(size)}."
    return sentence


def _device_of(chip: Chip) -> str:
    article = "an" if chip.title.startswith("NVIDIA") else "a"
    whole = f"{article} {chip.title} chip"
    return whole if chip.devices == 1 else f"one of the {chip.devices} devices of {whole}"


def programs(snapshot: Snapshot, chip: Chip | None) -> tuple[Block, ...]:
    """Return the memory that each program needs: a figure, what donation saves, and all numbers."""
    missing = unknown.no_programs(snapshot, "outputs, temporaries and the peak are")
    if missing is not None:
        return (missing,)
    breakdowns = memory.breakdowns(snapshot)
    if not breakdowns:
        source = unknown.source_text(snapshot)
        return (
            unknown.unknown(
                f"The memory of the programs is unknown: {source} does not contain it."
            ),
        )
    capacity = None if chip is None else memory.capacity_of(chip)
    bars = Picture(
        "memory_bars",
        "Memory of each program by part",
        lambda width_px: memory_bars(
            breakdowns,
            capacity,
            "" if chip is None else chip.title,
            width_px=min(width_px, _WIDEST_PX),
        ),
    )
    return (bars, *_donation(breakdowns), _numbers(snapshot, breakdowns))


def duplication(snapshot: Snapshot) -> tuple[Block, ...]:
    """Return the bytes that several devices hold, by group and by array."""
    groups = memory.duplication_by_group(snapshot)
    if snapshot.mesh is None or not groups:
        return ()
    arrays = memory.duplication_by_array(snapshot)
    blocks: list[Block] = []
    if all(one.duplicated is None for one in groups):
        said = "Duplicated bytes are unknown, because the bytes of the arrays are."
        blocks.append(text(said, quiet=True))
    elif arrays:
        blocks.append(_duplication_table("duplication_by_group", "Arrays", groups))
        blocks.append(_duplication_table("duplication_by_array", "Path", arrays))
    elif any(one.duplicated is None for one in groups):
        said = (
            "No duplicates among the arrays with known bytes. The bytes of the others are unknown."
        )
        blocks.append(text(said, quiet=True))
    else:
        blocks.append(notice("success", "No two devices hold the same data."))
    return (Section("duplication", "Replicated data", tuple(blocks)),)


def rows(program: Breakdown) -> list[tuple[str, int | None]]:
    """Return (part, bytes) of one program in the order in which the parts add up."""
    parts: list[tuple[str, int | None]] = []
    for whole, inside in (("Arguments", program.arguments), ("Outputs", program.outputs)):
        parts.append((whole, sum_known(part.bytes for part in inside)))
        parts += [(f"{whole}: {part.name}", part.bytes) for part in inside]
    shared = None if program.aliased is None else -program.aliased
    parts += [("Temporaries", program.temporaries), ("Aliased", shared)]
    code = ("Code" if program.code_on_device else "Code, in host memory", program.code)
    total = [("Total", program.total), ("Peak, from the compiler", program.peak)]
    return [*parts, code, *total] if program.code_on_device else [*parts, *total, code]


def _duplication_table(key: str, heading: str, each: Sequence[Duplication]) -> Table:
    first = f"{heading}:code" if heading == "Path" else heading
    return Table.of(
        key,
        each,
        {
            first: lambda one: one.name,
            "Bytes once:bytes": lambda one: one.once,
            "On all devices:bytes": lambda one: one.everywhere,
            "Duplicated:bytes": lambda one: one.duplicated,
            "Copies:ratio": lambda one: one.factor,
        },
    )


def _donation(programs: Sequence[Breakdown]) -> list[Text]:
    blocks = []
    for program in programs:
        name = Code(program.program)
        if program.aliased:
            said = (
                f" writes {bytes_text(program.aliased)} of its outputs over donated arguments, which count "
                "once. Compare the totals with and without donation: it may need more temporaries."
            )
            blocks.append(text(name, said, quiet=True))
        if program.not_donated:
            said = (
                f" would save up to {bytes_text(program.not_donated)} per device: these outputs have the "
                "shapes and shardings of arguments."
            )
            blocks.append(text("Donating the train state to ", name, said, quiet=True))
    return blocks


def _numbers(snapshot: Snapshot, programs: Sequence[Breakdown]) -> Folded:
    code = " + code" if any(one.code_on_device for one in programs) else ""
    note = (
        f"Total = arguments + outputs + temporaries − aliased{code}. The peak is the most that is in use at "
        "one time. Bytes not explained by arrays are, for example, a random key, the loss or the table of a "
        "tuple."
    )
    if any(part.in_host for one in programs for part in (*one.arguments, *one.outputs)):
        note += " The total leaves out arrays in host memory; this compiler's peak counts them."
    if snapshot.source.kind == "cpu":
        note += " The compiler is that of emulated devices; an accelerator has other temporaries."
    listed = [dict(rows(program)) for program in programs]
    names = _in_order([list(numbers) for numbers in listed])
    # A part that a program does not have is 0.
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        (name, *(numbers.get(name, 0) for numbers in listed)) for name in names
    )
    headings = columns("Part", *(Column(program.program, "bytes") for program in programs))
    table = Table("memory_table", headings, cells)
    return Folded("All numbers, in bytes on one device", (text(note, quiet=True), table))


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
