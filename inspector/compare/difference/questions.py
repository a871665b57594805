"""The rows of the board: the same questions to every Snapshot, each answer held against a baseline."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.compare.difference import origin
from inspector.compare.difference.answers import Question, Statement, question
from inspector.compare.difference.program_questions import program_questions
from inspector.compare.difference.state_questions import state_questions
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.core.snapshot import Level, Snapshot
from inspector.machines.hardware import Chip

LAYOUT, FINDINGS = "Layout", "Findings"
_LEVELS: tuple[Level, ...] = ("error", "warning", "note")


def questions(
    snapshots: Sequence[Snapshot], baseline: int = 0, chip: Chip | None = None
) -> tuple[Question, ...]:
    """All rows in the order of a page, with one answer a Snapshot.

    Args:
      baseline: the place of the Snapshot that the others are held against.
      chip: what memory and time are modelled on; without one, each compiled Snapshot's own.

    Raises:
      InvalidInput: there are no Snapshots, or none at `baseline`.
    """
    if not 0 <= baseline < len(snapshots):
        raise InvalidInput(
            f"baseline is {baseline}, but must be the place of one of {counted(len(snapshots), 'Snapshot')}"
        )
    remarks = _remarks(snapshots, baseline)
    return (
        *_of_layouts(snapshots, baseline),
        *state_questions(snapshots, baseline, remarks),
        *program_questions(snapshots, baseline, chip, remarks),
        *_of_findings(snapshots, baseline, remarks),
    )


def _of_layouts(snapshots: Sequence[Snapshot], baseline: int) -> list[Question]:
    rows = {
        "Source": [origin.text(found) for found in snapshots],
        "Model": [origin.model(found) or "unknown" for found in snapshots],
        "Mesh": [origin.mesh_text(found.mesh) for found in snapshots],
        "Rules": [_rules_text(found) for found in snapshots],
    }
    made = [
        question(LAYOUT, title, [Statement(text) for text in texts], baseline)
        for title, texts in rows.items()
    ]
    devices = [
        Statement("unknown")
        if found.mesh is None
        else Statement(f"{found.mesh.size:,}", found.mesh.size)
        for found in snapshots
    ]
    made.insert(3, question(LAYOUT, "Devices", devices, baseline))
    return made


def _of_findings(
    snapshots: Sequence[Snapshot], baseline: int, remarks: Sequence[str]
) -> list[Question]:
    made = []
    for level in _LEVELS:
        counts = [sum(one.level == level for one in found.findings) for found in snapshots]
        statements = [Statement(f"{count:,}" if count else "none", count) for count in counts]
        better = None if level == "note" else "less"
        title = f"{level.capitalize()}s"
        made.append(question(FINDINGS, title, statements, baseline, better, remarks=remarks))
    return made


def _rules_text(found: Snapshot) -> str:
    layout = found.layout or {}
    rules, specs = layout.get("rules"), layout.get("specs")
    if isinstance(rules, list):
        said = [
            f"{name} → {' + '.join(map(str, axes)) or 'none'}"
            for name, axes in (rule for rule in rules if _is_pair(rule))
        ]
        return ", ".join(said) or "none"
    if isinstance(specs, dict):
        return "none: the model names mesh axes"
    return "unknown"


def _is_pair(rule: object) -> bool:
    return isinstance(rule, list) and len(rule) == 2 and isinstance(rule[1], list)


def _remarks(snapshots: Sequence[Snapshot], baseline: int) -> list[str]:
    """What to keep in mind when figures of each are held against those of the baseline."""
    against = snapshots[baseline]
    made = []
    for found in snapshots:
        models = origin.model(found), origin.model(against)
        sizes = origin.sizes(found), origin.sizes(against)
        if None not in models and models[0] != models[1]:
            made.append("another model")
        elif None not in sizes and sizes[0] != sizes[1]:
            made.append("other sizes")
        elif None in models and {a.path for a in found.arrays} != {a.path for a in against.arrays}:
            made.append("other arrays")
        elif (
            found.mesh is not None
            and against.mesh is not None
            and found.mesh.size != against.mesh.size
        ):
            made.append("another number of devices")
        else:
            made.append("")
    return made
