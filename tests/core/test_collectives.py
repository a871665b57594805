"""Traffic summed by mesh axes and operation."""

from __future__ import annotations

from inspector.core.collectives import Traffic, traffic
from inspector.core.snapshot import Collective


def collective(op: str, axes: tuple[str, ...] | None, times: int | None, payload: int | None, **other):
    fields = {"conditional": False, "wire_bytes_per_device": payload} | other
    return Collective(
        op=op, asynchronous=False, name="x", computation="main", executions=times, mesh_axes=axes,
        group_size=2, groups=4, payload_bytes=payload, **fields,
    )  # fmt: skip


def test_traffic_by_axes_and_operation() -> None:
    rows = traffic(
        [
            collective("all-reduce", ("data",), 1, 10),
            collective("all-reduce", ("model",), 12, 100, wire_bytes_per_device=150),
            collective("all-reduce", ("model",), 1, 7, conditional=True),
            collective("all-gather", ("model",), None, 5),
            collective("all-gather", ("data",), 3, None),
            collective("all-gather", None, 0, None),
        ]
    )
    assert rows == (
        Traffic(("model",), "all-reduce", 2, 13, 1207, 1807, True),
        Traffic(("data",), "all-reduce", 1, 1, 10, 10, False),
        # What never runs moves nothing, whatever it would move.
        Traffic(None, "all-gather", 1, 0, 0, 0, False),
        Traffic(("model",), "all-gather", 1, None, None, None, False),
        Traffic(("data",), "all-gather", 1, 3, None, None, False),
    )
    assert traffic(()) == ()
