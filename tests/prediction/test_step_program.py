"""Tests that the program of a step is the one that computes most."""

from inspector.assessment import assess
from inspector.machines.hardware import CHIPS
from inspector.prediction.evidence import for_chip
from inspector.prediction.step_program import known_flops, step_program
from inspector.records.snapshot import OpenChoice, Program, Snapshot, Source, Work, WorkPart


def _loop(each: float) -> Program:
    """Return a program with 9,144 FLOPs outside of a loop, and `each` in an iteration."""
    parts = (WorkPart((), 9144.0, (), 8.0), WorkPart(("while.1",), each, (), 8.0))
    work = Work(None, (), None, parts=parts)
    return Program(
        "loop", stage="compiled", collectives=(), work=work, open_choices=(OpenChoice("while.1", "loop"),)
    )


def test_a_loop_of_unknown_trip_count_has_at_least_one_iteration() -> None:
    straight = Program("straight", stage="compiled", flops_per_device=10_000.0, collectives=())
    for each, name in ((16_097.0, "loop"), (10.0, "straight")):
        loop = _loop(each)
        assert known_flops(loop) == 9144.0 + each
        for programs in ((straight, loop), (loop, straight)):
            chosen = step_program(Snapshot(Source("capture", None, "2026-01-01"), None, None, (), programs))
            assert chosen is not None
            assert chosen.name == name


def test_no_flops_are_known_without_the_parts_of_the_loop() -> None:
    assert known_flops(Program("unknown", stage="compiled", collectives=())) is None


def test_the_program_is_the_same_on_each_chip() -> None:
    """Their compiles order the FLOPs of two programs in other ways than the partitioner."""

    def of(name: str, flops: float, platform=None, stage="partitioned") -> Program:
        return Program(
            name,
            stage=stage,
            flops_per_device=flops,
            collectives=(),
            platform=platform,
            work=Work(flops, (), 8.0),
        )

    recorded = Snapshot(
        Source("capture", None, "2026-01-01"), None, None, (),
        tuple(of(name, flops, stage="compiled") for name, flops in (("one", 9.0), ("two", 5.0))),
        partitioned=tuple(
            of(name, flops, platform)
            for name, every in (("one", (3.0, 7.0, 1.0)), ("two", (4.0, 6.0, 2.0)))
            for platform, flops in zip((None, "tpu", "gpu"), every, strict=True)
        ),
    )  # fmt: skip
    for chip in (None, CHIPS["v5e"], CHIPS["h100"]):
        chosen = step_program(for_chip(recorded, chip))
        assert chosen is not None and chosen.name == assess(recorded, chip).program == "two"
    assert chosen.flops_per_device == 2.0
