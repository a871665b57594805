"""What a program's collectives move in one run, by the mesh axes that they run along."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from inspector.core.snapshot import Collective


@dataclass(frozen=True)
class Traffic:
    """All collectives of one op along the same mesh axes; `mesh_axes` is None where these are unknown.

    Executions and bytes are those of one run of the program on one device, with every branch taken where
    `conditional`; None where they are unknown for one of the collectives.
    """

    mesh_axes: tuple[str, ...] | None
    op: str
    instructions: int
    executions: int | None
    payload_bytes: int | None
    wire_bytes_per_device: int | None
    conditional: bool


def traffic(collectives: Iterable[Collective]) -> tuple[Traffic, ...]:
    """The collectives by mesh axes and op, the most bytes on the wire first and the unknown last."""
    together: dict[tuple[tuple[str, ...] | None, str], list[Collective]] = {}
    for collective in collectives:
        together.setdefault((collective.mesh_axes, collective.op), []).append(collective)
    rows = [
        Traffic(
            axes,
            op,
            len(each),
            _total((one.executions, 1) for one in each),
            _total((one.executions, one.payload_bytes) for one in each),
            _total((one.executions, one.wire_bytes_per_device) for one in each),
            any(one.conditional for one in each),
        )
        for (axes, op), each in together.items()
    ]
    return tuple(
        sorted(
            rows,
            key=lambda row: (row.wire_bytes_per_device is None, -(row.wire_bytes_per_device or 0)),
        )
    )


def _total(terms: Iterable[tuple[int | None, int | None]]) -> int | None:
    """The sum of the products. What never runs moves nothing, whatever it would move."""
    total = 0
    for times, each in terms:
        if times == 0:
            continue
        if times is None or each is None:
            return None
        total += times * each
    return total
