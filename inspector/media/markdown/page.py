"""The report as Markdown for a pull request: short, with the differences first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inspector.compare import difference
from inspector.compare.questions import questions
from inspector.core.folding import fold
from inspector.core.formatting import bytes_text, counted, shape_text, spec_text
from inspector.core.snapshot import Finding, Snapshot
from inspector.machines.hardware import Chip
from inspector.media.markdown import render
from inspector.media.markdown.text import code, quoted
from inspector.sections import (
    comparison,
    effects,
    findings,
    glance,
    memory,
    propagated_traffic,
    provenance,
    sharding_errors,
)
from inspector.sections.arrays import state_arrays
from inspector.sections.programs import chip_of
from inspector.sections.section import (
    Block,
    Code,
    Folded,
    Inline,
    Listing,
    Section,
    Table,
    listing,
    more_text,
    text,
)

Named = Sequence[tuple[str, Snapshot]]

MAX_CHARACTERS = 60_000  # GitHub accepts comments of 65,536
_MAX_FINDINGS = 20


def page(named: Named, chip: Chip | None = None, notes: Mapping[str, str] | None = None) -> str:
    """Return the whole report. The first Snapshot is the baseline of the others."""
    names = [code(name) for name, _ in named]
    parts = [f"## Sharding of {' against '.join(filter(None, (names[0], ', '.join(names[1:]))))}\n"]
    for name, note in (notes or {}).items():
        parts.append(f"{code(name)}:\n\n{quoted(note)}")
    blocks = _several(named, chip) if len(named) > 1 else _one(*named[0], chip)
    lines = provenance.lines(named) if len(named) > 1 else (provenance.line(named[0][1]),)
    for block in (*blocks, *_findings(named), Folded("Source and versions", (listing(*lines),))):
        parts.append(render.render([block], level=3))
    return fitting(parts)


def fitting(parts: Sequence[str]) -> str:
    """Return the parts that fit into a comment, and the number of parts that do not."""
    kept: list[str] = []
    length = left_out = 0
    for part in parts:
        if length + len(part) > MAX_CHARACTERS:
            left_out += 1
            continue
        kept.append(part)
        length += len(part)
    if left_out:
        kept.append(f"{counted(left_out, 'part')} did not fit here: see the HTML report.\n")
    return "\n".join(kept)


def _several(named: Named, chip: Chip | None) -> list[Block]:
    rows = difference.spec_rows([snapshot for _, snapshot in named])
    specs = comparison.specs(named, rows)
    return [
        *glance.sections(named, chip),
        comparison.sentences(named, chip),
        comparison.board(named, chip),
        Folded(specs.heading, specs.blocks),
    ]


def _one(name: str, snapshot: Snapshot, chip: Chip | None) -> list[Block]:
    chip = chip_of(snapshot, chip)
    rows = questions([snapshot], 0, chip)
    blocks: list[Block] = [*sharding_errors.sections(snapshot)]
    if chip is not None:
        blocks.append(memory.verdict(snapshot, chip))
    blocks.append(comparison.board_table("board", [name], rows))
    blocks += propagated_traffic.sections(snapshot)
    if snapshot.effects is not None:
        blocks.append(effects.section(snapshot.effects))
    folds = fold(state_arrays(snapshot))
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
    said = [(name, finding) for name, snapshot in named for finding in snapshot.findings]
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
        level, message = findings.sentence(finding)
        items.append((level, " in ", Code(name), message))
    blocks: list[Block] = [Listing(tuple(items))]
    if len(said) > _MAX_FINDINGS:
        blocks.append(text(more_text(len(said) - _MAX_FINDINGS, "finding")))
    return tuple(blocks)
