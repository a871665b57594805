"""Which activations a step keeps for its backward pass, which it computes again, and what that costs.

The program before its compile shows the wishes of the code and its policy, the compiled one what the compiler
made of it. The names of `checkpoint_name` come from the traced code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from inspector.hlo import shapes
from inspector.hlo.op_name import phases_of
from inspector.machines.hardware import Chip
from inspector.prediction.evidence import partitioned_for, platform_of
from inspector.prediction.predicted import Predicted, predicted_in
from inspector.prediction.simulation import seconds_by_module
from inspector.records.snapshot import (
    CheckpointName,
    CheckpointPolicy,
    KeptActivation,
    MatmulFlops,
    Program,
    RecomputedOperation,
    Residuals,
    Snapshot,
)

Place = Literal["device", "host", "recomputed"]
_NO_NAME: Sequence[CheckpointName | None] = (None,)
_ORDER: dict[Place, int] = {"device": 0, "host": 1, "recomputed": 2}
_SAME = 0.01  # share up to which two programs keep the same bytes


@dataclass(frozen=True)
class Activation:
    """Equal activations of a step.

    Attributes:
      label: their `checkpoint_name`, or else the module and the primitive that computes them.
      named: whether the label is a `checkpoint_name`.
      place: `device` or `host` if they are kept there, `recomputed` if the backward pass computes them again.
      asked: the place that the policy asks for, if it is another one. None otherwise.
      count: number of values, such as one for each layer.
      shape: element type and shape of one value on one device as HLO writes them.
      bytes: bytes of all on one device: kept ones, or those that are not kept. None if unknown.
      flops: floating-point operations that compute them again on one device.
      source: file and line, such as file.py:31. None if unknown.
    """

    label: str
    named: bool
    place: Place
    asked: Place | None
    count: int
    shape: str
    bytes: int | None
    flops: float
    source: str | None


@dataclass(frozen=True)
class ActivationAmounts:
    """Bytes that are kept on one device and on the host for it, and FLOPs that are computed again."""

    device: int
    host: int
    flops: float | None
    matmul: float


@dataclass(frozen=True)
class Activations:
    """The activations of one program.

    Attributes:
      program: its name.
      compiled: whether a compiler made the program.
      rows: kept ones first, each kind by bytes.
      amounts: of the program.
      asked: of the program before its compile. None if it is not compiled, or if that is not recorded.
      policy: whether the code computes activations again, or places those with a name.
      share: FLOPs of matrix products that are computed again / all FLOPs. None if unknown.
      seconds: approximate seconds of the predicted step for computing again. None if unknown.
      step: the predicted step. None if unknown.
      at_peak: bytes of activations on one device at the peak of the program's memory, where others are no
        longer, or not yet, in use. None if unknown.
      by_compiler: number of instructions that the compiler computes again on its own, to save memory.
      same_work: whether the compiled program is known to compute the same matrix products.
      has_names: whether the names in the code are known.
      emulated: whether it was compiled for CPU devices, which have one memory.
    """

    program: str
    compiled: bool
    rows: tuple[Activation, ...]
    amounts: ActivationAmounts
    asked: ActivationAmounts | None
    policy: bool
    share: float | None
    seconds: float | None
    step: float | None
    at_peak: int | None
    by_compiler: int
    same_work: bool
    has_names: bool
    emulated: bool

    @property
    def moved(self) -> tuple[Activation, ...]:
        """The named ones that are not where their policy puts them."""
        return tuple(row for row in self.rows if row.asked is not None)

    @property
    def as_asked(self) -> bool | None:
        """Whether the compiler follows the policy; None if that is unknown, or without a policy."""
        if self.moved:
            return False
        if self.asked is None or not self.policy or not self.same_work:
            return None
        kept, wanted = (one.device + one.host for one in (self.amounts, self.asked))
        return (1 - _SAME) * kept <= wanted and not self.by_compiler


def has_backward(program: Program) -> bool:
    """Return whether a program is known to have a backward pass that reads or computes activations."""
    return program.residuals is not None and bool(program.residuals.kept or program.residuals.recomputed)


def activations(snapshot: Snapshot, program: Program, chip: Chip | None) -> Activations | None:
    """Return the activations of a program; None if they are unknown, or if it has no backward pass.

    Args:
      snapshot: one of `for_chip`.
      chip: that of the prediction. None for no seconds.
    """
    residuals = program.residuals
    if residuals is None or not has_backward(program):
        return None
    platform = platform_of(snapshot, program)
    before = None if program.before_compile else partitioned_for(snapshot, program, platform)
    asked = None if before is None else before.residuals
    products = [one.work.matmul_flops if one and one.work else None for one in (before, program)]
    same_work = None not in products and products[0] == products[1]
    if asked is not None and same_work and residuals.flops is None:
        residuals = replace(residuals, recomputed=asked.recomputed, flops=asked.flops, matmul=asked.matmul)
    names = program.checkpoint_names
    rows = _rows(residuals, names or (), compiled=not program.before_compile)
    seconds = step = None
    if chip is not None and snapshot.mesh_of(program) is not None:
        predicted = predicted_in(snapshot, program, chip)
        step = predicted.seconds if not predicted.at_least else None
        seconds = None if step is None else recomputing_seconds(predicted, program)
    total, use = program.work and program.work.flops_once, program.memory_use
    amounts, groups = _amounts(rows, residuals), () if use is None else use.groups
    at_peak = sum(group.bytes[use.peak] for group in groups if use and group.group == "activation")
    return Activations(
        program.name,
        not program.before_compile,
        rows=rows,
        amounts=amounts,
        asked=None if asked is None else _amounts(_rows(asked, names or (), compiled=False), asked),
        policy=any(name.policy and name.name for name in names or ())
        or any(
            code.residuals is not None and bool(code.residuals.recomputed)
            for code in (before, program)
            if code
        ),
        share=None if amounts.flops is None or not total else amounts.matmul / total,
        seconds=seconds,
        step=step,
        at_peak=None if use is None or not use.points else at_peak,
        by_compiler=residuals.by_compiler,
        same_work=same_work,
        has_names=names is not None,
        emulated=platform == "cpu",
    )


def _amounts(rows: Sequence[Activation], residuals: Residuals) -> ActivationAmounts:
    kept = {place: sum(row.bytes or 0 for row in rows if row.place == place) for place in ("device", "host")}
    return ActivationAmounts(kept["device"], kept["host"], residuals.flops, sum(residuals.matmul.values()))


def _rows(residuals: Residuals, names: Sequence[CheckpointName], compiled: bool) -> tuple[Activation, ...]:
    left = list(names)
    rows: list[Activation] = []
    for kept in residuals.kept:
        for name in _named(kept, left, ("saved", "offloaded", None, "recomputed")):
            policy = None if name is None else name.policy
            wanted: Place = "host" if kept.host or policy == "offloaded" else "device"
            place: Place = ("host" if kept.host else "device") if compiled else wanted
            if policy == "recomputed":  # XLA computes equal operations once
                wanted = "recomputed"
            rows.append(_row(kept, name, place, wanted if wanted != place else None, 0.0))
    for operation in residuals.recomputed:
        for name in _named(operation, left, ("recomputed",)):
            rows.append(_row(operation, name, "recomputed", None, operation.flops))
    return tuple(sorted(rows, key=lambda row: (_ORDER[row.place], -row.flops, -(row.bytes or 0))))


def _row(
    activation: KeptActivation | RecomputedOperation,
    name: CheckpointName | None,
    place: Place,
    asked: Place | None,
    flops: float,
) -> Activation:
    """Return the row of the values with one name, which are all equal."""
    operation = "/".join(filter(None, (activation.module, activation.primitive)))
    count, size = activation.count, activation.bytes
    if name is not None and name.count != count:
        size = None if size is None else size * name.count // count
        flops, count = flops * name.count / count, name.count
    label = name.name if name is not None and name.name else operation
    named = name is not None and bool(name.name)
    return Activation(
        label,
        named,
        place=place,
        asked=asked,
        count=count,
        shape=activation.shape,
        bytes=size,
        flops=flops,
        source=activation.source,
    )


def _named(
    activation: KeptActivation | RecomputedOperation,
    names: list[CheckpointName],
    policies: Sequence[CheckpointPolicy | None],
) -> Sequence[CheckpointName | None]:
    """Take the names of equal values from those in the code: of the same operation, type, size and number.

    Return one None if they have no name.

    Args:
      names: those that no other value has; the names that are returned are removed.
      policies: of these names, the most likely one first.
    """
    shape = shapes.parse(activation.shape)
    if shape is None or not shape.elements:
        return _NO_NAME
    dtype = shapes.jax_dtype(shape.dtype)

    def same(name: CheckpointName) -> bool:
        return name.primitive == activation.primitive

    fitting = [
        name
        for name in names
        if (name.module, name.dtype) == (activation.module, dtype)
        and name.elements % shape.elements == 0
        and name.policy in policies
        and (activation.source in (name.source, name.computed) if activation.source else same(name))
    ]
    fitting.sort(
        key=lambda name: (name.source != activation.source, not same(name), policies.index(name.policy))
    )
    taken: list[CheckpointName] = []
    for name in fitting:
        enough = sum(checkpoint_name.count for checkpoint_name in taken) + name.count <= activation.count
        if enough and name.elements == fitting[0].elements:
            taken.append(name)
    if sum(checkpoint_name.count for checkpoint_name in taken) != activation.count:
        return _NO_NAME
    for name in taken:
        names.remove(name)
    return taken


def recomputing_seconds(predicted: Predicted, program: Program) -> float | None:
    """Return the approximate seconds of a predicted step in operations that the backward pass runs again.

    By the schedule of a compiled program it is the time of the core in them. Before a compile, it is their
    share of the matrix products, of the other memory traffic and of the communication. None if unknown.
    """
    residuals = program.residuals
    if residuals is None or predicted.seconds is None:
        return None
    if predicted.simulated is not None and program.schedule is not None:
        modules = seconds_by_module(predicted.simulated, program).values()
        return sum(row.get("rematerialised", 0.0) for row in modules)
    totals, work = predicted.before_compile, program.work
    if totals is None or work is None or residuals.fused_bytes is None:
        return None
    chip = predicted.chip
    again = [MatmulFlops(dtype, flops) for dtype, flops in residuals.matmul.items()]
    products = _share(_at_peak(again, chip), _at_peak(work.matmul or (), chip))
    traffic = _share(residuals.fused_bytes, work.fused_bytes or 0.0)
    sent: dict[tuple[str, bool], list[float]] = {}
    for collective in program.collectives or ():
        size = (collective.wire_bytes_per_device or 0) * (collective.executions or 0)
        key = "+".join(collective.axis_names), collective.network is not None
        of_axes = sent.setdefault(key, [0.0, 0.0])
        of_axes[0] += size if phases_of(collective.op_name) == {"rematerialised"} else 0.0
        of_axes[1] += size
    waits = sum(seconds * _share(*sent.get(key, (0.0, 0.0))) for key, seconds in totals.waits.items())
    return totals.matrix * products + totals.memory * traffic + waits


def _at_peak(products: Sequence[MatmulFlops], chip: Chip) -> float:
    peaks = {product.dtype: chip.peak(product.dtype) for product in products}
    return sum(
        product.flops / peak.flops_per_second
        for product in products
        if (peak := peaks[product.dtype]) is not None
    )


def _share(part: float, whole: float) -> float:
    return min(part / whole, 1.0) if whole else 0.0
