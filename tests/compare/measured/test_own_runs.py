"""Own runs: from a run on this machine to narrower intervals."""

from __future__ import annotations

import dataclasses
import json

import pytest

from inspector.compare.measured import local_runs
from inspector.files import private_database
from inspector.machines.hardware import CHIPS
from inspector.media.terminal import main
from inspector.prediction import calibration
from inspector.prediction.predicted import ENOUGH_RUNS, interval, interval_of, predicted
from inspector.records import snapshot
from inspector.records.snapshot import Mesh, MeshAxis, Program, ScheduledOperation, Seconds, Snapshot, Source
from inspector.text.errors import InvalidInput
from tests.prediction.schedules import schedule

CHIP = CHIPS["v5e"]
MESH = Mesh((MeshAxis("data", 2),), devices=(0, 1), device_kind=CHIP.device_kind)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(private_database.VARIABLE, str(tmp_path / "kept"))


def run(factor: float, day: int = 1, mesh: Mesh = MESH, kind: str = "local") -> Snapshot:
    """A run whose steps took `factor` times the prediction."""
    operation = ScheduledOperation("a", "fusion", cycles=1_500_000, flops=1.0)
    program = Program("train_step", schedule=schedule(operation))
    seconds = predicted(program, MESH, CHIP).seconds
    assert seconds is not None
    timed = dataclasses.replace(program, seconds=Seconds(steps=(factor * seconds,) * 3))
    return Snapshot(
        Source(kind, "local", f"2026-11-{day:02d}T12:00:00+00:00", {}),
        None,
        mesh=mesh,
        arrays=(),
        programs=(timed,),
    )


def test_enough_own_runs_replace_the_published_ones():
    before = interval_of(CHIP.name)
    assert before is not None and before.own == 0
    factors = [1.02, 1.01, 1.03, 1.02, 1.04]
    for day, factor in enumerate(factors, 1):
        (new,) = local_runs.add(run(factor, day))
        assert new.ratio == pytest.approx(factor)
        after = interval_of(CHIP.name)
        assert after is not None and after.own == day
        assert after.runs == (day if day >= ENOUGH_RUNS else before.runs + day)
    assert (after.low, after.high) == (1.0, pytest.approx(1.04))
    assert after.high - after.low < before.high - before.low
    result = predicted(run(1.0).programs[0], MESH, CHIP)
    assert result.high == pytest.approx(1.04 * result.seconds)
    other = interval_of("v5p")  # other chips keep theirs
    assert other is not None and other.own == 0


def test_few_own_runs_widen_the_published_ones():
    published = [("v5e", 1.0 + 0.01 * number) for number in range(4)]
    result = interval(published, "v5e", (1.5,))
    assert result is not None and (result.runs, result.own, result.chip) == (5, 1, "v5e")
    assert result.high == 1.5


def test_a_run_counts_once_and_only_with_these_constants():
    assert len(local_runs.add(run(1.1))) == 1
    assert local_runs.add(run(1.1)) == ()
    assert calibration.ratios(CHIP.name) == pytest.approx((1.1,))
    plain = json.loads(calibration.path().read_text())
    plain["runs"][0]["constants"] = "of another version"
    calibration.path().write_text(json.dumps(plain))
    assert calibration.ratios(CHIP.name) == () and len(calibration.read()) == 1


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"format": "sharding-inspector-runs", "version": 1, "runs": [{"chip": 1}]}'],
)
def test_a_damaged_file_is_an_error_of_the_command_and_nothing_to_a_prediction(text, tmp_path):
    calibration.path().parent.mkdir()
    calibration.path().write_text(text)
    with pytest.raises(InvalidInput, match=str(calibration.path())):
        local_runs.add(run(1.0))
    assert calibration.path().read_text() == text
    interval = interval_of(CHIP.name)
    assert interval is not None and interval.own == 0


def test_negative_seconds_are_refused():
    local_runs.add(run(1.0))
    plain = json.loads(calibration.path().read_text())
    plain["runs"][0]["measured"] = -1.0
    calibration.path().write_text(json.dumps(plain))
    with pytest.raises(InvalidInput, match="above 0"):
        calibration.read()


@pytest.mark.parametrize(
    "other",
    [
        run(1.0, kind="cpu"),
        run(1.0, mesh=dataclasses.replace(MESH, device_kind="cpu")),
        dataclasses.replace(run(1.0), programs=()),
        dataclasses.replace(run(1.0), mesh=None),
    ],
)
def test_other_snapshots_are_refused(other):
    with pytest.raises(InvalidInput):
        local_runs.runs_of(other)


@pytest.mark.parametrize("kind", ["profile", "capture"])
def test_profiled_steps_on_a_chip_are_own_runs(kind):
    (new,) = local_runs.add(run(1.2, kind=kind))
    assert new.measured / new.predicted == pytest.approx(1.2)
    assert calibration.ratios(CHIP.name) == pytest.approx((1.2,))


def test_the_command_adds_and_lists(tmp_path, capsys):
    path = tmp_path / "run.json"
    path.write_text(snapshot.dumps(run(1.25)))
    assert main(["accuracy", "--add", str(path), "--json"]) == 0
    (own,) = json.loads(capsys.readouterr().out)["own"]
    assert own["measured"] / own["predicted"] == pytest.approx(1.25)
    assert main(["accuracy", "--add", str(tmp_path / "missing.json")]) == 2
