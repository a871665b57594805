"""Tests of compiles through the service: concurrent, cancelled, killed and refused."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector import layout as layouts
from inspector.jobs import lanes
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.engine import Job
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout
from inspector.machines import targets
from inspector.text.errors import InvalidInput

pytestmark = pytest.mark.close_to_jax

SMALL = {"mesh": "2x2", "batch": "64", "layers": "2", "depth": "256"}
# One program of it compiles for more than a second, mostly in native code.
LONG = {
    "mesh": "16x4", "model": "transformer", "axes": "fsdp,tensor", "batch": "64", "layers": "4",
    "embed": "1024", "mlp": "4096", "heads": "16", "kv_heads": "4", "head_dim": "64", "seq": "1024",
    "vocab": "32000", "scan": "true", "dtype": "bfloat16",
    "rules": "vocab=tensor,mlp=tensor,heads=tensor,kv_heads=tensor,batch=fsdp,embed=fsdp",
}  # fmt: skip


def layout_for(target: str, fields: dict[str, str] = SMALL) -> Layout:
    layout = layouts.parse(fields | {"target": target}).unwrap()
    assert layout.machine is not None
    if lacking := targets.missing_compiler(layout.machine):
        pytest.skip(lacking)
    return layout


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspection]:
    kept = CompileCache(tmp_path_factory.mktemp("kept") / "compiled.sqlite3")
    service = Inspection(run_workers=2, compiled=kept)
    yield service
    service.close()


def start(service: Inspection, layout: Layout) -> Job:
    return service.run(layout).start()


def compiling(service: Inspection, layout: Layout) -> Job:
    """Start a compile, and return its job when the compiler runs."""
    job = start(service, layout)
    while not job.wait(0.01).finished and job.status().phase != "compile":
        pass
    assert job.status().phase == "compile" and not job.finished, job.error
    return job


def wait_until_gone(pid: int) -> None:
    """Wait until the process ends."""
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"{pid} is still there"
        time.sleep(0.01)


def left_behind(folder: Path) -> set[str]:
    """Return the locks, logs and temporary files of compilers in the temporary folder."""
    return {
        name
        for name in os.listdir(folder)
        if any(word in name for word in ("libtpu", "tpu_logs", "xla", "tempfile-"))
    }


@pytest.mark.nightly
def test_two_concurrent_compiles_for_different_targets(service: Inspection) -> None:
    wanted = [layout_for("tpu:v5e:2x2"), layout_for("tpu:v6e:2x2")]
    jobs = [start(service, layout) for layout in wanted]
    assert len({seat.pid for seat in service.pool.workers(lanes.RUNS)}) == 2
    for layout, job in zip(wanted, jobs, strict=True):
        answer = job.wait().answer()
        assert answer.source.target == layout.target
        assert answer.program("train_step").collectives
        assert service.run(layout).known() == answer


@pytest.mark.nightly
def test_a_cancelled_compile_ends_and_leaves_no_files(service: Inspection) -> None:
    before = left_behind(Path(tempfile.gettempdir()))
    layout = layout_for("tpu:v5p:4x4x4", LONG)
    job = compiling(service, layout)
    (busy,) = [seat.pid for seat in service.pool.workers(lanes.RUNS) if seat.busy]
    job.cancel()
    assert job.state == "cancelled"
    with pytest.raises(InvalidInput, match=r"^Cancelled during compile, after [\d.]+ s\.$"):
        job.answer()
    # The compiler cannot be cancelled, so its process is ended.
    wait_until_gone(busy)
    assert service.run(layout).known() is None
    small = layout_for("tpu:v5e:2x2", SMALL | {"depth": "128"})
    assert start(service, small).wait().answer().programs
    assert left_behind(Path(tempfile.gettempdir())) == before


@pytest.mark.nightly
def test_a_killed_compiler_is_an_error_and_the_next_one_works(service: Inspection) -> None:
    layout = layout_for("tpu:v5p:4x4x4", LONG)
    job = compiling(service, layout)
    (busy,) = [seat.pid for seat in service.pool.workers(lanes.RUNS) if seat.busy]
    os.kill(busy, signal.SIGKILL)
    job.wait()
    with pytest.raises(InvalidInput, match="SIGKILL") as refused:
        job.answer()
    assert "\n" not in str(refused.value)
    assert service.run(layout).known() is None
    small = layout_for("tpu:v5e:2x2", SMALL | {"depth": "128"})
    assert start(service, small).wait().answer().programs


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"target": "tpu:v5p:4x4x5"}, "topology"),
        ({"target": "tpu:v9:2x2"}, "v9"),
        ({"target": "gpu:h100:11"}, "number of GPUs is '11'"),
        ({"target": "tpu:v5e:2x4", "mesh": "2x2"}, "mesh 2x2 has 4 devices, but tpu:v5e:2x4 has 8"),
    ],
)
def test_an_invalid_target_is_refused_before_a_worker_starts(fields: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        layouts.parse(fields).unwrap()
    assert said in str(refused.value) and "\n" not in str(refused.value)
