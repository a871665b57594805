"""Model the time of one program on a chip: compute, HBM, and communication over each tuple of mesh axes.

Each term is a lower bound with its formula. A step takes at least the longest term, if all overlap, and at
most their sum, if none do. A figure with an unknown input is unknown.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.hlo.op_name import PRODUCTS, parse_op_name
from inspector.machines.hardware import Chip, ModelledSeconds, compute_time, critical_intensity, hbm_time
from inspector.machines.links import Link, NoLink, TorusLink, collective_time, effective_bytes_per_second
from inspector.machines.mesh_links import link_of, links_of
from inspector.prediction.calibration import ChipConstants, default_constants
from inspector.prediction.collective_cost import expected
from inspector.prediction.simulation import SIGNS, executions, shift_of
from inspector.records.collectives import OPERATIONS, REDUCTIONS
from inspector.records.snapshot import Collective, Mesh, Program
from inspector.records.statistics import by_key, sum_known
from inspector.sharding.meshes import is_emulated
from inspector.sharding.traffic import traffic
from inspector.text.formatting import and_text, counted, mesh_axes_text, seconds_text

Kind = Literal["compute", "memory", "communication"]
# Of collectives: operation, executions, direction of a permute, and the link that they use.
Payload = tuple[str, float, str | None, Link]
# Of collectives that a compiler can combine: these, their computation, and their depth in it.
Combinable = tuple[Payload, str | None, int | None]

# XLA combines collectives up to this size: the default of xla_gpu_all_gather_combine_threshold_bytes and of
# those of other operations (debug_options_flags.cc).
COMBINED_BYTES = 30 * 2**20

# Share of the bytes over an axis below which it moves nearly no arrays of the state. In published runs, axes
# of tensor parallelism have 0.2% or less, those over which a batch is sharded 40% or more.
_FEW = 0.1

MATMUL_ONLY = "only matrix products and convolutions count as compute"
EMULATED_BYTES = (
    "HBM bytes are those of the program as the CPU compiler fused it; the chip's compiler fuses differently, "
    "mostly into fewer bytes"
)
NOT_FUSED = "before a compile, the bytes of fused operations have no bound; the prediction estimates them"
NOT_COUNTED = "the Snapshot does not contain the FLOPs and bytes of the program"


@dataclass(frozen=True)
class Term:
    """One part of the step. `seconds` is None if unknown.

    formula: with numbers filled in. basis: its inputs, or why it is unknown.
    axes: the mesh axes of a communication; None if unknown. wire_bytes: bytes that a device sends over them.
    inside, between: expected seconds of a communication on the links of a slice, and on the network between
      slices (`collective_cost`). XLA combines independent collectives up to `COMBINED_BYTES`.
    beside, summed: seconds of `inside` that run beside the products of a TPU, and of all other reductions.
    messages, latency: the number of collectives then, and their seconds without any bytes.
    combined: seconds of a communication if collectives of one operation, which run equally often, are one.
      Compilers combine them, and then wait for the hops of the links only once. Permutes in both directions
      of a ring take as long as those in one.
    anywhere: the same wherever the devices are: with one hop, and all links of a chip. None if their places
      are known.
    """

    name: str
    kind: Kind
    seconds: float | None
    formula: str
    basis: str = ""
    axes: tuple[str, ...] | None = None
    wire_bytes: int | None = None
    inside: float = 0.0
    between: float = 0.0
    messages: float = 0.0
    latency: float = 0.0
    combined: float = 0.0
    anywhere: float | None = None
    beside: float = 0.0
    summed: float = 0.0

    @property
    def least(self) -> float | None:
        """The least seconds, whichever collectives a compiler combines, wherever the devices are."""
        if self.kind != "communication" or not self.seconds:
            return self.seconds
        return self.combined if self.anywhere is None else min(self.anywhere, self.combined)


@dataclass(frozen=True)
class Intensity:
    """FLOPs per byte of one term, and the critical number above which compute takes longer."""

    name: str
    flops_per_byte: float | None
    critical: float | None


@dataclass(frozen=True)
class Modelled:
    """The modelled step of a program on a chip. Figures are None if unknown.

    flops, hbm_bytes, wire_bytes: of one device and one run; FLOPs of matrix products only.
    flops_per_second: the peak, averaged over the operand types of the program.
    ideal_flops: FLOPs of the program before partitioning, for all devices together.
    wasted: share of all devices' FLOPs beyond the ideal; negative if the compiler removed work.
    utilisation: ideal FLOPs over the peak FLOPs of all devices in `lower_seconds`.
    ruling: the longest term. lower_seconds: its time, before a compile without communication.
    upper_seconds: the sum of all terms.
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
    """Model one run of a program on a mesh of such chips.

    Args:
      links: the link of each tuple of mesh axes; by default from `mesh_links.links_of`.
    """
    every = (collective.mesh_axes for collective in program.collectives or ())
    along = tuple(dict.fromkeys(axes for axes in every if axes is not None))
    if links is None:
        links = links_of(mesh, chip, along)
    compute, peak, runs_as, notes = _compute(program, chip)
    communication = _communication(program, along, links, default_constants(chip))
    terms = (compute, _memory(program, mesh, chip), *communication)

    seconds = [term.seconds for term in terms]
    known = [value for value in seconds if value is not None]
    whole = len(known) == len(seconds)
    lower = None
    # A compiler can drop collectives, but no FLOPs of matrix products, arguments, results or constants.
    if known and (whole or program.before_compile):
        certain = terms[:2] if program.before_compile else terms
        least = max((term.least for term in certain if term.least is not None), default=0.0)
        lower = max(least, least_traffic_seconds(program, chip))
    flops, ideal = (work.matmul_flops if work else None for work in (program.work, program.ideal))
    devices, ratio = program.devices_on(mesh) or mesh.size, program.repeated_on(mesh)
    assumed = (links[axes].assumption for axes in along if axes and axes in links)
    return Modelled(
        program=program.name,
        chip=chip,
        devices=devices,
        terms=terms,
        flops=flops,
        flops_per_second=peak,
        hbm_bytes=_hbm_bytes(program, chip),
        wire_bytes=sum_known(term.wire_bytes for term in communication),
        ideal_flops=ideal,
        wasted=1 - 1 / ratio if ratio else None,
        utilisation=(ideal / (devices * peak * lower) if ideal is not None and peak and lower else None),
        ruling=max(terms, key=lambda term: term.least or 0) if lower else None,
        lower_seconds=lower,
        upper_seconds=sum(known) if whole else None,
        intensities=_intensities(flops, peak, program, communication, chip, links),
        runs_as=runs_as,
        assumptions=(*notes, *dict.fromkeys(filter(None, assumed))),
    )


