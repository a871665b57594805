"""What a report shows of one Snapshot: figures and tables, section by section, what matters first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inspector.core import formatting
from inspector.core.folding import fold
from inspector.core.formatting import bytes_text, counted, exact_bytes_text
from inspector.core.snapshot import Array, Snapshot
from inspector.core.totals import STATE_GROUPS, Totals, state_totals
from inspector.figures import provenance
from inspector.figures.block_map import block_map, why_no_map
from inspector.figures.mesh_map import mesh_map
from inspector.figures.overview import overview
from inspector.figures.palette import styles_of_specs
from inspector.figures.small_multiples import small_multiples
from inspector.figures.spec_tree import spec_tree
from inspector.figures.text_tree import text_tree
from inspector.machines.hardware import Chip
from inspector.media.report import about_programs
from inspector.media.report.about_programs import HALF_PX, WIDE_PX, chip_for
from inspector.media.report.embedded import Figures
from inspector.media.report.markup import (
    Html,
    folded,
    joined,
    lines,
    listing,
    paragraph,
    table,
    tag,
    text,
)

_MOST_MAPS = 40  # small maps of a report: the largest arrays


@dataclass(frozen=True)
class Section:
    """A titled part of a page; `anchor` is the target of links to it."""

    anchor: str
    title: str
    body: Html


def sections(
    found: Snapshot,
    prefix: str,
    figures: Figures,
    *,
    chip: Chip | None,
    about: Sequence[str],
    maps: int,
) -> Iterator[Section]:
    """Everything of one Snapshot.

    Args:
      prefix: of the anchors.
      chip: what memory and time are modelled on; without one, the chip that it was compiled for.
      about: what pictures of its figures say below them.
      maps: how many of the largest arrays have a large shard map.
    """
    chip = chip_for(found, chip)
    parts = (
        ("findings", "Findings", findings(found)),
        ("bytes", "Bytes on each device", _overview(found, figures, about)),
        ("tree", "PartitionSpecs", _tree(found, figures, about)),
        ("maps", "Shard maps", _maps(found, figures, about, maps)),
        ("collectives", "Collectives", about_programs.collectives(found, figures, about)),
        ("memory", "Memory", about_programs.memory_of(found, figures, about, chip)),
        ("time", "Time", about_programs.time(found, figures, about, chip)),
        ("arrays", "All arrays", _arrays(found)),
    )
    for anchor, title, body in parts:
        yield Section(f"{prefix}-{anchor}", title, body)


def headline(found: Snapshot) -> Html:
    """Where it comes from, and its bytes in one line."""
    facts = provenance.facts(found)
    totals = state_totals(found)
    devices = "unknown" if found.mesh is None else f"{found.mesh.size:,}"
    facts = {
        **facts,
        "devices": devices,
        "train state": _state_text(totals),
    }
    rows = [(tag("strong", key.capitalize()), value) for key, value in facts.items()]
    return table(("", ""), rows, class_="facts")


def _state_text(totals: Totals) -> str:
    """`96.0 MiB once, 24.0 MiB on each device, 2 copies, in 26 arrays`."""
    if not totals.arrays:
        return "no arrays"
    arrays = counted(totals.arrays, "array")
    if totals.bytes is None and totals.per_device is None:
        return f"{arrays}, whose bytes are unknown"
    copies = "copies unknown"
    if totals.copies is not None:
        number = formatting.times_text(totals.copies)
        copies = f"{number} {'copy' if number == '1' else 'copies'}"
    held = f"{bytes_text(totals.bytes)} once, {bytes_text(totals.per_device)} on each device"
    return f"{held}, {copies}, in {arrays}"


def findings(found: Snapshot) -> Html:
    """The findings, the gravest first."""
    if not found.findings:
        return paragraph("No finding is recorded in this Snapshot.")
    order = ("error", "warning", "note")
    ranked = sorted(found.findings, key=lambda one: (order.index(one.level), -(one.bytes or 0)))
    return listing(
        joined(
            (
                tag("strong", one.level),
                f" {one.message}",
                "" if one.array is None or one.array in one.message else f" ({one.array})",
                "" if one.bytes is None else f" · {bytes_text(one.bytes)}",
            )
        )
        for one in ranked
    )


def largest(found: Snapshot, most: int) -> list[Array]:
    """The first array of each of the largest folds that have a shard map."""
    if found.mesh is None:
        return []
    parameters = [one for one in found.arrays if one.group == "params"]
    drawn = [
        one for one in fold(parameters or found.arrays) if not why_no_map(one.first, found.mesh)
    ]
    return [
        one.first for one in sorted(drawn, key=lambda one: -size_of(one.first) * one.count)[:most]
    ]


def size_of(array: Array) -> int:
    """Something that ranks arrays by size: bytes, else elements; 0 where neither is known."""
    if array.bytes is not None:
        return array.bytes
    return 0 if array.shape is None else math.prod(array.shape)


def _overview(found: Snapshot, figures: Figures, about: Sequence[str]) -> Html:
    if found.mesh is None or not found.arrays:
        return paragraph("This Snapshot has no mesh or no arrays, so that nothing can be drawn.")
    arrays = [one for one in found.arrays if one.group in STATE_GROUPS] or found.arrays
    if all(one.bytes is None for one in arrays):
        return paragraph("The bytes of its arrays are unknown.")
    styles = styles_of_specs(found.arrays, found.mesh)
    figure = overview(arrays, found.mesh, styles, width_px=WIDE_PX)
    return figures.put(figure, "Bytes that each device holds of each array", about, "bytes")


def _tree(found: Snapshot, figures: Figures, about: Sequence[str]) -> Html:
    arrays = [one for one in found.arrays if one.group in STATE_GROUPS] or found.arrays
    if not arrays:
        return paragraph("No arrays are known.")
    styles = styles_of_specs(found.arrays, found.mesh)
    figure = spec_tree(arrays, found.mesh, styles, width_px=WIDE_PX)
    as_text = "\n".join(text(line) for line in _kept_spaces(text_tree(arrays)))
    return joined(
        (
            figures.put(figure, "Arrays by bytes and PartitionSpec", about, "partition-specs"),
            folded("As text", tag("pre", Html(as_text))),
        )
    )


def _kept_spaces(block: str) -> Iterator[str]:
    """Lines whose runs of spaces are spaces that `text` does not join."""
    for line in block.splitlines():
        yield line.replace(" ", "\N{NO-BREAK SPACE}")


def _maps(found: Snapshot, figures: Figures, about: Sequence[str], most: int) -> Html:
    if found.mesh is None:
        return paragraph("This Snapshot has no mesh, so that no shard can be placed.")
    parameters = [one for one in found.arrays if one.group == "params"] or found.arrays
    small = small_multiples(parameters, found.mesh, most_maps=_MOST_MAPS, width_px=WIDE_PX)
    parts = [figures.put(small, "A small shard map of each parameter", about, "parameters")]
    for array in largest(found, most):
        parts += [tag("h4", array.path), array_maps(array, found, figures, about)]
    if not any(parts):
        return paragraph("Where the shards of these arrays lie is not known.")
    return joined(parts)


def array_maps(array: Array, found: Snapshot, figures: Figures, about: Sequence[str]) -> Html:
    """The array cut into its blocks, and the mesh coloured by them."""
    reason = why_no_map(array, found.mesh)
    if reason is not None:
        return paragraph(reason)
    blocks = block_map(array, found.mesh, width_px=HALF_PX)
    devices = mesh_map(array, found.mesh, width_px=HALF_PX)
    return tag(
        "div",
        figures.put(blocks, f"Blocks of {array.path}", about, f"blocks-{array.path}"),
        # The block map says which array it is of, the mesh map does not.
        figures.put(
            devices, f"Mesh by block of {array.path}", (array.path, *about), f"mesh-{array.path}"
        ),
        class_="pair",
    )


def _arrays(found: Snapshot) -> Html:
    if not found.arrays:
        return paragraph("No arrays are known.")
    rows = [
        (
            one.path,
            one.group,
            formatting.shape_text(one.shape),
            one.dtype,
            formatting.logical_text(one.logical_axes) or "–",
            formatting.spec_text(one.spec),
            "unknown" if one.shard_shape is None else formatting.shape_text(one.shard_shape),
            exact_bytes_text(one.bytes),
            bytes_text(one.bytes_per_device),
            "unknown" if one.replicas is None else f"{one.replicas:,}",
        )
        for one in found.arrays
    ]
    headings = (
        *("Path", "Group", "Shape", "Type", "Logical axes", "Spec", "Shard", "Bytes"),
        *("Per device", "Replicas"),
    )
    whole = table(headings, rows, numbers=(7, 8, 9))
    return folded(f"{counted(len(rows), 'array')} with shapes, specs and bytes", whole)


def note(value: str | None) -> Html:
    """A person's note, as text with its lines."""
    return Html("") if not value else tag("div", lines(value), class_="note")
