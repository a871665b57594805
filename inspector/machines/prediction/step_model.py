"""The modelled time of one program on a chip: compute, HBM and each mesh axis's communication.

Every term is a lower bound with its formula. The step takes at least the longest of them, if all overlap,
and at most their sum, if none does, as far as the terms themselves hold. What the Snapshot does not say
is unknown, and so is then every figure that needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from inspector.core.collectives import traffic
from inspector.core.formatting import counted, mesh_axes_text, seconds_text
from inspector.core.snapshot import Collective, MatmulFlops, Mesh, Program
from inspector.machines.hardware import Chip
from inspector.machines.links import Link, NoLink, collective_time, effective_bytes_per_second
from inspector.machines.mesh_links import links_of
from inspector.machines.prediction.cost import compute_time, critical_intensity, hbm_time, si_text

Kind = Literal["compute", "memory", "communication"]

MATMUL_ONLY = "only matrix products and convolutions are counted against the matrix unit"
EMULATED_BYTES = (
    "HBM bytes are those of the program as the CPU compiler fused it; the chip's own compiler fuses "
    "otherwise, mostly into fewer"
)
NOT_COUNTED = "this Snapshot does not say what the program computes and touches"


@dataclass(frozen=True)
class Term:
    """One part of the step: its modelled seconds, or None where they cannot be known.

    `formula` has the numbers filled in, `basis` says what it rests on. `axes` are the mesh axes of a
    communication, None where these are unknown; `wire_bytes` what one device sends along them.
    """

    name: str
    kind: Kind
    seconds: float | None
    formula: str
    basis: str = ""
    axes: tuple[str, ...] | None = None
    wire_bytes: int | None = None


@dataclass(frozen=True)
class Intensity:
    """FLOPs per byte of one kind of traffic, and from how many on compute rules; None where unknown."""

    name: str
    flops_per_byte: float | None
    critical: float | None


@dataclass(frozen=True)
class Modelled:
    """A program's step on a chip, modelled.

    flops, hbm_bytes, wire_bytes: of one device and one run; FLOPs of matrix products.
    flops_per_second: the peak, averaged over operand types as this program uses them.
    ideal_flops: of all devices together if none repeated another's work.
    wasted: the share of all devices' FLOPs beyond the ideal; below 0 where the compiler did less than
      was written.
    utilisation: ideal FLOPs over what the devices could have done in `lower_seconds`.
    ruling: the longest term. lower_seconds: if all overlap; upper_seconds: if nothing does. None each
      where a term is unknown.
    runs_as: the operand types whose peaks were used.
    """

    program: str
    chip: Chip
    devices: int
    terms: tuple[Term, ...]
    flops: float | None
    flops_per_second: float | None
    hbm_bytes: float | None
    wire_bytes: int | None
    ideal_flops: float | None
    wasted: float | None
    utilisation: float | None
    ruling: Term | None
    lower_seconds: float | None
    upper_seconds: float | None
    intensities: tuple[Intensity, ...]
    runs_as: tuple[str, ...]
    assumptions: tuple[str, ...]


def modelled(
    program: Program,
    mesh: Mesh,
    chip: Chip,
    links: Mapping[tuple[str, ...], Link | NoLink] | None = None,
) -> Modelled:
    """Model one run of a program whose mesh stands on chips of this kind.

    Args:
      links: what each group of mesh axes runs over, where that is known; else `mesh_links` finds it, from the
        mesh's places or by assumption.
    """
    along = tuple(
        dict.fromkeys(
            one.mesh_axes for one in program.collectives or () if one.mesh_axes is not None
        )
    )
    if links is None:
        links = links_of(mesh, chip, along)
    compute, peak, runs_as, notes = _compute(program, chip)
    memory = _memory(program, mesh, chip)
    communication = _communication(program, along, links)
    terms = (compute, memory, *communication)

    seconds = [term.seconds for term in terms]
    known = [value for value in seconds if value is not None]
    whole = len(known) == len(seconds)
    lower = max(known) if whole else None
    flops = _matmul_flops(program.work.matmul if program.work else None)
    ideal = _matmul_flops(program.ideal.matmul if program.ideal else None)
    done = None if flops is None else flops * mesh.size
    wire = [term.wire_bytes for term in communication]
    return Modelled(
        program=program.name,
        chip=chip,
        devices=mesh.size,
        terms=terms,
        flops=flops,
        flops_per_second=peak,
        hbm_bytes=program.work.bytes_accessed if program.work else None,
        wire_bytes=_sum(wire),
        ideal_flops=ideal,
        wasted=1 - ideal / done if ideal is not None and done else None,
        utilisation=(
            ideal / (mesh.size * peak * lower) if ideal is not None and peak and lower else None
        ),
        ruling=max(terms, key=lambda term: term.seconds or 0) if lower else None,
        lower_seconds=lower,
        upper_seconds=sum(known) if whole else None,
        intensities=_intensities(flops, peak, memory, program, communication, chip, links),
        runs_as=runs_as,
        assumptions=(*notes, *_assumptions(along, links)),
    )


def bound_text(found: Modelled) -> str:
    """Both bounds and the ruling term in words: `12.3 µs to 40.1 µs, bound by HBM`."""
    if found.lower_seconds is None or found.upper_seconds is None:
        missing = [term.name for term in found.terms if term.seconds is None]
        return f"unknown, for {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'}"
    lower, upper = seconds_text(found.lower_seconds), seconds_text(found.upper_seconds)
    bound = f", bound by {found.ruling.name}" if found.ruling else ""
    return f"{lower}{bound}" if lower == upper else f"{lower} to {upper}{bound}"


def share_text(share: float | None) -> str:
    """A share as a percentage; `unknown` for None."""
    if share is None:
        return "unknown"
    return "below 0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def wasted_text(found: Modelled) -> str:
    """The wasted share in words."""
    if found.wasted is None:
        return "unknown"
    if found.wasted < -0.0005:
        return f"none: devices do {-found.wasted:.1%} less than was written"
    return share_text(abs(found.wasted))


def intensity_text(one: Intensity) -> str:
    """FLOPs per byte against the critical number: `12.0 FLOP/B, compute-bound from 164`."""
    if one.flops_per_byte is None:
        return "unknown"
    words = f"{si_text(one.flops_per_byte, 'FLOP/B')}"
    if one.critical is None:
        return words
    return f"{words}, compute-bound from {si_text(one.critical, 'FLOP/B')}"


def text(found: Modelled) -> str:
    """The model in lines for a terminal, the formula at each term and the assumptions below."""
    rows = [(term.name, seconds_text(term.seconds), term.formula) for term in found.terms]
    rows += [("step", bound_text(found), "")]
    rows += [("intensity, " + one.name, intensity_text(one), "") for one in found.intensities]
    flops = "unknown" if found.flops is None else si_text(found.flops, "FLOP")
    ideal = "unknown" if found.ideal_flops is None else si_text(found.ideal_flops, "FLOP")
    rows += [
        ("FLOPs", f"{flops} per device, {ideal} on all if none repeated another's", ""),
        ("repeated work", wasted_text(found), ""),
        ("utilisation", f"{share_text(found.utilisation)} of the peak at most", ""),
    ]
    name = max(len(row[0]) for row in rows)
    value = max((len(row[1]) for row in rows if row[2]), default=0)
    lines = [
        f"{found.program} modelled on {counted(found.devices, 'device')} of {found.chip.title}"
    ]
    lines += [
        f"  {title:<{name}}  {words:<{value if formula else 0}}  {formula}".rstrip()
        for title, words, formula in rows
    ]
    notes = [term.basis for term in found.terms if term.basis]
    lines += [f"  {note}" for note in dict.fromkeys((*notes, *found.assumptions))]
    return "\n".join(lines)


def _compute(
    program: Program, chip: Chip
) -> tuple[Term, float | None, tuple[str, ...], tuple[str, ...]]:
    """The term, the average peak, the operand types whose peaks it rests on, and what was assumed."""
    name = "compute"
    products = program.work.matmul if program.work else None
    if products is None:
        return Term(name, "compute", None, "", NOT_COUNTED), None, (), ()
    peaks = {one.dtype: chip.peak(one.dtype) for one in products if one.flops}
    missing = [dtype for dtype, peak in peaks.items() if peak is None]
    if missing:
        why = f"no peak of {chip.title} is known for {', '.join(missing)}"
        return Term(name, "compute", None, "", why), None, (), ()
    times = [compute_time(one.flops, chip, one.dtype) for one in products if one.flops]
    seconds = sum(one.seconds for one in times)
    known = [peak for peak in peaks.values() if peak is not None]
    notes = tuple(dict.fromkeys(peak.assumption for peak in known if peak.assumption))
    if program.work is not None and program.work.not_counted:
        calls = ", ".join(program.work.not_counted)
        notes = (*notes, f"Left out, for no text tells what they compute: custom calls {calls}.")
    term = Term(
        name,
        "compute",
        seconds,
        " + ".join(one.formula for one in times) or "no matrix products",
        MATMUL_ONLY,
    )
    total = sum(one.flops for one in products)
    return (
        term,
        total / seconds if seconds else None,
        tuple(dict.fromkeys(peak.runs_as for peak in known)),
        notes,
    )


def _memory(program: Program, mesh: Mesh, chip: Chip) -> Term:
    count = program.work.bytes_accessed if program.work else None
    if count is None:
        return Term("HBM", "memory", None, "", NOT_COUNTED)
    time = hbm_time(count, chip)
    emulated = mesh.device_kind in (None, "cpu")
    return Term("HBM", "memory", time.seconds, time.formula, EMULATED_BYTES if emulated else "")


def _communication(
    program: Program,
    along: Iterable[tuple[str, ...]],
    links: Mapping[tuple[str, ...], Link | NoLink],
) -> tuple[Term, ...]:
    if program.collectives is None:
        why = "this program's collectives were not counted"
        return (Term("communication", "communication", None, "", why),)
    found = []
    for axes in along:
        these = tuple(one for one in program.collectives if one.mesh_axes == axes)
        if axes:  # groups of one device each move nothing
            found.append(_along(axes, these, links.get(axes)))
    unplaced = [one for one in program.collectives if one.mesh_axes is None and one.executions != 0]
    if unplaced:
        why = f"{counted(len(unplaced), 'collective')} whose groups are of no mesh axes"
        found.append(Term(f"communication, {mesh_axes_text(None)}", "communication", None, "", why))
    return tuple(found)


def _along(
    axes: tuple[str, ...], collectives: tuple[Collective, ...], link: Link | NoLink | None
) -> Term:
    name = f"communication over {mesh_axes_text(axes)}"
    rows = traffic(collectives)
    wire = _sum(row.wire_bytes_per_device for row in rows)
    if link is None or isinstance(link, NoLink):
        why = link.assumption if link else "no link was given for these axes"
        return Term(name, "communication", None, "", why, axes, wire)
    seconds: dict[str, float] = {}
    largest: dict[str, tuple[int, str]] = {}
    for one in collectives:
        if one.executions == 0:
            continue
        if one.executions is None or one.payload_bytes is None:
            what = "how often" if one.executions is None else "how much"
            why = f"{what} {one.name} moves is not known"
            return Term(name, "communication", None, "", why, axes, wire)
        time = collective_time(one.op, one.payload_bytes, link)
        seconds[one.op] = seconds.get(one.op, 0.0) + one.executions * time.seconds
        largest[one.op] = max(largest.get(one.op, (-1, "")), (one.payload_bytes, time.formula))
    formula = " + ".join(
        f"{row.executions:,} × {row.op}"
        f" ({'' if row.executions == 1 else 'the largest '}{largest[row.op][1]})"
        for row in rows
        if row.op in seconds
    )
    basis = (
        "both branches of conditionals counted as if taken"
        if any(row.conditional for row in rows)
        else ""
    )
    return Term(
        name, "communication", sum(seconds.values()), formula or "never run", basis, axes, wire
    )


def _intensities(
    flops: float | None,
    peak: float | None,
    memory: Term,
    program: Program,
    communication: Iterable[Term],
    chip: Chip,
    links: Mapping[tuple[str, ...], Link | NoLink],
) -> tuple[Intensity, ...]:
    count = program.work.bytes_accessed if program.work else None
    hbm_rate = chip.hbm_bytes_per_second_per_device
    found = [
        Intensity(
            memory.name,
            flops / count if flops is not None and count else None,
            critical_intensity(peak, hbm_rate) if peak else None,
        )
    ]
    for term in communication:
        link = links.get(term.axes) if term.axes else None
        rate = None if link is None or isinstance(link, NoLink) else _outward(link)
        found.append(
            Intensity(
                term.name,
                flops / term.wire_bytes if flops is not None and term.wire_bytes else None,
                critical_intensity(peak, rate) if peak and rate else None,
            )
        )
    return tuple(found)


def _outward(link: Link) -> float:
    """Bytes per second that one device sends while a large all-gather runs, as wire bytes are counted."""
    return effective_bytes_per_second(link) * (link.size - 1) / link.size


def _assumptions(
    along: Iterable[tuple[str, ...]], links: Mapping[tuple[str, ...], Link | NoLink]
) -> tuple[str, ...]:
    said = (links[axes].assumption for axes in along if axes and axes in links)
    return tuple(dict.fromkeys(one for one in said if one))


def _matmul_flops(products: tuple[MatmulFlops, ...] | None) -> float | None:
    return None if products is None else sum(one.flops for one in products)


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if any(value is None for value in known) else sum(v for v in known if v is not None)