def least_traffic_seconds(program: Program, chip: Chip) -> float:
    """Return the least seconds for the bytes that a partitioned program moves in HBM; 0 if unknown.

    Arguments and results are moved once, unless only parts of them are used.
    """
    work = program.work
    if not program.before_compile or work is None:
        return 0.0
    if work.boundary_bytes is None or work.fused_bytes is None:
        return 0.0
    return hbm_time(min(work.boundary_bytes, work.fused_bytes), chip).seconds


def bound_text(model: Modelled) -> str:
    """Return both bounds and the longest term: `12.3 µs to 40.1 µs, bound by HBM`."""
    missing = [term.name for term in model.terms if term.seconds is None]
    if model.lower_seconds is None or (model.lower_seconds == 0 and missing):
        return f"unknown, because {and_text(missing)} {'is' if len(missing) == 1 else 'are'}"
    if model.upper_seconds is None:
        return f"at least {seconds_text(model.lower_seconds)}, without {and_text(missing)}"
    lower, upper = seconds_text(model.lower_seconds), seconds_text(model.upper_seconds)
    bound = f", bound by {model.ruling.name}" if model.ruling else ""
    return f"{lower}{bound}" if lower == upper else f"{lower} to {upper}{bound}"


def _compute(program: Program, chip: Chip) -> tuple[Term, float | None, tuple[str, ...], tuple[str, ...]]:
    """Return the term, the average peak, the operand types of the peaks, and the assumptions."""
    products = program.work.matmul if program.work else None
    if program.work is None or products is None:
        return Term("compute", "compute", None, "", NOT_COUNTED), None, (), ()
    used = [product for product in products if product.flops]
    peaks = {product.dtype: chip.peak(product.dtype) for product in used}
    missing = [dtype for dtype, peak in peaks.items() if peak is None]
    if missing:
        why = f"the peak of {chip.title} for {', '.join(missing)} is unknown"
        return Term("compute", "compute", None, "", why), None, (), ()
    times = [compute_time(product.flops, chip, product.dtype) for product in used]
    seconds = sum(time.seconds for time in times)
    known = [peak for peak in peaks.values() if peak is not None]
    notes = [peak.assumption for peak in known if peak.assumption]
    if program.work.not_counted:
        calls = ", ".join(program.work.not_counted)
        notes.append(f"Without custom calls, whose FLOPs are unknown: {calls}.")
    formula = " + ".join(time.formula for time in times) or "no matrix products"
    return (
        Term("compute", "compute", seconds, formula, MATMUL_ONLY),
        sum(product.flops for product in used) / seconds if seconds else None,
        tuple(dict.fromkeys(peak.runs_as for peak in known)),
        tuple(dict.fromkeys(notes)),
    )


