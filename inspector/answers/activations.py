"""Activations of a step: those kept on the device or on the host, those computed again, and their cost."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from inspector.answers.section import Block, Cell, Column, Section, Strong, Table, listing, more, text
from inspector.assessment.activations import Activation, Activations, Place, activations
from inspector.machines.hardware import Chip, si_text
from inspector.prediction.evidence import for_chip
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import and_text, bytes_text, counted, seconds_text, share_text
from inspector.text.program_names import subject

HEADING = "Activations: kept or computed again"
_PLACES: dict[Place, str] = {"device": "device", "host": "host", "recomputed": "computed again"}
_MOST_ROWS = 40
_SMALL = 0.001  # of the bytes and of the FLOPs of all rows


def known_of(snapshot: Snapshot, chip: Chip | None) -> list[Activations]:
    """Return the activations of each program with a backward pass.

    Args:
      chip: that of the prediction. None for no seconds.
    """
    snapshot = for_chip(snapshot, chip)
    known = (activations(snapshot, program, chip) for program in snapshot.programs)
    return [one for one in known if one is not None]


def sections(snapshot: Snapshot, chip: Chip | None) -> tuple[Section, ...]:
    """Return a section for each program with a backward pass.

    The arguments are those of `known_of`.
    """
    return tuple(
        Section(f"activations_{known.program}", HEADING, tuple(_blocks(known)))
        for known in known_of(snapshot, chip)
    )


def sentences(snapshot: Snapshot, name: str, chip: Chip | None) -> list[Block]:
    """Return the values that a program keeps and computes again, with costs; empty if none is repeated."""
    known = [one for one in known_of(snapshot, chip) if one.program == name and one.amounts.flops]
    return [text(sentence(one)) for one in known]


def to_json(snapshot: Snapshot, chip: Chip | None) -> list[dict[str, Any]]:
    """Return the same for `--json`, with `as_asked` null if it is unknown. Arguments as `known_of`."""
    return [
        {
            **dataclasses.asdict(known),
            "as_asked": known.as_asked,
            "sentences": [sentence(known), *compiler_sentences(known)],
        }
        for known in known_of(snapshot, chip)
    ]


def _blocks(known: Activations) -> Iterator[Block]:
    yield text(sentence(known))
    if said := compiler_sentences(known):
        yield listing(*said)
    again = [row for row in _shown(known) if row.place == "recomputed"]
    kept = [row for row in _shown(known) if row.place != "recomputed"]
    for heading, rows, kind in (("Computed again", again, "again"), ("Kept", kept, "kept")):
        if rows:
            columns = {**_FIRST, **(_FLOPS if rows is again else _BYTES), **_LAST}
            yield text(Strong(heading))
            yield Table.of(f"activations_{kind}_{known.program}", rows[:_MOST_ROWS], columns)
        yield from more(len(rows) - _MOST_ROWS, "row")


def sentence(known: Activations) -> str:
    """Return the values that a program keeps and computes again, with costs."""
    amounts = known.amounts
    host = f" and {bytes_text(amounts.host)} in memory of the host" if amounts.host else ""
    # Before a compile they are the values that JAX saves. A compiler can compute some where they are read.
    most = "" if known.compiled else "up to "
    kept = (
        f"{subject(known.program)} keeps {most}{bytes_text(amounts.device)} of activations on each device"
        f"{host} for its backward pass"
    )
    if amounts.flops is None:
        return f"{kept}."
    if not amounts.matmul:
        return f"{kept}, and computes {'no matrix product' if amounts.flops else 'none'} again."
    share = "" if known.share is None else f", {share_text(known.share)} of its FLOPs"
    again = f"{kept}, and computes {si_text(amounts.matmul, 'FLOP')} of matrix products again{share}."
    if not known.seconds or known.step is None:
        return again
    return (
        f"{again} This takes about {seconds_text(known.seconds)} of the {seconds_text(known.step)} of a step."
    )


def compiler_sentences(known: Activations) -> list[str]:
    """Return whether the compiler follows a policy, and its own changes."""
    said = list(_differences(known))
    if known.as_asked:
        cpus = " That of a chip can do otherwise." if known.emulated else ""
        said.append(f"The compiler did what the policy asks for.{cpus}")
    return said


def _differences(known: Activations) -> Iterator[str]:
    for asked_place, does, why in (
        ("host", "moves {} to the host", " CPU devices have one memory." if known.emulated else ""),
        ("recomputed", "computes {} again", " XLA computes equal operations once, without prevent_cse=True."),
    ):
        rows = [row for row in known.moved if row.asked == asked_place]
        if rows:
            names = and_text(list(dict.fromkeys(row.label for row in rows)))
            size = bytes_text(sum(row.bytes or 0 for row in rows))
            yield f"The policy {does.format(names)}, but {size} stay on the device.{why}"
    if known.by_compiler:
        again = counted(known.by_compiler, "instruction")
        yield f"To save memory, the compiler computes {again} again on its own."


def _shown(known: Activations) -> list[Activation]:
    """Return the rows without small ones: kept ones by their bytes, others by their FLOPs."""
    kept = known.amounts.device + known.amounts.host
    flops = sum(row.flops for row in known.rows)
    return [
        row
        for row in known.rows
        if row.named
        or (row.flops > _SMALL * flops if row.place == "recomputed" else (row.bytes or 0) > _SMALL * kept)
    ]


_Columns: TypeAlias = dict[str | Column, Callable[[Activation], Cell]]
_FIRST: _Columns = {
    Column("Activation", "code", "The name of checkpoint_name, or else the module and the operation"): (
        lambda row: row.label
    )
}
_FLOPS: _Columns = {
    Column("FLOPs", "count", "Floating-point operations of one device in one step"): (
        lambda row: round(row.flops)
    )
}
_BYTES: _Columns = {
    Column("Bytes", "bytes", "Bytes of one device"): lambda row: row.bytes,
    Column("Place", "text", "The memory in which it is kept"): lambda row: _place(row),
}
_LAST: _Columns = {
    "Values:count": lambda row: row.count,
    "Shape in HLO:code": lambda row: row.shape,
    "Source:code": lambda row: row.source or "",
}


def _place(row: Activation) -> str:
    asked = "" if row.asked is None else f", asked: {_PLACES[row.asked]}"
    return f"{_PLACES[row.place]}{asked}"
