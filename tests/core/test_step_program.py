"""Tests that the program of a step is the one that computes most."""

from inspector.core.snapshot import OpenChoice, Program, Snapshot, Source, Work, WorkPart
from inspector.core.step_program import known_flops, step_program


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
