"""The parts of a report: its beginning, then all sections for a page, or fewer for a pull request."""

from collections.abc import Sequence

from inspector.answers import arrays, comparison, glance, reshards, screen, subject, whole_model
from inspector.answers.catalogue import Subject
from inspector.answers.section import Block, Folded, Section, listing, text
from inspector.assessment import assess
from inspector.compare import difference
from inspector.machines import targets
from inspector.machines.hardware import Chip
from inspector.prediction.evidence import for_chip
from inspector.records.snapshot import Snapshot

Named = Sequence[tuple[str, Snapshot]]


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
    lines = subject.source_lines(named) if len(named) > 1 else (subject.source_line(named[0][1]),)
    return Section("source", "Source and versions", (listing(*lines),))


def compared(named: Named, chip: Chip | None) -> tuple[Section, ...]:
    """Return the sections about all Snapshots together; empty for a single one."""
    return (*comparison.sections(named, chip), source(named)) if len(named) > 1 else ()


def whole(snapshot: Snapshot, chip: Chip | None) -> tuple[Block, ...]:
    """Return the picture of the whole model."""
    chip = targets.chip_for(snapshot, chip)
    return whole_model.blocks(for_chip(snapshot, chip), chip)


def short(named: Named, chip: Chip | None) -> list[Block]:
    """Return the short form: the verdict, its picture, differences and findings; details open on request."""
    subjects = [(name, Subject.of(snapshot, chip)) for name, snapshot in named]
    shown: list[Block] = []
    details: list[Section] = []
    if len(named) > 1:
        rows = difference.spec_rows([snapshot for _, snapshot in named])
        shown += [*beginning(named, chip), comparison.sentences(named, chip), comparison.board(named, chip)]
        found = ((name, tuple(screen.main_findings(about))) for name, about in subjects)
        shown += [Section("findings", name, inside) for name, inside in found if inside]
        details.append(comparison.specs(named, rows))
    else:
        ((_, about),) = subjects
        shown += screen.of_snapshot(about)
        specs = arrays.tree_texts(about.snapshot, arrays.state_arrays(about.snapshot))
        details += [Section("specs", "PartitionSpecs", tuple(specs))]
        details += reshards.sections(about.snapshot, about.chip)
    assumed: set[str] = set()
    for _, about in subjects:
        evidence = assess(about.recorded, about.chip).evidence
        assumed |= {*(evidence.assumptions if evidence else ())}
    small = [text(f"Assumed: {'; '.join(sorted(assumed))}.", quiet=True)] if assumed else []
    folded = [Folded(part.heading, part.blocks) for part in (*details, source(named))]
    return [*shown, *small, *folded]
