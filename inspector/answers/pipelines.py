"""The pipelines of a program: stages, microbatches, the bubble and its cost, and the schedule."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from inspector import figures
from inspector.answers.section import Block, Picture, Preformatted, Section, text, with_code
from inspector.machines import targets
from inspector.machines.hardware import Chip
from inspector.prediction import pipelines
from inspector.prediction.evidence import for_chip
from inspector.prediction.predicted import Predicted, predicted_in
from inspector.records import typed_json
from inspector.records.snapshot import Pipeline, Program, Snapshot
from inspector.text.formatting import and_text, capitalized, seconds_text
from inspector.text.program_names import noun


def sentences(program: Program, found: Iterable[Pipeline]) -> list[str]:
    """Return the stages, microbatches and bubble of pipelines, equal ones once; names are in backticks."""
    labels = {choice.name: choice.label for choice in program.open_choices}
    directions: dict[tuple[str, str], list[str]] = {}
    for pipeline in found:
        key = pipelines.what(pipeline), pipelines.bubble(pipeline, labels.get(pipeline.loop or ""))
        directions.setdefault(key, []).append("backward" if pipeline.backward else "forward")
    return [
        f"{capitalized(what)}, {and_text([*dict.fromkeys(names)])}. {bubble}"
        for (what, bubble), names in directions.items()
    ]


def blocks(program: Program, predicted: Predicted | None = None) -> tuple[Block, ...]:
    """Return the section about the pipelines of a program; empty without any.

    predicted: the step, for the seconds of the bubble. None without a chip.
    """
    found = program.pipelines or ()
    if not found:
        return ()
    inside: list[Block] = [text(*with_code(said)) for said in sentences(program, found)]
    if (cost := cost_text(program, predicted)) is not None:
        inside.append(text(cost))
    picture = Picture(
        f"pipeline:{program.name}",
        "Schedule of the pipeline",
        lambda width_px: figures.pipeline_schedule.pipeline_schedule(found, width_px=min(width_px, 960)),
    )
    if (rows := figures.pipeline_schedule.in_text(found)) is not None:
        inside.append(replace(picture, in_text=(Preformatted(rows),)))
    elif any(pipeline.microbatches for pipeline in found):
        inside.append(picture)
    return (Section(f"pipeline-{program.name}", f"Pipeline of {noun(program.name)}", tuple(inside)),)


def sections(snapshot: Snapshot) -> tuple[Section, ...]:
    """Return the pipelines of all programs without a prediction."""
    parts = [part for program in snapshot.programs for part in blocks(program)]
    return tuple(part for part in parts if isinstance(part, Section))


def bubble_seconds(pipeline: Pipeline, program: Program, predicted: Predicted | None) -> float | None:
    """Return the predicted seconds that a device computes unused values; None if unknown.

    They are unknown if only a lower bound of the step is known, which can be shorter than its parts.
    The computation of the step counts by its FLOPs: their share in the loop times the share of the bubble.
    """
    totals = None if predicted is None or predicted.at_least else predicted.totals
    whole, bubble = program.flops_per_device, pipeline.bubble
    if totals is None or not whole or pipeline.flops is None or bubble is None:
        return None
    return totals.compute * min(pipeline.flops / whole, 1.0) * bubble


def cost_text(program: Program, predicted: Predicted | None) -> str | None:
    """Return the cost of the bubbles in the predicted step; None if unknown."""
    if predicted is None or predicted.seconds is None:
        return None
    costs = [bubble_seconds(pipeline, program, predicted) for pipeline in program.pipelines or ()]
    known = [cost for cost in costs if cost is not None]
    if not known or len(known) < len(costs):
        return None
    several = "bubbles take" if len(known) > 1 else "bubble takes"
    least = "at least " if any(pipeline.microbatches is None for pipeline in program.pipelines or ()) else ""
    return (
        f"The {several} {least}about {seconds_text(sum(known))} of the predicted step of "
        f"{seconds_text(predicted.seconds)}, which has all iterations: by the share of FLOPs in the loops."
    )


def plain(program: Program, predicted: Predicted | None = None) -> list[dict[str, Any]]:
    """Return the pipelines of a program as JSON, with iterations, the share of the bubble and its seconds."""
    return [
        {
            "program": program.name,
            **typed_json.encode(pipeline),
            "iterations": pipeline.iterations,
            "bubble": pipeline.bubble,
            "bubble_is": _evidence(pipeline),
            "bubble_seconds": bubble_seconds(pipeline, program, predicted),
        }
        for pipeline in program.pipelines or ()
    ]


def of_snapshot(snapshot: Snapshot, chip: Chip | None) -> list[dict[str, Any]]:
    """Return the pipelines of all programs as JSON, with the seconds of the bubble on a chip."""
    chip = targets.chip_for(snapshot, chip)
    return [
        row
        for program in for_chip(snapshot, chip).programs
        if program.pipelines
        for row in plain(program, _predicted(snapshot, program, chip))
    ]


def _predicted(snapshot: Snapshot, program: Program, chip: Chip | None) -> Predicted | None:
    if chip is None or snapshot.mesh_of(program) is None:
        return None
    return predicted_in(snapshot, program, chip)


def _evidence(pipeline: Pipeline) -> str:
    if pipeline.bubble is None:
        return "unknown"
    return "at least" if pipeline.microbatches is None else "exact"


def of_collective(program: Program, name: str) -> str | None:
    """Return the sentence of the pipeline whose results a collective sends; None if it sends none."""
    own = [pipeline for pipeline in program.pipelines or () if pipeline.collective == name]
    return " ".join(sentences(program, own)) or None