def _hbm_bytes(program: Program, chip: Chip) -> float | None:
    """Return the bytes that a device moves to and from HBM. Before fusion they are unknown.

    An operation that the compiler expects to end before HBM could have moved its bytes has some of them on
    the chip, or moves only parts of its operands. Then the bytes in this time count.
    """
    if program.work is None or program.before_compile:
        return None
    accessed = program.work.bytes_accessed
    scheduled = _scheduled_bytes(program, chip)
    return accessed if accessed is None or scheduled is None else min(accessed, scheduled)


def _scheduled_bytes(program: Program, chip: Chip) -> float | None:
    """Return the bytes that the operations of a schedule with estimated cycles can move; None without any.

    Asynchronous copies are left out: their bytes are counted at their use.
    """
    if program.schedule is None or chip.clock_hertz is None:
        return None
    rate = chip.hbm_bytes_per_second_per_device
    times = executions(program)
    total, estimated = 0.0, False
    for computation in program.schedule.computations:
        for operation in computation.operations:
            if (
                operation.bytes is None
                or operation.begins
                or operation.host
                or operation.collective is not None
            ):
                continue
            moved = float(operation.bytes)
            if operation.cycles is not None:
                estimated = True
                moved = min(moved, operation.cycles / chip.clock_hertz * rate)
            total += times.get(computation.name, 0) * moved
    return total if estimated else None


def _memory(program: Program, mesh: Mesh, chip: Chip) -> Term:
    if program.before_compile:
        return Term("HBM", "memory", None, "", NOT_FUSED)
    count = _hbm_bytes(program, chip)
    if count is None:
        return Term("HBM", "memory", None, "", NOT_COUNTED)
    time = hbm_time(count, chip)
    return Term("HBM", "memory", time.seconds, time.formula, EMULATED_BYTES if is_emulated(mesh) else "")


def _communication(
    program: Program,
    along: Iterable[tuple[str, ...]],
    links: Mapping[tuple[str, ...], Link | NoLink],
    constants: ChipConstants,
) -> tuple[Term, ...]:
    if program.collectives is None:
        why = "the collectives of the program are unknown"
        return (Term("communication", "communication", None, "", why),)
    terms = [
        _along(
            axes,
            tuple(collective for collective in program.collectives if collective.mesh_axes == axes),
            links.get(axes),
            constants,
        )
        for axes in along
        if axes  # groups of one device each move nothing
    ]
    unplaced = [
        collective
        for collective in program.collectives
        if collective.mesh_axes is None and collective.executions != 0
    ]
    if unplaced:
        why = f"{counted(len(unplaced), 'collective')} with groups that no mesh axes form"
        terms.append(Term(f"communication, {mesh_axes_text(None)}", "communication", None, "", why))
    return tuple(terms)


