"""The sections of a report: all of them for a page, and a short form for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.compare import difference
from inspector.compare.questions import questions
from inspector.compare.verdict import compared as compared_snapshots
from inspector.core.folding import fold
from inspector.core.formatting import bytes_text, counted, shape_text, spec_text
from inspector.core.snapshot import Finding, Snapshot
from inspector.layout.plan import merged_by_logical_axis
from inspector.machines import targets
from inspector.machines.hardware import Chip
from inspector.sections import (
    arrays,
    assessed,
    collectives,
    comparison,
    glance,
    improvements,
    memory,
    prediction,
    propagated_traffic,
    reshards,
    sharding_errors,
    time,
)
from inspector.sections.programs import main_first
from inspector.sections.section import (
    Block,
    Code,
    Folded,
    Inline,
    Listing,
    Section,
    Table,
    more_text,
    text,
)

Named = Sequence[tuple[str, Snapshot]]

_MAX_SMALL_MAPS = 40
_MAX_FINDINGS = 20  # of the short form


def compared(named: Named, chip: Chip | None) -> tuple[Section, ...]:
    """Return the sections about all Snapshots together. The first one is the baseline."""
    verdict, *rest = comparison.sections(named, chip) or ((),)
    return (verdict, *glance.sections(named, chip), *rest) if verdict else ()


def of_snapshot(snapshot: Snapshot, chip: Chip | None, maps: int) -> tuple[Section, ...]:
    """Return all sections of one Snapshot, without its summary.

    Args:
      chip: None for the chip of the Snapshot, if it is known.
      maps: number of large shard maps.
    """
    chip = targets.chip_for(snapshot, chip)
    state = arrays.state_arrays(snapshot)
    return (
        Section("assessment", "At a glance", (assessed.facts(snapshot, chip),)),
        *sharding_errors.sections(snapshot),
        improvements.section(snapshot, chip),
        arrays.bytes_on_devices(snapshot, state, _MAX_SMALL_MAPS),
        arrays.tree(snapshot),
        arrays.maps(snapshot, maps),
        collectives.section(snapshot),
        *propagated_traffic.sections(snapshot),
        *reshards.sections(snapshot, chip),
        memory.section(snapshot, chip),
        time.section(snapshot, chip),
        arrays.folded_table(snapshot),
    )


def short(named: Named, chip: Chip | None) -> list[Block]:
    """Return the short form: the differences first, or the answers of a single Snapshot, then findings."""
    if len(named) == 1:
        return _short(*named[0], chip)
    return [*_short_comparison(named, chip), *_findings(named)]


def _short_comparison(named: Named, chip: Chip | None) -> list[Block]:
    rows = difference.spec_rows([snapshot for _, snapshot in named])
    specs = comparison.specs(named, rows)
    return [
        comparison.verdict(named, chip),
        *glance.sections(named, chip),
        comparison.sentences(named, chip),
        comparison.board(named, chip),
        Folded(specs.heading, specs.blocks),
    ]


def _short(name: str, snapshot: Snapshot, chip: Chip | None) -> list[Block]:
    chip = targets.chip_for(snapshot, chip)
    rows = questions(compared_snapshots([(name, snapshot)], chip))
    blocks: list[Block] = [assessed.facts(snapshot, chip), *sharding_errors.sections(snapshot)]
    if chip is not None:
        blocks.append(memory.verdict(snapshot, chip))
        programs = main_first(snapshot)
        mesh = snapshot.mesh_of(programs[0]) if programs else None
        if mesh is not None:
            found = prediction.prediction_of(snapshot, programs[0].name, chip)
            blocks.append(prediction.sentence(found, mesh.size))
    blocks.append(comparison.board_table("board", [name], rows))
    blocks += propagated_traffic.sections(snapshot)
    blocks += reshards.sections(snapshot, chip)
    blocks.append(improvements.section(snapshot, chip, _MAX_FINDINGS))
    folds = fold(arrays.state_arrays(snapshot))
    if folds:
        specs = Table.of(
            "specs",
            sorted(folds, key=lambda one: -(one.bytes or 0)),
            {
                "Arrays:code": lambda one: one.path,
                "Layers:count": lambda one: one.count,
                "Shape": lambda one: f"{shape_text(one.first.shape)} {one.first.dtype}",
                "PartitionSpec:code": lambda one: spec_text(one.first.spec),
                "Bytes per device": lambda one: bytes_text(one.bytes_per_device),
            },
        )
        count = counted(sum(one.count for one in folds), "array")
        blocks.append(Folded(f"PartitionSpecs of {count}", (specs,)))
    return blocks


def _findings(named: Named) -> list[Block]:
    """Return errors and warnings in a section, and notes in a part that opens."""
    said = [
        (name, finding)
        for name, snapshot in named
        for finding in merged_by_logical_axis(snapshot.findings)
    ]
    serious = [(name, finding) for name, finding in said if finding.level != "note"]
    minor = [(name, finding) for name, finding in said if finding.level == "note"]
    blocks: list[Block] = []
    if serious:
        blocks.append(Section("findings", "Findings", _finding_list(serious)))
    if minor:
        blocks.append(Folded(counted(len(minor), "note"), _finding_list(minor)))
    return blocks


def _finding_list(said: Sequence[tuple[str, Finding]]) -> tuple[Block, ...]:
    items: list[tuple[Inline, ...]] = []
    for name, finding in said[:_MAX_FINDINGS]:
        level, message = improvements.sentence(improvements.of_finding(finding))
        items.append((level, " in ", Code(name), message))
    blocks: list[Block] = [Listing(tuple(items))]
    if len(said) > _MAX_FINDINGS:
        blocks.append(text(more_text(len(said) - _MAX_FINDINGS, "finding")))
    return tuple(blocks)
