"""Arrays that a program moves between meshes or devices, outside of its compiled programs."""

from collections.abc import Sequence
from typing import Any

from inspector.answers.section import Block, Column, Folded, Section, Table, more, text
from inspector.machines.hardware import Chip, least_seconds
from inspector.records import typed_json
from inspector.records.snapshot import Mesh, Reshard, ReshardedArrays, Snapshot
from inspector.sharding.meshes import mesh_key
from inspector.sharding.sharding_text import mesh_text, spec_text
from inspector.text.formatting import counted, devices_text, seconds_text, shape_text

_MOST_ROWS = 50
_MOST_ARRAYS = 200
NO_CHIP = "no chip is chosen"
NO_ROUTES = "the sharding of an array is unknown"


def sections(snapshot: Snapshot, chip: Chip | None) -> tuple[Section, ...]:
    """Return the moves, those with the most bytes first; empty without any.

    chip: the chip whose links the time is modelled on; None without one.
    """
    every = snapshot.reshards
    if not every:
        return ()
    times = counted(sum(reshard.executions for reshard in every), "time")
    moved = "The program moved committed arrays to other devices or shardings"
    said = text(f"{moved} {times}, outside of compiled programs.")
    blocks: list[Block] = [said, _table(every[:_MOST_ROWS], snapshot, chip)]
    blocks += more(len(every) - _MOST_ROWS, "move")
    if chip is not None:
        blocks.append(text(_model_text(chip), quiet=True))
    blocks.append(Folded("Moved arrays", (_arrays_table(every),)))
    return (Section("reshards", "Moves between meshes", tuple(blocks)),)


def plain(snapshot: Snapshot, chip: Chip | None) -> list[dict[str, Any]]:
    """Return the moves as `show --json` prints them: the records with their sums and modelled time."""
    return [
        {
            **typed_json.encode(reshard),
            "bytes": reshard.bytes,
            "moved_bytes": reshard.moved,
            "least_seconds": None if chip is None else least_seconds(reshard, chip),
            "unknown_seconds": _unknown_seconds(reshard, chip),
        }
        for reshard in snapshot.reshards
    ]


def _table(every: Sequence[Reshard], snapshot: Snapshot, chip: Chip | None) -> Table:
    between = "Bytes that were not on the same device before, summed over the target devices."
    cells: dict[str | Column, Any] = {
        "Source": lambda reshard: reshard.line or "unknown",
        Column("Bytes", "bytes", "Bytes of these arrays, each counted once."): lambda reshard: reshard.bytes,
        Column("Between devices", "bytes", between): lambda reshard: reshard.moved,
        "Operation": lambda reshard: reshard.operation,
        "From": lambda reshard: _side_text(reshard.source_mesh, reshard.source_devices, snapshot),
        "To": lambda reshard: _side_text(reshard.target_mesh, reshard.target_devices, snapshot),
        Column("Arrays", "count", "Arrays of one execution."): lambda reshard: reshard.count,
        Column("Executions", "count", "How often the program did this."): lambda reshard: reshard.executions,
    }
    if chip is not None:
        cells[Column("At least", "text", _model_text(chip))] = lambda reshard: _time_text(reshard, chip)
    return Table.of("reshards", every, cells)


def _arrays_table(every: Sequence[Reshard]) -> Table:
    rows = [(reshard, arrays) for reshard in every for arrays in reshard.arrays][:_MOST_ARRAYS]
    return Table.of(
        "resharded_arrays",
        rows,
        {
            "Source": lambda row: row[0].line or "unknown",
            "Bytes of each:bytes": lambda row: row[1].bytes,
            "Arrays:count": lambda row: row[1].count,
            "Shape": lambda row: shape_text(row[1].shape),
            "Type": lambda row: row[1].dtype,
            "PartitionSpec before": lambda row: _spec_text(row[1], "source"),
            "PartitionSpec after": lambda row: _spec_text(row[1], "target"),
        },
    )


def _spec_text(arrays: ReshardedArrays, side: str) -> str:
    spec = arrays.source_spec if side == "source" else arrays.target_spec
    return "no NamedSharding" if spec is None else spec_text(spec)


def _side_text(mesh: Mesh | None, devices: Sequence[int], snapshot: Snapshot) -> str:
    """Return `mesh 2: fsdp 2 × tp 2, devices 0, 1, 2, 3`, or the devices alone without a mesh."""
    noun = "device" if len(devices) == 1 else "devices"
    where = f"{noun} {devices_text(devices)}"
    if mesh is None:
        return where
    keys = [mesh_key(mesh) for mesh in snapshot.meshes]
    key = mesh_key(mesh)
    name = f"mesh {keys.index(key) + 1}: " if key in keys else ""
    return f"{name}{mesh_text(mesh)}, {where}"


def _time_text(reshard: Reshard, chip: Chip) -> str:
    seconds = least_seconds(reshard, chip)
    return f"unknown: {NO_ROUTES}" if seconds is None else seconds_text(seconds)


def _unknown_seconds(reshard: Reshard, chip: Chip | None) -> str | None:
    if chip is None:
        return NO_CHIP
    return NO_ROUTES if reshard.routes is None else None


def _model_text(chip: Chip) -> str:
    return (
        f"The least time of one execution: all links of each {chip.title} carry these bytes at once, and "
        "nothing else."
    )