def _along(
    axes: tuple[str, ...],
    collectives: tuple[Collective, ...],
    link: Link | NoLink | None,
    constants: ChipConstants,
) -> Term:
    name = f"communication over {mesh_axes_text(axes)}"
    rows = traffic(collectives)
    wire = sum_known(row.wire_bytes_per_device for row in rows)
    if link is None or isinstance(link, NoLink):
        why = link.assumption if link else "the link of these axes is missing"
        return Term(name, "communication", seconds=None, formula="", basis=why, axes=axes, wire_bytes=wire)
    seconds: dict[str, float] = {}
    payloads: dict[Payload, float] = {}
    independent: dict[Combinable, list[int]] = {}  # their payloads
    beside: dict[Combinable, list[int]] = {}  # those of them that run beside products
    summed: dict[Combinable, list[int]] = {}  # the other reductions
    windowed = _windowed(collectives)
    largest: dict[str, tuple[int, ModelledSeconds]] = {}
    # Layers have collectives of the same size.
    times: dict[tuple[str, int, int | None], ModelledSeconds] = {}
    for collective in collectives:
        if collective.executions == 0:
            continue
        known = collective.op in OPERATIONS  # a file may have an operation of a later XLA
        if collective.executions is None or collective.payload_bytes is None or not known:
            what = "executions" if collective.executions is None else "payload" if known else "operation"
            why = f"{what} of {collective.name} unknown"
            return Term(
                name, "communication", seconds=None, formula="", basis=why, axes=axes, wire_bytes=wire
            )
        size = collective.op, collective.payload_bytes, collective.group_size
        part = link_of(collective, link)
        assert not isinstance(part, NoLink)  # a part of a known link
        if size not in times:
            times[size] = collective_time(*size[:2], part)
        time = times[size]
        seconds[collective.op] = seconds.get(collective.op, 0.0) + collective.executions * time.seconds
        runs = collective.op, collective.executions, shift_of(collective), part
        payloads[runs] = payloads.get(runs, 0.0) + collective.payload_bytes
        place = None if collective.depth is None else collective.computation
        key = runs, place, collective.depth
        independent.setdefault(key, []).append(collective.payload_bytes)
        if windowed and _of_product(collective):
            beside.setdefault(key, []).append(collective.payload_bytes)
        elif collective.op in REDUCTIONS:
            summed.setdefault(key, []).append(collective.payload_bytes)
        if collective.op not in largest or collective.payload_bytes > largest[collective.op][0]:
            largest[collective.op] = collective.payload_bytes, time
    formula = " + ".join(
        f"{row.executions:,} × {row.op}"
        f" ({'' if row.executions == 1 else 'the largest '}{largest[row.op][1].formula})"
        for row in rows
        if row.op in seconds
    )
    branches = any(row.conditional for row in rows)
    basis = "all branches of conditionals count as taken" if branches else ""
    return Term(
        name,
        "communication",
        sum(seconds.values()),
        formula or "never run",
        basis,
        axes,
        wire,
        *_expected(independent, constants),
        combined=_combined(payloads),
        anywhere=_anywhere(wire, payloads, link),
        beside=_expected(beside, constants)[0],
        summed=_expected(summed, constants)[0],
    )


def _windowed(collectives: Sequence[Collective]) -> bool:
    """Return whether collectives over some mesh axes move activations for products, and nearly no arrays.

    XLA for TPUs divides such a product into steps, each of which runs beside a part of the transfer (Wang et
    al. 2023, doi:10.1145/3567955.3567959). An axis that also moves weights or their gradients shards the
    batch: there, a quantized weight is a computed value too.
    """
    sent = [(one, (one.executions or 0) * (one.payload_bytes or 0)) for one in collectives]
    return sum(amount for one, amount in sent if one.arrays) < _FEW * sum(amount for _, amount in sent)


def _of_product(collective: Collective) -> bool:
    """Return whether a product needs a gather or sum, and it moves no array of the state or batch."""
    ring = OPERATIONS[collective.op].route == "ring"
    return ring and collective.arrays == () and collective.operation in PRODUCTS


_MATRIX = PRODUCTS - {"convolution", "conv_general_dilated"}  # convolutions wait for their neighbors' edges


