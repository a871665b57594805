"""The rows of the Board: the same questions to every Snapshot, answered relative to a baseline."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from inspector.compare import amounts, origin
from inspector.compare.caveats import remark
from inspector.compare.compared import Compared, other_model
from inspector.compare.question import UNKNOWN, Better, Question, Row, Statement
from inspector.compare.questions.measures import measures
from inspector.compare.questions.programs import program_rows
from inspector.compare.questions.train_state import state_rows
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.core.meshes import meshes_text, number_of_devices
from inspector.core.rules.rule import rule_text
from inspector.core.rules.written import recorded
from inspector.core.snapshot import Level, Snapshot

LAYOUT, FINDINGS = "Layout", "Findings"
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


def questions(every: Sequence[Compared], baseline: int = 0) -> tuple[Question, ...]:
    """Return all rows in display order, with one answer per Snapshot.

    Args:
      baseline: the index of the Snapshot that the others are compared with.

    Raises:
      InvalidInput: if there is no Snapshot at index `baseline`.
    """
    if not 0 <= baseline < len(every):
        raise InvalidInput(
            f"baseline is {baseline}, but must be the index of one of {counted(len(every), 'Snapshot')}"
        )
    snapshots = [compared.snapshot for compared in every]
    reference = snapshots[baseline]
    remarks = [remark(reference, snapshot) for snapshot in snapshots]
    layout = [Row(LAYOUT, title, None, [ask(snapshot) for snapshot in snapshots]) for title, ask in _LAYOUT]
    layout += _sizes(snapshots)
    findings = [_findings(level, every) for level in LEVELS]
    models = [other_model(every[baseline], compared) or "" for compared in every]
    return (
        *(row.compared(baseline) for row in layout),
        *measures(every, baseline),
        *(
            row.without(models).compared(baseline, about)
            for rows, about in (
                (state_rows(snapshots), remarks),
                (program_rows(every, baseline), amounts.remarks(every, baseline)),
                (findings, remarks),
            )
            for row in rows
        ),
    )


def _findings(level: Level, every: Sequence[Compared]) -> Row:
    audited = [compared.assessment.findings for compared in every]
    counts = [
        None if finding_counts is None else getattr(finding_counts, level) for finding_counts in audited
    ]
    better: Better | None = None if level == "note" else "less"
    statements = [replace(Statement.of_number(count, "none"), relative=False) for count in counts]
    return Row(FINDINGS, f"{level.capitalize()}s", better, statements)


def _sizes(snapshots: Sequence[Snapshot]) -> list[Row]:
    """Return a row for each size of the model that differs, such as the batch."""
    known = [origin.sizes(snapshot) or {} for snapshot in snapshots]
    names = dict.fromkeys(name for sizes in known for name in sizes)
    every = {name: [sizes.get(name, UNKNOWN) for sizes in known] for name in names}
    return [
        Row(LAYOUT, name.replace("_", " ").capitalize(), None, list(map(Statement, texts)))
        for name, texts in every.items()
        if len(set(texts) - {UNKNOWN}) > 1
    ]


def _rules(snapshot: Snapshot) -> Statement:
    rules = recorded(snapshot)
    if rules is not None:
        return Statement(", ".join(map(rule_text, rules)) or "none")
    has_specs = isinstance((snapshot.layout or {}).get("specs"), dict)
    return Statement("none: the model has device axes" if has_specs else UNKNOWN)


_LAYOUT: tuple[tuple[str, Callable[[Snapshot], Statement]], ...] = (
    ("Source", lambda snapshot: Statement(origin.text(snapshot))),
    ("Model", lambda snapshot: Statement(origin.model(snapshot) or UNKNOWN)),
    ("Mesh", lambda snapshot: Statement(meshes_text(snapshot, max_axes_of_size_1=0))),
    ("Devices", lambda snapshot: Statement.of_number(number_of_devices(snapshot))),
    ("Rules", _rules),
)
