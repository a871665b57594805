"""The report as Markdown for a pull request: short, the difference first, and nothing in it but text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inspector.compare import difference
from inspector.compare.difference import Answer, Question, SpecRow
from inspector.core.folding import fold
from inspector.core.formatting import bytes_text, counted, shape_text, spec_text
from inspector.core.snapshot import Finding, Snapshot
from inspector.core.totals import STATE_GROUPS
from inspector.figures import provenance
from inspector.machines.hardware import Chip
from inspector.machines.prediction import memory
from inspector.media.markdown.text import (
    code,
    folded,
    listing,
    plain,
    quoted,
    table,
)
from inspector.media.report import verdicts
from inspector.media.report.about_programs import chip_for

Named = Sequence[tuple[str, Snapshot]]

MOST_CHARACTERS = 60_000  # GitHub takes comments of 65,536
_MOST_SENTENCES = 12
_MOST_SPECS = 40
_MOST_FINDINGS = 20


def page(named: Named, chip: Chip | None = None, notes: Mapping[str, str] | None = None) -> str:
    """The whole text; the first Snapshot is the baseline of the others."""
    names = [code(name) for name, _ in named]
    title = names[0] if len(names) == 1 else f"{names[0]} against {', '.join(names[1:])}"
    parts = [f"## How it is sharded: {title}\n"]
    for name, note in (notes or {}).items():
        parts.append(f"{code(name)}:\n\n{quoted(note)}")
    if len(named) > 1:
        parts += _difference(named, chip)
    else:
        parts.append(_verdict(named[0][1], chip))
    parts.append(_questions(named, chip))
    parts += _specs(named) if len(named) > 1 else _arrays(named[0][1])
    parts += _findings(named)
    parts.append(_made(named))
    return _within(parts)


def _difference(named: Named, chip: Chip | None) -> list[str]:
    parts = []
    baseline, before = named[0]
    for name, after in named[1:]:
        if len(named) > 2:
            parts.append(f"### {code(name)} against {code(baseline)}\n")
        said = difference.sentences(before, after, chip)
        shown = [plain(sentence) for sentence in said[:_MOST_SENTENCES]]
        if len(said) > _MOST_SENTENCES:
            shown.append(f"and {len(said) - _MOST_SENTENCES} more sentences in the HTML report")
        parts.append(listing(shown))
        reservations = [caveat.text for caveat in difference.caveats(before, after)]
        if reservations:
            parts.append("To keep in mind:\n\n" + listing(map(plain, reservations)))
    return parts


def _verdict(found: Snapshot, chip: Chip | None) -> str:
    chip = chip_for(found, chip)
    if chip is None:
        return f"{plain(provenance.line(found))}\n"
    return f"{plain(memory.fit(found, chip).sentence)}\n"


def _questions(named: Named, chip: Chip | None) -> str:
    rows = difference.questions([found for _, found in named], 0, chip)
    headings = ["", *(code(name) for name, _ in named)]
    if len(named) == 1:
        return table(headings, list(map(_row, rows, verdicts.remarks(rows))))
    headings[1] += " (baseline)"
    same = [row for row in rows if not row.differs]
    differing = [row for row in rows if row.differs]
    whole = table(headings, list(map(_row, differing, verdicts.remarks(differing))))
    if same:
        whole += "\n" + folded(
            f"{counted(len(same), 'question')} with the same answer",
            table(headings, list(map(_row, same, verdicts.remarks(same)))),
        )
    return whole


def _row(row: Question, remarks: Sequence[str]) -> list[str]:
    # A word of the same column tells what collectives, memory or time a title belongs to.
    return [plain(f"{row.section}: {row.title}"), *map(_cell, row.answers, remarks)]


def _cell(answer: Answer, remark: str) -> str:
    mark = verdicts.mark(answer)
    said = f" ({plain(remark)})" if remark else ""
    return plain(answer.text) + (f" **{plain(mark)}**" if mark else "") + said


def _specs(named: Named) -> list[str]:
    changed = [row for row in difference.spec_rows([found for _, found in named]) if row.differs]
    if not changed:
        return ["Every array has the same PartitionSpec in all of them.\n"]
    arrays = sum(len(row.paths) for row in changed)
    headings = ["Arrays", *(code(name) for name, _ in named)]
    body = table(headings, [_spec_row(row) for row in changed[:_MOST_SPECS]])
    if len(changed) > _MOST_SPECS:
        body += f"\nand {len(changed) - _MOST_SPECS:,} more rows\n"
    return [folded(f"PartitionSpecs that differ, of {counted(arrays, 'array')}", body)]


def _spec_row(row: SpecRow) -> list[str]:
    return [
        code(row.title),
        *("not there" if spec is None else code(spec) for spec in row.specs),
    ]


def _arrays(found: Snapshot) -> list[str]:
    folds = fold(one for one in found.arrays if one.group in STATE_GROUPS)
    ranked = sorted(folds, key=lambda one: -(one.bytes or 0))
    rows = [
        [
            code(one.path) + (f" ×{one.count}" if one.count > 1 else ""),
            plain(f"{shape_text(one.first.shape)} {one.first.dtype}"),
            code(spec_text(one.first.spec)),
            bytes_text(one.bytes_per_device),
        ]
        for one in ranked[:_MOST_SPECS]
    ]
    if not rows:
        return []
    body = table(["Arrays", "Shape", "Spec", "Bytes per device"], rows)
    if len(ranked) > _MOST_SPECS:
        body += f"\nand {len(ranked) - _MOST_SPECS:,} more rows\n"
    return [folded(f"PartitionSpecs of {counted(sum(one.count for one in folds), 'array')}", body)]


def _findings(named: Named) -> list[str]:
    said = [(name, finding) for name, found in named for finding in found.findings]
    serious = [(name, finding) for name, finding in said if finding.level != "note"]
    notes = [(name, finding) for name, finding in said if finding.level == "note"]
    parts = []
    if serious:
        parts.append(f"### Findings\n\n{_finding_list(serious)}")
    if notes:
        parts.append(folded(counted(len(notes), "note"), _finding_list(notes)))
    return parts


def _finding_list(said: Sequence[tuple[str, Finding]]) -> str:
    shown = [
        f"**{finding.level}** in {code(name)}: {plain(finding.message)}"
        for name, finding in said[:_MOST_FINDINGS]
    ]
    if len(said) > _MOST_FINDINGS:
        shown.append(f"and {len(said) - _MOST_FINDINGS} more")
    return listing(shown)


def _made(named: Named) -> str:
    lines = provenance.lines(named) if len(named) > 1 else [provenance.line(named[0][1])]
    return folded("How this was made", listing(map(plain, lines)))


def _within(parts: Sequence[str]) -> str:
    """The parts that a comment has room for; what is left out is said."""
    kept, length, left_out = [], 0, 0
    for part in parts:
        if length + len(part) > MOST_CHARACTERS:
            left_out += 1
            continue
        kept.append(part)
        length += len(part)
    if left_out:
        kept.append(
            f"{counted(left_out, 'part')} of this report did not fit in here: see the HTML report.\n"
        )
    return "\n".join(kept)
