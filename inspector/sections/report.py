"""The parts of a report: its beginning, then all sections for a page, or fewer for a pull request."""

from collections.abc import Sequence

from inspector.compare import difference
from inspector.compare.compared import compared as compared_snapshots
from inspector.compare.questions import questions
from inspector.compare.questions.questions import FINDINGS, LAYOUT
from inspector.core.assessment import MEMORY, STEP, TRAFFIC
from inspector.core.folding import fold
from inspector.core.formatting import bytes_text, counted, shape_text
from inspector.core.sharding_text import spec_text
from inspector.core.snapshot import Snapshot
from inspector.machines import targets
from inspector.machines.evidence import for_chip
from inspector.machines.hardware import Chip
from inspector.machines.prediction.predicted import predicted_in
from inspector.sections import (
    arrays,
    assessed,
    collectives,
    comparison,
    expert_load,
    exposed,
    glance,
    improvements,
    measured,
    memory,
    partitioned_traffic,
    prediction,
    provenance,
    reshards,
    sharding_errors,
    subject,
    summary,
    time,
    whole_model,
)
from inspector.sections.programs import main_first
from inspector.sections.section import (
    Block,
    Folded,
    Section,
    Table,
    listing,
    text,
)

Named = Sequence[tuple[str, Snapshot]]

_MAX_FINDINGS = 20  # of the short form


def beginning(named: Named, chip: Chip | None) -> tuple[Block, ...]:
    """Return the beginning of every report: model and machine, the verdict with its reason, and the picture.

    The first Snapshot is the baseline.
    """
    return (
        text(subject.line(named, chip), quiet=True),
        *comparison.verdict(named, chip).blocks,
        *glance.of_report(named, chip),
    )


def source(named: Named) -> Section:
    """Return model, mesh, rules, target, versions and date of the Snapshots."""
    lines = provenance.lines(named) if len(named) > 1 else (provenance.line(named[0][1]),)
    return Section("source", "Source and versions", (listing(*lines),))


def compared(named: Named, chip: Chip | None) -> tuple[Section, ...]:
    """Return the sections about all Snapshots together; empty for a single one."""
    return (*comparison.sections(named, chip), source(named)) if len(named) > 1 else ()


def whole(snapshot: Snapshot, chip: Chip | None) -> tuple[Block, ...]:
    """Return the picture of the whole model."""
    chip = targets.chip_for(snapshot, chip)
    return whole_model.blocks(for_chip(snapshot, chip), chip)


def of_snapshot(snapshot: Snapshot, chip: Chip | None, maps: int) -> tuple[Section, ...]:
    """Return all sections of one Snapshot, without the picture of the whole model.

    Args:
      chip: None for the chip of the Snapshot, if it is known.
      maps: number of large shard maps.
    """
    chip = targets.chip_for(snapshot, chip)
    before, snapshot = snapshot, for_chip(snapshot, chip)
    return (
        Section("summary", "Summary", (assessed.facts(before, chip), summary.facts(snapshot))),
        *sharding_errors.sections(snapshot),
        improvements.section(snapshot, chip),
        arrays.tree(snapshot),
        arrays.maps(snapshot, maps),
        collectives.section(snapshot),
        *partitioned_traffic.sections(before),
        *reshards.sections(snapshot, chip),
        memory.section(snapshot, chip),
        time.section(before, chip),
        arrays.folded_table(snapshot),
    )


def short(named: Named, chip: Chip | None) -> list[Block]:
    """Return the short form: the beginning, then improvements and answers in parts that open."""
    several = len(named) > 1
    sections = _short_comparison(named, chip) if several else _short(*named[0], chip)
    folded = [Folded(part.heading, part.blocks) for part in (*sections, source(named))]
    return [*beginning(named, chip), *(_findings(named, chip) if several else ()), *folded]


def _short_comparison(named: Named, chip: Chip | None) -> list[Section]:
    rows = difference.spec_rows([snapshot for _, snapshot in named])
    return [
        comparison.sentences(named, chip),
        comparison.board(named, chip),
        comparison.specs(named, rows),
    ]


def _short(name: str, snapshot: Snapshot, chip: Chip | None) -> list[Section]:
    chip = targets.chip_for(snapshot, chip)
    before, snapshot = snapshot, for_chip(snapshot, chip)
    rows = questions(compared_snapshots([(name, snapshot)], chip))
    answers: list[Block] = []
    if chip is not None:
        answers.append(memory.verdict(snapshot, chip))
        programs = main_first(snapshot)
        mesh = snapshot.mesh_of(programs[0]) if programs else None
        if mesh is not None:
            predicted = predicted_in(snapshot, programs[0], chip)
            answers.append(prediction.sentence(predicted, mesh.size))
    # Model and machine are in the title, and the figures of a step in the picture.
    said = (LAYOUT, FINDINGS, MEMORY, STEP, TRAFFIC)
    further = [row for row in rows if not {row.section, row.title}.intersection(said) and not row.unknown]
    answers.append(comparison.board_table("board", [name], [*comparison.part_rows(rows), *further]))
    sections = [
        improvements.section(snapshot, chip, _MAX_FINDINGS),
        *sharding_errors.sections(snapshot),
        Section("answers", "Answers", tuple(answers)),
        *measured.section(before, targets.chip_of(before)),
        *partitioned_traffic.sections(before),
        *reshards.sections(snapshot, chip),
        *exposed.section(snapshot, chip),
        *expert_load.section(snapshot),
    ]
    folds = fold(arrays.state_arrays(snapshot))
    if folds:
        specs = Table.of(
            "specs",
            sorted(folds, key=lambda folded: -(folded.bytes or 0)),
            {
                "Arrays:code": lambda folded: folded.path,
                "Bytes per device": lambda folded: bytes_text(folded.bytes_per_device),
                "Layers:count": lambda folded: folded.count,
                "Shape": lambda folded: f"{shape_text(folded.first.shape)} {folded.first.dtype}",
                "PartitionSpec:code": lambda folded: spec_text(folded.first.spec),
            },
        )
        count = counted(sum(folded.count for folded in folds), "array")
        sections.append(Section("specs", f"PartitionSpecs of {count}", (specs,)))
    return sections


def _findings(named: Named, chip: Chip | None) -> list[Folded]:
    """Return the ranked list of each Snapshot with findings or improvements; its summary has their number."""
    return [
        Folded(
            f"{name}: {improvements.count_text(snapshot, chip)}",
            improvements.section(snapshot, chip, _MAX_FINDINGS).blocks,
        )
        for name, snapshot in named
        if snapshot.findings or snapshot.effects is not None
    ]
