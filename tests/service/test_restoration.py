"""Save and restore in two real workers, and every way in which that can end."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.processes import until
from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.guides.restore import transfer
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.producers.model.abstract import abstract_state
from inspector.service import lanes
from inspector.service.engine import Job
from inspector.service.inspection import Inspection
from inspector.service.restoration import Restoration, refuse_different

# Long enough to be met in the middle.
LARGE = {"layers": "8", "depth": "512"}


@pytest.fixture(scope="module")
def service() -> Iterator[Inspection]:
    service = Inspection(run_workers=1)
    yield service
    service.close()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def small(**fields: str) -> Layout:
    return layouts.parse({"layers": "2", "depth": "32"} | fields).unwrap()


def planned(layout: Layout) -> Snapshot:
    """Plan in this process, which needs no worker."""
    return plan(layout, abstract_state(layout))


def start(service: Inspection, saved: Layout, new: Layout) -> Job[Restoration]:
    return service.restoration(saved, new, planned(saved), planned(new)).start()


def is_at(restoration: Job[Restoration], stage: str, *phases: str) -> Callable[[], bool]:
    def check() -> bool:
        moment = restoration.status()
        assert not restoration.finished, f"{moment.state} before {stage}: {moment.error}"
        return moment.phase in [f"{stage} {phase}" for phase in phases]

    return check


def is_empty(folder: Path) -> bool:
    until(lambda: not list(folder.iterdir()), "the removal of the folder")
    return True


@pytest.mark.nightly
def test_two_workers_with_other_device_counts(service: Inspection, temporary: Path) -> None:
    saved, new = small(), small(mesh="4x3", rules="batch=data,layer=model,embed=data")
    restoration = start(service, saved, new)
    assert until(lambda: list(temporary.iterdir()), "the folder")
    assert restoration.wait(120).status().state == "done"
    outcome = restoration.answer()
    assert outcome.snapshot.findings == (), "placed as planned, and all values equal"
    assert outcome.snapshot.mesh.size == 12
    found = outcome.snapshot.transfer
    assert found.sources == tuple(range(8)) and found.targets == tuple(range(12))
    assert found.routes == transfer.transfer(planned(saved), planned(new)).routes
    assert [row.unequal for row in found.arrays] == [0] * 14
    assert outcome.file_bytes > 0 and outcome.seconds_saving > 0 < outcome.seconds_restoring
    assert is_empty(temporary)


@pytest.mark.nightly
def test_a_state_is_restored_on_explicit_axes(service: Inspection, temporary: Path) -> None:
    saved, new = small(axes="data:explicit,model"), small(axes="data:explicit,model:explicit")
    restoration = start(service, saved, new)
    assert restoration.wait(120).status().state == "done"
    outcome = restoration.answer()
    assert outcome.snapshot.findings == (), "placed as planned, and all values equal"
    assert [axis.type for axis in outcome.snapshot.mesh.axes] == ["explicit", "explicit"]


@pytest.mark.nightly
@pytest.mark.parametrize(("stage", "phase"), [("save", "compile"), ("restore", "start")])
def test_cancel_ends_it_and_leaves_no_file(
    service: Inspection, temporary: Path, stage: str, phase: str
) -> None:
    restoration = start(service, small(**LARGE), small(mesh="4", axes="x", rules="", **LARGE))
    until(is_at(restoration, stage, phase), f"{phase} of {stage}")
    assert list(temporary.iterdir())
    restoration.cancel()
    moment = restoration.wait(60).status()
    assert moment.state == "cancelled"
    assert moment.error.startswith(f"Cancelled during {stage} {phase}, after")
    assert is_empty(temporary)
    with pytest.raises(InvalidInput, match="Cancelled during"):
        restoration.answer()


def test_a_killed_worker_ends_it_in_a_sentence_and_leaves_no_file(
    service: Inspection, temporary: Path
) -> None:
    restoration = start(service, small(**LARGE), small(mesh="4x2", **LARGE))
    until(is_at(restoration, "save", "compile", "train", "save"), "the save")
    (pid,) = [seat.pid for seat in service.pool.workers(lanes.RUNS) if seat.busy]
    os.kill(pid, signal.SIGKILL)
    moment = restoration.wait(60).status()
    assert moment.state == "failed"
    assert "8 devices was killed (SIGKILL) during" in moment.error
    assert is_empty(temporary)


@pytest.mark.nightly
def test_a_checkpoint_that_is_damaged_ends_it_in_a_sentence(service: Inspection, temporary: Path) -> None:
    restoration = start(service, small(**LARGE), small(mesh="4x1", **LARGE))
    until(is_at(restoration, "restore", "start"), "the second worker")
    (folder,) = temporary.iterdir()
    shutil.rmtree(folder / "checkpoint")
    moment = restoration.wait(60).status()
    assert moment.state == "failed" and "\n" not in moment.error
    assert is_empty(temporary)


@pytest.mark.nightly
def test_closing_the_service_ends_it_and_leaves_no_file(temporary: Path) -> None:
    service = Inspection(run_workers=1)
    restoration = start(service, small(**LARGE), small(mesh="4x2", **LARGE))
    until(is_at(restoration, "save", "start", "build", "compile"), "the save")
    service.close()
    assert restoration.wait(60).status().state in ("cancelled", "failed")
    assert is_empty(temporary)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"model": "mlp"},
            "model is logical_mlp in the saved layout and mlp in the layout of the",
        ),
        (
            {"depth": "64"},
            "depth is 32 in the saved layout and 64 in the layout of the restore",
        ),
        ({"scan": "true"}, "scan is false in the saved layout and true in the layout of the"),
        ({"dtype": "bfloat16"}, "dtype is float32 in the saved layout and bfloat16 in "),
    ],
)
def test_other_models_and_sizes_are_refused(
    service: Inspection, fields: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        start(service, small(), small(**fields))
    refuse_different(small(), small(mesh="16", axes="x", rules="", steps="3", target="plan"))


@pytest.mark.nightly
def test_what_does_not_divide_or_fit_is_refused(
    service: Inspection, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match=r"hidden of size 32 is not divisible by 3 \(model\)"):
        start(service, small(), small(mesh="1x3"))
    usage = shutil.disk_usage(temporary)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    with pytest.raises(InvalidInput, match="at most 819 KiB"):
        start(service, small(), small(mesh="4x2"))
    assert is_empty(temporary)
    tight = Inspection(memory=10_000)
    try:
        with pytest.raises(InvalidInput, match="needs about"):
            start(tight, small(), small(mesh="4x2"))
    finally:
        tight.close()
