"""The rule that a layout is close to the best one that a search has found."""

from __future__ import annotations

import math

from inspector.checks.policy.fields import Fields
from inspector.checks.policy.outcome import Check, Violation, name
from inspector.compare.search import result as results
from inspector.compare.search.goal import Goal
from inspector.compare.search.result import Candidate, SearchResult
from inspector.core.errors import InvalidInput
from inspector.core.formatting import mesh_sizes_text, seconds_text
from inspector.core.snapshot import Snapshot
from inspector.core.step_program import step_program
from inspector.layout import from_json
from inspector.machines import hardware
from inspector.machines.prediction.predicted import predicted_in


def search(fields: Fields) -> Check:
    """The predicted step is at most this much longer than that of the best layout in the result.

    Times of the same stage are compared: both compiled, or both propagated. The path of the result is
    relative to the policy file.
    """
    path = fields.text("result", required=True) or ""
    within = fields.percent("within_percent", required=True) or 0
    try:
        result = results.read(fields.folder / path)
    except InvalidInput as error:
        raise InvalidInput(f"{fields.where} result: {error}") from None
    file = name(path)

    def check(snapshot: Snapshot) -> tuple[list[Violation], str | None]:
        best = result.best_candidate
        if best is None:
            return [], f"{file} has no layout that fits"
        if snapshot.source.target not in (None, "plan", result.target):
            return [], f"{file} is for {name(result.target)}, not for {snapshot.source.target}"
        pair = _seconds(snapshot, result, best)
        if pair is None:
            return [], "the predicted step is unknown"
        own, least = pair
        if own <= least * (1 + float(within) / 100):
            return [], None
        layout = from_json(best.layout)
        mesh = mesh_sizes_text(layout.axis_names, layout.mesh_shape)
        return [
            Violation(
                f"the step takes {seconds_text(own)}, {own / least - 1:.0%} longer than with {mesh} "
                f"({seconds_text(least)}, {file}); at most {within}% is allowed"
            )
        ], None

    return check


def _seconds(snapshot: Snapshot, result: SearchResult, best: Candidate) -> tuple[float, float] | None:
    """Return the step of the Snapshot and of the best layout, from the same stage; None if unknown.

    Of a search with weights, these are the rounds of all programs that count.
    """
    step = step_program(snapshot)
    if step is None or snapshot.mesh is None or result.chip not in hardware.CHIPS:
        return None
    runs = {step.name: 1.0}
    if result.weights is not None:
        if snapshot.layout is None:
            return None
        runs = Goal(result.weights).runs(from_json(snapshot.layout))
    own = []
    for program_name in (program_name for program_name, number in runs.items() if number):
        program = snapshot.program(program_name)
        if program is None or program.before_compile != step.before_compile:
            return None
        seconds = predicted_in(snapshot, program, hardware.CHIPS[result.chip or ""]).seconds
        if seconds is None:
            return None
        own.append(seconds * runs[program_name])
    compiled = best.seconds if best.stage == "compiled" else None
    least = best.propagated_seconds if step.before_compile else compiled
    return (math.fsum(own), least) if least else None
