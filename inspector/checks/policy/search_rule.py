"""The rule that a layout is close to the best one that a search has found."""

from __future__ import annotations

from inspector.checks.policy.fields import Fields
from inspector.checks.policy.outcome import Check, Violation, name
from inspector.compare.search import result as results
from inspector.compare.search.result import Candidate, SearchResult
from inspector.core.errors import InvalidInput
from inspector.core.formatting import mesh_sizes_text, seconds_text
from inspector.core.snapshot import Snapshot
from inspector.layout import from_json
from inspector.machines import hardware
from inspector.machines.prediction.predicted import predicted_in

_PROGRAM = "train_step"


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
            return [], f"the predicted step of {_PROGRAM} is unknown"
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
    """Return the step of the Snapshot and of the best layout, from the same stage; None if unknown."""
    program = snapshot.program(_PROGRAM)
    if program is None or snapshot.mesh is None or result.chip not in hardware.CHIPS:
        return None
    compiled = best.seconds if best.stage == "compiled" else None
    least = best.propagated_seconds if program.before_compile else compiled
    own = predicted_in(snapshot, program, hardware.CHIPS[result.chip or ""]).seconds
    return None if own is None or not least else (own, least)
