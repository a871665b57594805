"""Fit the constants of a chip generation to published runs, and predict each run without its own model.

Two constants are fitted for each generation: the factor on the compiler's estimates for matrix products, and
their efficiency before a compile. One is fitted for all chips together: the share of communication that is
exposed before a compile. Each is chosen from a list, such that the mean absolute logarithm of measured over
predicted seconds is least.

More constants predict the runs of other models worse: with the efficiency of custom kernels, whose best value
is the default on v5e and v5p, the median error of 45 runs is 10.1% instead of 8.9%.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from inspector.machines.hardware import Chip
from inspector.prediction.calibration import BeforeCompile, ChipConstants, default_constants, name_of_grouped
from inspector.prediction.predicted import (
    Links,
    attention_seconds,
    exposed_inside,
    grouped_seconds,
    links_of_program,
    on_whole_axes,
    predicted,
    traffic_seconds,
)
from inspector.prediction.step_model import modelled
from inspector.records.snapshot import Mesh, Program
from inspector.records.statistics import by_key

# Values of `compute_factor` that are tried. One below 0.6 would hide a mistake.
_FACTORS = tuple(0.6 + 0.02 * step for step in range(31))
# Steps of 2% would be as large as half of the median error.
_SHARES = tuple(step / 100 for step in range(20, 101))
# The errors with two shares that are nearer to each other differ by less than 1%.
_EXPOSED = tuple(step / 10 for step in range(11))
_PART = 0.5  # a share of transfers between none and all
# With runs of fewer models nothing is fitted for a chip: no run would show whether it is right for another.
_MODELS = 2


@dataclass(frozen=True)
class MeasuredProgram:
    """A compiled program with the measured seconds of its step.

    Attributes:
      name: Name of the published run.
      model: Name of the published model.
      mixture: Whether it is a mixture of experts.
    """

    name: str
    model: str
    chip: Chip
    program: Program
    mesh: Mesh
    seconds: float
    mixture: bool = False


class Predictions:
    """Predicted seconds of programs by constants. Each is simulated once, because fits repeat them."""

    def __init__(self) -> None:
        self._links: dict[str, Links] = {}
        self._seconds: dict[tuple[str, ChipConstants], float | None] = {}

    def seconds(self, run: MeasuredProgram, constants: ChipConstants) -> float | None:
        """Return the predicted seconds of a run; None if unknown. Runs are identified by their names."""
        key = run.name, constants
        if key not in self._seconds:
            if run.name not in self._links:
                self._links[run.name] = links_of_program(run.program, run.mesh, run.chip)
            links = self._links[run.name]
            found = predicted(run.program, run.mesh, run.chip, links, constants)
            self._seconds[key] = found.seconds
        return self._seconds[key]


def fitted(
    runs: Sequence[MeasuredProgram], chip: Chip, predictions: Predictions | None = None
) -> ChipConstants:
    """Return the constants that fit the runs of a chip best."""
    own = [run for run in runs if run.chip.name == chip.name]
    default = default_constants(chip)
    if len({run.model for run in own}) < _MODELS:
        return default
    known = predictions or Predictions()
    tried = [replace(default, compute_factor=factor) for factor in _FACTORS]
    return min(tried, key=lambda constants: _error(own, known, constants))


def left_out(runs: Sequence[MeasuredProgram], predictions: Predictions | None = None) -> dict[str, float]:
    """Return the seconds of each run, predicted with constants fitted without the runs of its model."""
    known = predictions or Predictions()
    fits: dict[tuple[str, str], ChipConstants] = {}
    found: dict[str, float] = {}
    for run in runs:
        key = run.model, run.chip.name
        if key not in fits:
            others = [one for one in runs if one.model != run.model]
            fits[key] = fitted(others, run.chip, known)
        seconds = known.seconds(run, fits[key])
        if seconds is not None:
            found[run.name] = seconds
    return found


@dataclass(frozen=True)
class PartitionedRun:
    """A partitioned program with the measured seconds of its step.

    Attributes:
      compute, communication: Seconds of the modelled terms, at the peak and at nominal bandwidths.
        Compute is without attention and products of experts that kernels compute. Communication is that
        inside of a slice of which a share is exposed.
      summed, beside: Seconds of other transfers inside of a slice, which are exposed in full or run beside
        the products.
      between_slices: Seconds of transfers between slices, at the bandwidth that is achieved.
      traffic: Seconds for reading and writing HBM.
      attention: Seconds of the kernel of attention.
      grouped: Seconds of the kernels of experts at the peak, by operand type.
      longest: Seconds of the transfers over one tuple of mesh axes that take longest.
      mixture: Whether it is a mixture of experts. The way of tokens to experts takes longer than modelled,
        which constants of products and links must not hide.
    """

    name: str
    model: str
    chip: Chip
    compute: float
    communication: float
    seconds: float
    between_slices: float = 0.0
    traffic: float = 0.0
    attention: float = 0.0
    longest: float = 0.0
    mixture: bool = False
    grouped: Mapping[str, float] = field(default_factory=dict)
    summed: float = 0.0
    beside: float = 0.0


def partitioned_run(run: MeasuredProgram) -> PartitionedRun | None:
    """Return the terms of a partitioned program; None if one is unknown."""
    bounds = modelled(on_whole_axes(run.program, run.mesh), run.mesh, run.chip)
    terms = [one for one in bounds.terms if one.kind != "memory"]
    if any(one.seconds is None for one in terms):
        return None
    replaced, attention = attention_seconds(run.program, run.chip)
    products, grouped = grouped_seconds(run.program, run.chip)
    compute = sum(one.seconds or 0.0 for one in terms if one.kind == "compute")
    between = sum(one.between for one in terms)
    # Seconds without and with a share of all transfers: what is between both is that of which a share counts.
    least, most = (
        sum(exposed_inside(one, bounds, math.inf, share) for one in terms) for share in (0.0, _PART)
    )
    communication = (most - least) / _PART
    beside = sum(one.beside for one in terms) if run.chip.kind == "tpu" else 0.0
    return PartitionedRun(
        run.name,
        run.model,
        run.chip,
        max(0.0, compute - replaced - products),
        communication,
        run.seconds,
        between,
        traffic_seconds(run.program, run.chip),
        attention,
        max((one.combined for one in terms if one.kind == "communication"), default=0.0),
        run.mixture,
        grouped,
        least,
        beside,
    )


def fitted_before_compile(runs: Sequence[PartitionedRun]) -> BeforeCompile:
    """Return the constants for a prediction without a compile that fit the runs of dense models best.

    The efficiency of a chip with runs of fewer than two models is that of all TPUs or GPUs. That of kernels
    for experts is fitted after it, to the mixtures of experts of a chip if they are at least two models.
    """
    dense = [run for run in runs if not run.mixture] or list(runs)
    tried = [_fitted_before_compile(dense, share) for share in _EXPOSED]
    best = min(tried, key=lambda constants: _error_before_compile(dense, constants))
    names = ((run, {name_of_grouped(run.chip, dtype) for dtype in run.grouped}) for run in runs)
    by_name = by_key((name, run) for run, own in names for name in own)
    grouped = {}
    for name, own in sorted(by_name.items()):
        if len({run.model for run in own}) >= _MODELS:
            of_share = {share: replace(best, grouped={name: share}) for share in _SHARES}
            grouped[name] = min(of_share, key=lambda share: _error_before_compile(own, of_share[share]))
    return replace(best, grouped=grouped)


def _fitted_before_compile(runs: Sequence[PartitionedRun], exposed_share: float) -> BeforeCompile:
    by_chip: dict[str, list[PartitionedRun]] = {
        "": [run for run in runs if run.chip.kind == "tpu"] or list(runs)
    }
    for run in runs:
        by_chip.setdefault(run.chip.name, []).append(run)
        if run.chip.kind == "gpu":
            by_chip.setdefault("gpu", []).append(run)
    efficiency = {}
    for chip, own in by_chip.items():
        if len({run.model for run in own}) >= _MODELS or chip in ("", "gpu"):
            names = {"gpu"} if chip == "gpu" else {run.chip.name for run in own}
            tried = {
                share: BeforeCompile(dict.fromkeys(("", *names), share), exposed_share) for share in _SHARES
            }
            efficiency[chip] = min(tried, key=lambda share: _error_before_compile(own, tried[share]))
    return BeforeCompile(efficiency, exposed_share)


def _error_before_compile(runs: Sequence[PartitionedRun], constants: BeforeCompile) -> float:
    return sum(abs(math.log(run.seconds / _before(run, constants))) for run in runs)


def left_out_before_compile(runs: Sequence[PartitionedRun]) -> dict[str, float]:
    """Return the seconds of each run, predicted with constants fitted without the runs of its model."""
    found: dict[str, float] = {}
    for model in {run.model for run in runs}:
        others = [run for run in runs if run.model != model]
        if others:
            constants = fitted_before_compile(others)
            found |= {run.name: _before(run, constants) for run in runs if run.model == model}
    return found


def left_out_chip(runs: Sequence[PartitionedRun]) -> dict[str, float]:
    """Return the seconds of each run, predicted with constants fitted without the runs of its chip."""
    found: dict[str, float] = {}
    for chip in {run.chip.name for run in runs}:
        others = [run for run in runs if run.chip.name != chip]
        if others:
            constants = fitted_before_compile(others)
            found |= {run.name: _before(run, constants) for run in runs if run.chip.name == chip}
    return found


def before_compile_seconds(runs: Sequence[PartitionedRun], constants: BeforeCompile) -> dict[str, float]:
    """Return the seconds of each run before its compile."""
    return {run.name: _before(run, constants) for run in runs}


def _before(run: PartitionedRun, constants: BeforeCompile) -> float:
    products = run.compute / constants.of(run.chip) + constants.grouped_seconds(run.grouped, run.chip)
    products += run.attention
    longer = max(0.0, run.beside - max(products, run.traffic))
    inside = run.communication * constants.exposed_share + run.summed + longer
    return max(products + run.traffic + inside + run.between_slices, run.longest)


def _error(runs: Sequence[MeasuredProgram], predictions: Predictions, constants: ChipConstants) -> float:
    errors = []
    for run in runs:
        seconds = predictions.seconds(run, constants)
        if seconds:
            errors.append(abs(math.log(run.seconds / seconds)))
    return sum(errors) / len(errors) if errors else math.inf
