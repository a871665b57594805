"""What differs between Snapshots, as part of a page: in sentences, as a board, spec by spec, and in maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from inspector.compare import difference
from inspector.compare.difference import Answer, Question, SpecRow
from inspector.core.formatting import counted
from inspector.core.snapshot import Array, Snapshot
from inspector.figures import provenance
from inspector.figures.block_map import block_map, why_no_map
from inspector.machines.hardware import Chip
from inspector.media.report import verdicts
from inspector.media.report.about_programs import HALF_PX
from inspector.media.report.about_snapshot import Section, size_of
from inspector.media.report.embedded import Figures
from inspector.media.report.markup import (
    Html,
    folded,
    joined,
    listing,
    paragraph,
    table,
    tag,
)

Named = Sequence[tuple[str, Snapshot]]

MOST_DIFFERING_ARRAYS = 3
_MOST_SPEC_ROWS = 60


def sections(named: Named, chip: Chip | None, figures: Figures) -> list[Section]:
    """The parts of a page that hold several Snapshots against the first; none for a single one."""
    if len(named) < 2:
        return []
    rows = difference.spec_rows([found for _, found in named])
    return [
        Section("difference", "What differs", said(named, chip)),
        Section("board", "Side by side", board(named, chip)),
        Section("specs", "PartitionSpecs that differ", _specs(named, rows)),
        Section("differing", "Arrays that are split differently", _maps(named, rows, figures)),
    ]


def said(named: Named, chip: Chip | None) -> Html:
    """The difference of each Snapshot from the first, in sentences."""
    baseline, before = named[0]
    parts: list[Html] = []
    for name, after in named[1:]:
        if len(named) > 2:
            parts.append(tag("h3", f"{name} against {baseline}"))
        parts.append(listing(difference.sentences(before, after, chip)))
        reservations = [caveat.text for caveat in difference.caveats(before, after)]
        if reservations:
            parts += [paragraph("To keep in mind:", class_="quiet"), listing(reservations)]
    return joined(parts)


def board(named: Named, chip: Chip | None) -> Html:
    """A row a question, a column a Snapshot."""
    rows = difference.questions([found for _, found in named], 0, chip)
    heads = [tag("th", "", scope="col")] + [
        tag(
            "th",
            name,
            *([tag("span", "baseline", class_="remark")] if not place else []),
            scope="col",
        )
        for place, (name, _) in enumerate(named)
    ]
    body, section = [], None
    for row, remarks in zip(rows, verdicts.remarks(rows), strict=True):
        if row.section != section:
            section = row.section
            width = str(len(named) + 1)
            body.append(tag("tr", tag("th", section, colspan=width), class_="section"))
        body.append(tag("tr", tag("th", row.title, scope="row"), *map(_cell, row.answers, remarks)))
    whole = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *body), class_="board")
    return joined(
        (
            tag("div", whole, class_="wide", tabindex="0"),
            *(
                paragraph(one, class_="quiet legend")
                for one in (
                    f"Marked against {named[0][0]}; unmarked figures are equal to it.",
                    *_notes(rows),
                )
            ),
        )
    )


def differing(named: Named, rows: Sequence[SpecRow], most: int) -> list[str]:
    """The paths of the largest arrays whose spec differs, one a row of specs, parameters first.

    Only those of which two Snapshots at least have a shard map, which can then be held side by side.
    """
    sizes: dict[str, tuple[bool, int]] = {}
    maps: Counter[str] = Counter()
    for _, found in named:
        for array in found.arrays:
            size = (array.group == "params", size_of(array))
            sizes[array.path] = max(sizes.get(array.path, (False, 0)), size)
            maps[array.path] += found.mesh is not None and why_no_map(array, found.mesh) is None
    drawn = [[path for path in row.paths if maps[path] > 1] for row in rows if row.differs]
    changed = [max(paths, key=lambda path: sizes[path]) for paths in drawn if paths]
    return sorted(changed, key=lambda path: sizes[path], reverse=True)[:most]


def _cell(answer: Answer, remark: str) -> Html:
    mark = verdicts.mark(answer)
    kind = answer.verdict if answer.verdict in ("better", "worse", "different") else "remark"
    return tag(
        "td",
        answer.text,
        *([tag("span", mark, class_=f"mark {kind}")] if mark else []),
        *([tag("span", remark, class_="remark")] if remark else []),
    )


def _notes(rows: Sequence[Question]) -> list[str]:
    """What to keep in mind of some rows, each note once."""
    titles: dict[str, list[str]] = {}
    for row in rows:
        if row.note:
            titles.setdefault(row.note, []).append(row.title)
    return [
        f"{verdicts.titles_text(each)}: {note[0].lower() + note[1:].rstrip('.')}."
        for note, each in titles.items()
    ]


def _specs(named: Named, rows: Sequence[SpecRow]) -> Html:
    changed = [row for row in rows if row.differs]
    same = [row for row in rows if not row.differs]
    parts = []
    if changed:
        parts.append(_spec_table(named, changed[:_MOST_SPEC_ROWS]))
        if len(changed) > _MOST_SPEC_ROWS:
            parts.append(paragraph(f"{len(changed) - _MOST_SPEC_ROWS:,} more rows are left out."))
    else:
        parts.append(paragraph("Every array has the same PartitionSpec in all of them."))
    if same:
        arrays = counted(sum(len(row.paths) for row in same), "array")
        whole = _spec_table(named, same[:_MOST_SPEC_ROWS])
        parts.append(folded(f"{arrays} with the same spec in all", whole))
    return joined(parts)


def _spec_table(named: Named, rows: Sequence[SpecRow]) -> Html:
    return table(
        ("Arrays", "Number", *(name for name, _ in named)),
        [
            (
                row.title,
                f"{len(row.paths):,}",
                *("not there" if spec is None else spec for spec in row.specs),
            )
            for row in rows
        ],
        numbers=(1,),
    )


def _maps(named: Named, rows: Sequence[SpecRow], figures: Figures) -> Html:
    """Arrays whose specs differ, cut into their blocks as in each Snapshot."""
    parts = []
    most = MOST_DIFFERING_ARRAYS if len(named) <= 4 else 1
    for path in differing(named, rows, most):
        maps = [_map(path, name, found, figures) for name, found in named]
        parts += [tag("h3", path), tag("div", *maps, class_="pair")]
    if parts:
        return joined(parts)
    if any(row.differs for row in rows):
        return paragraph("No array that is split differently has a shard map in two of them.")
    return paragraph("No array lies differently.")


def _map(path: str, name: str, found: Snapshot, figures: Figures) -> Html:
    array: Array | None = next((one for one in found.arrays if one.path == path), None)
    if array is None:
        body = paragraph("It has no such array.")
    elif found.mesh is None:
        body = paragraph("It has no mesh.")
    elif (reason := why_no_map(array, found.mesh)) is not None:
        body = paragraph(reason)
    else:
        array = difference.without_idle_axes(array, found.mesh)
        drawn = block_map(array, found.mesh, width_px=HALF_PX)
        about = provenance.lines([(name, found)])
        body = figures.put(drawn, f"Blocks of {path} in {name}", about, f"{name}-{path}")
    return tag("div", tag("strong", name), body)
