"""The contents of some devices, and the machine that they are in."""

from collections.abc import Callable, Sequence

from inspector import figures
from inspector.answers.section import (
    Block,
    Cell,
    Column,
    Facts,
    Inline,
    Listing,
    Picture,
    Section,
    Strong,
    Table,
    text,
)
from inspector.machines import targets
from inspector.machines.links import NoLink
from inspector.machines.mesh_links import links_of
from inspector.machines.targets import Target
from inspector.records.snapshot import Snapshot
from inspector.sharding import device_holdings
from inspector.sharding.device_holdings import HeldPiece, Holdings
from inspector.sharding.meshes import mesh_of_all_devices
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text, counted, devices_text, ranges_text


def target_of(snapshot: Snapshot) -> Target | None:
    """Return the machine of the Snapshot, or None if it or the places of its chips are unknown."""
    if snapshot.mesh is None or snapshot.source.target is None:
        return None
    try:
        target = targets.parse(snapshot.source.target)
    except InvalidInput:
        return None
    return None if not axes(snapshot) or figures.chip_panels.panels_of(snapshot.mesh) is None else target


def axes(snapshot: Snapshot) -> list[str]:
    """Return the mesh axes larger than 1, or all mesh axes if there are none."""
    assert snapshot.mesh is not None
    large = [axis.name for axis in snapshot.mesh.axes if axis.size > 1]
    return large or [*snapshot.mesh.axis_names]


def links(snapshot: Snapshot, target: Target) -> Listing:
    """Return the links of every mesh axis."""
    mesh = snapshot.mesh
    assert mesh is not None
    items: list[tuple[Inline, ...]] = []
    for (name,), link in links_of(mesh, target.chip, [(name,) for name in axes(snapshot)]).items():
        kind = "unknown" if isinstance(link, NoLink) else link.name
        items.append((Strong(name), f": {kind}. {link.assumption}"))
    return Listing(tuple(items))


_MAX_RANGES = 2  # index ranges in one cell


def section(held: Holdings) -> Section:
    """Return everything that the devices hold, for a terminal."""
    blocks = (facts(held), table(held), *uncounted(held))
    return Section("devices", "Contents of the devices", blocks)


def facts(held: Holdings) -> Facts:
    """Return the chosen devices and the bytes that they hold."""
    return Facts.of(
        ("Devices", devices_text(held.devices, most=8)),
        ("Held", bytes_text(held.bytes)),
        *on_host_memory(held),
    )


def on_host_memory(held: Holdings) -> tuple[tuple[str, str], ...]:
    """Return the bytes in host memory; empty if there are none."""
    if not any(piece.in_host for piece in held.pieces):
        return ()
    return (("In host memory", bytes_text(held.host)),)


def copies(
    snapshot: Snapshot, held: Holdings, groups: Sequence[str] | None, note: Block
) -> tuple[Block, ...]:
    """Return the devices that hold copies, with a note below.

    Args:
      groups: the groups of arrays that count; None for all.
    """
    mesh = mesh_of_all_devices(snapshot)
    assert mesh is not None
    others = device_holdings.copies_of(snapshot, held.devices, groups)
    picture = Picture(
        "copies_map",
        "Devices that hold copies",
        lambda width_px: figures.mesh_map.copies_map(
            mesh, others, held.devices, held.bytes or 0, width_px=width_px
        ),
    )
    return picture, note


def ordered(held: Holdings) -> list[HeldPiece]:
    """Return the pieces, those with the most bytes first."""
    return sorted(held.pieces, key=lambda piece: -(piece.bytes or 0))


def table(held: Holdings) -> Table:
    """Return a table with one row per array that the devices hold."""
    memory: dict[str | Column, Callable[[HeldPiece], Cell]] = {}
    if any(piece.in_host for piece in held.pieces):
        memory["Memory"] = lambda piece: piece.memory_kind
    return Table.of(
        "device_table",
        ordered(held),
        {
            "Path:code": lambda piece: piece.path,
            "Bytes:bytes": lambda piece: piece.bytes,
            "Index": _index_text,
            "Also on": lambda piece: devices_text(piece.holders) or "no other device",
            "Type": lambda piece: piece.dtype,
            **memory,
        },
    )


def uncounted(held: Holdings) -> tuple[Block, ...]:
    """Return the number of arrays that are left out because their placement is unknown."""
    if not held.unknown:
        return ()
    count = counted(len(held.unknown), "array")
    note = f"Not counted: {count} with unknown placement, such as {held.unknown[0]}."
    return (text(note, quiet=True),)


def _index_text(piece: HeldPiece) -> str:
    texts = [ranges_text(index) for index in piece.index[:_MAX_RANGES]]
    more = len(piece.index) - len(texts)
    return ", ".join(texts) + (f" and {counted(more, 'more piece')}" if more else "")
