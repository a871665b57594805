"""Fit the constants of a chip generation to published runs, and predict each run without its own model.

Three constants are fitted: the factor on the compiler's estimates for matrix products, the efficiency of
custom kernels, and that of links. Each is chosen from a grid, such that the mean absolute logarithm of
measured over predicted seconds is least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inspector.core.snapshot import Mesh, Program
from inspector.machines.hardware import Chip
from inspector.machines.prediction.calibration import Constants, default_constants
from inspector.machines.prediction.predicted import Links, links_of_program, predicted

# Values that are tried. A factor below 0.6 or an efficiency below 0.3 would hide a mistake.
_GRID: Mapping[str, tuple[float, ...]] = {
    "compute_factor": tuple(0.6 + 0.02 * step for step in range(31)),
    "kernel_efficiency": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    "link_efficiency": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
}
_ROUNDS = 3  # over all constants
# With fewer runs only the first constant is fitted, with fewer than that none.
_RUNS_FOR_ALL, _RUNS_FOR_ONE = 4, 2


@dataclass(frozen=True)
class MeasuredProgram:
    """A compiled program with the measured seconds of its step.

    Attributes:
      name: Name of the published run.
      model: Name of the published model.
    """

    name: str
    model: str
    chip: Chip
    program: Program
    mesh: Mesh
    seconds: float


def fitted(runs: Sequence[MeasuredProgram], chip: Chip) -> Constants:
    """Return the constants that fit the runs of a chip best."""
    own = [run for run in runs if run.chip.name == chip.name]
    best = default_constants(chip)
    names = list(_GRID) if len(own) >= _RUNS_FOR_ALL else list(_GRID)[:1]
    if len(own) < _RUNS_FOR_ONE:
        return best
    links = [links_of_program(run.program, run.mesh, run.chip) for run in own]
    for _ in range(_ROUNDS):
        for name in names:
            tried = [replace(best, **{name: value}) for value in _GRID[name]]
            best = min(tried, key=lambda constants: _error(own, links, constants))
    return best


def left_out(runs: Sequence[MeasuredProgram]) -> dict[str, float]:
    """Return the seconds of each run, predicted with constants fitted without the runs of its model."""
    found = {}
    for run in runs:
        others = [one for one in runs if one.model != run.model]
        constants = fitted(others, run.chip)
        seconds = predicted(run.program, run.mesh, run.chip, constants=constants).seconds
        if seconds is not None:
            found[run.name] = seconds
    return found


def _error(runs: Sequence[MeasuredProgram], links: Sequence[Links], constants: Constants) -> float:
    errors = []
    for run, link in zip(runs, links, strict=True):
        seconds = predicted(run.program, run.mesh, run.chip, link, constants).seconds
        if seconds:
            errors.append(abs(math.log(run.seconds / seconds)))
    return sum(errors) / len(errors) if errors else math.inf
