"""Tests that only arrays that a program proves to be weights are counted as parameters."""

from dataclasses import replace

from inspector.answers import subject
from inspector.compare import origin
from inspector.records.snapshot import ArgumentUse, Array, Group, Program, ProgramArray, Snapshot, Source


def _snapshot(*arrays: tuple[str, Group, int], **uses: ArgumentUse | None) -> Snapshot:
    """Return a recorded program with arrays of a path, group and size, and the uses of its inputs."""
    inputs = tuple(ProgramArray("input", path, (), (), True, use=use) for path, use in uses.items())
    program = Program("step", stage="compiled", collectives=(), shardings=inputs)
    live = tuple(Array(path, group, (size,), "float32") for path, group, size in arrays)
    return Snapshot(Source("capture", None, "2026-01-01"), None, None, live, (program,))


def test_a_copy_that_no_program_takes_is_no_parameter() -> None:
    snapshot = _snapshot(("state", "params", 5), ("params", "params", 7), state="weight")
    assert origin.parameters(snapshot) == 5


def test_a_name_alone_proves_no_parameter() -> None:
    arrays: tuple[tuple[str, Group, int], ...] = (("weights", "params", 6), ("model", "params", 4))
    assert origin.parameters(_snapshot(*arrays, weights=None, model="weight")) is None
    assert origin.parameters(_snapshot(*arrays, weights="weight", model="weight")) == 10


def test_frozen_weights_are_not_trained() -> None:
    arrays: tuple[tuple[str, Group, int], ...] = (
        ("adapter", "params", 4), ("moment", "opt_state", 4), ("base", "other", 64),
    )  # fmt: skip
    for base, moment, some in ((None, "moment", True), ("data", "moment", False), (None, None, False)):
        snapshot = _snapshot(*arrays, adapter="weight", moment=moment, base=base)
        assert origin.parameters(snapshot) == 4
        assert origin.trains_some(snapshot) is some


def test_an_average_of_weights_is_not_trained() -> None:
    """Flax calls the parameters of a teacher `Param`, but only the student has moments."""
    arrays: tuple[tuple[str, Group, int], ...] = (
        ("student", "params", 4), ("moment", "opt_state", 4), ("teacher", "params", 4),
    )  # fmt: skip
    cases: tuple[tuple[ArgumentUse | None, int | None], ...] = (("moment", 4), (None, None))
    for moment, count in cases:
        snapshot = _snapshot(*arrays, student="weight", moment=moment, teacher=None)
        assert origin.parameters(snapshot) == count
        assert origin.trains_some(snapshot) is (count is not None)


def test_an_average_that_another_program_evaluates_is_not_trained() -> None:
    arrays: tuple[tuple[str, Group, int], ...] = (
        ("student", "params", 4), ("moment", "opt_state", 4), ("average", "params", 4),
    )  # fmt: skip
    snapshot = _snapshot(*arrays, student="weight", moment="moment", average=None)
    average = ProgramArray("input", "average", (), (), True, use="weight")
    both = replace(snapshot, programs=(*snapshot.programs, Program("evaluate", shardings=(average,))))
    assert origin.parameters(snapshot) == 4
    assert origin.parameters(both) == 4 and origin.trains_some(both)


def test_arrays_of_unknown_use_can_be_more_parameters() -> None:
    """The weights of a stage whose loss another program computes have no gradient in their own program."""
    arrays: tuple[tuple[str, Group, int], ...] = (("last", "params", 6), ("first", "other", 4))
    for first, more in ((None, True), ("data", False)):
        snapshot = _snapshot(*arrays, last="weight", first=first)
        assert origin.parameters(snapshot) == 6 and origin.can_have_more(snapshot) is more
        assert subject.of_model(snapshot).startswith("at least") is more


def test_weights_that_are_no_recorded_array_are_not_left_out() -> None:
    """A donated student is gone when its teacher is counted."""
    for student, more in (("weight", True), ("data", False)):
        uses: dict[str, ArgumentUse | None] = {"teacher": "weight", "step/input/student": student}
        snapshot = _snapshot(("teacher", "params", 6), ("moment", "opt_state", 4), moment="moment", **uses)
        assert origin.parameters(snapshot) == 6
        assert subject.of_model(snapshot).startswith("at least") is more