def beside_products(program: Program, chip: Chip) -> frozenset[int]:
    """Return the positions of the collectives of a compiled program that run beside the products of a TPU.

    The compiler divides those of `_of_product` into permutes, most of the bytes over these mesh axes, and
    gives them the name of the product or none. Gathers over other axes, such as of weights, have no permutes.
    """
    by_axes = by_key((one.mesh_axes, (n, one)) for n, one in enumerate(program.collectives or ()))
    beside: set[int] = set()
    for axes, own in by_axes.items() if chip.kind == "tpu" else ():
        sent = {n: (one.executions or 0) * (one.payload_bytes or 0) for n, one in own}
        names = {n: parse_op_name(one.op_name)[0].primitive for n, one in own}
        moved = {n for n, one in own if names[n] in ("", *_MATRIX) and _is_part_of_window(one)}
        permuted = {n for n, one in own if n in moved and one.op == "collective-permute"}
        named = any(names[n] in _MATRIX for n in moved)
        if axes and named and 2 * sum(sent[n] for n in permuted) > sum(sent.values()):
            beside |= moved
    return frozenset(beside)


def _is_part_of_window(collective: Collective) -> bool:
    operation = OPERATIONS.get(collective.op)  # a file may have one of a later XLA
    windowed = operation is not None and (operation.route == "ring" or collective.op == "collective-permute")
    return windowed and collective.arrays == () and collective.network is None


def _anywhere(wire: int | None, payloads: Mapping[Payload, float], link: Link) -> float | None:
    """Return the least seconds of transfers if the places of the devices are assumed; None if known."""
    if not isinstance(link, TorusLink) or link.fastest is None or wire is None:
        return None
    runs = max((times for _, times, _, _ in payloads), default=0.0)
    hop = min(ring.hop_seconds for ring in link.rings)
    return max(wire / link.fastest, runs * hop)


def _expected(
    independent: Mapping[Combinable, Sequence[int]], constants: ChipConstants
) -> tuple[float, float, float, float]:
    """Return the expected seconds inside and between slices, the number of messages, and their latency."""
    inside = between = messages = latency = 0.0
    for ((op, times, _, link), _, _), sizes in independent.items():
        sent, payload = len(sizes), sum(sizes)
        if OPERATIONS[op].route == "ring":
            sent = min(sent, math.ceil(max(payload, 1) / COMBINED_BYTES))
        cost = expected(op, payload / sent, link, constants)
        inside += times * sent * cost.inside
        between += times * sent * cost.between
        messages += times * sent
        latency += times * sent * cost.latency
    return inside, between, messages, latency


def _combined(payloads: Mapping[Payload, float]) -> float:
    """Return the seconds of combined collectives. The directions of a ring move data at the same time."""
    seconds: dict[str | None, float] = {}
    for (op, times, direction, link), payload in payloads.items():
        taken = times * collective_time(op, payload, link).seconds
        seconds[direction] = seconds.get(direction, 0.0) + taken
    return seconds.get(None, 0.0) + max(seconds.get(sign, 0.0) for sign in SIGNS)


def _intensities(
    flops: float | None,
    peak: float | None,
    program: Program,
    communication: Iterable[Term],
    chip: Chip,
    links: Mapping[tuple[str, ...], Link | NoLink],
) -> tuple[Intensity, ...]:
    # Per term: its name, its bytes, and the bytes per second of one device.
    rows: list[tuple[str, float | None, float | None]] = [
        ("HBM", _hbm_bytes(program, chip), chip.hbm_bytes_per_second_per_device)
    ]
    for term in communication:
        link = links.get(term.axes) if term.axes else None
        # The wire bytes of one device during a large all-gather.
        outward = None
        if link is not None and not isinstance(link, NoLink) and link.size > 1:
            outward = effective_bytes_per_second(link) * (link.size - 1) / link.size
        rows.append((term.name, term.wire_bytes, outward))
    return tuple(
        Intensity(
            name,
            flops / count if flops is not None and count else None,
            critical_intensity(peak, rate) if peak and rate else None,
        )
        for name, count, rate in rows
    )
