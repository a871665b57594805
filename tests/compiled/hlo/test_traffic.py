"""Traffic by mesh axes and op is the sum of its collectives, and unknown where one of them is."""

from __future__ import annotations

from inspector.core.collectives import Traffic, traffic
from inspector.core.snapshot import Collective, Program, Snapshot, Source
from inspector.media.terminal.show_verb import summary


def collective(
    op: str, axes: tuple[str, ...] | None, times: int | None, payload: int | None, **other
):
    fields = {"conditional": False, "wire_bytes_per_device": payload} | other
    return Collective(
        op=op, asynchronous=False, name="x", computation="main", executions=times, mesh_axes=axes,
        group_size=2, groups=4, payload_bytes=payload, **fields,
    )  # fmt: skip


def test_collectives_of_one_op_along_the_same_axes_are_one_row() -> None:
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


def test_the_text_summary_lists_it() -> None:
    program = Program(
        "train_step",
        collectives=(
            collective("all-reduce", ("data", "model"), 12, 2048),
            collective("all-gather", None, None, 5),
            collective("all-to-all", (), 1, 0, conditional=True),
        ),
    )
    found = Snapshot(
        Source("cpu", "cpu", "2026-01-01"), None, None, (), (program, Program("apply"))
    )
    lines = [" ".join(line.split()) for line in summary(found).splitlines()]
    start = lines.index("collectives of train_step op executions payload wire per device")
    assert lines[start + 1 : start + 4] == [
        "data, model all-reduce 12 24.0 KiB 24.0 KiB",
        "no axis all-to-all up to 1 0 B 0 B",
        "unknown axes all-gather unknown unknown unknown",
    ]
    assert not any("collectives of apply" in line for line in lines)
