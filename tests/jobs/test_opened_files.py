"""The memory of opened Snapshots is bounded for each owner and for the server, and returns."""

from __future__ import annotations

import gc
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from benchmarks.processes import PATIENCE
from inspector.jobs import opened_files
from inspector.jobs.engine import Requester
from inspector.jobs.inspection import Inspection
from inspector.jobs.opened_files import OpenedFiles
from inspector.readers import limits
from inspector.records import snapshot
from inspector.text.errors import InvalidInput
from tests.figures import samples

ANN = Requester("ann", "Ann", "tab 1")


def opened(files: OpenedFiles, size: int, owner: str):
    """Open a Snapshot that counts as `size` bytes."""
    with files.room(size, Requester(owner, owner, f"tab of {owner}"), "file.json") as held:
        held.append(replace(samples.snapshot()))
    return held[0]


def test_bytes_count_until_the_snapshot_is_gone():
    files = OpenedFiles(1000)
    first, second = opened(files, 200, "ann"), opened(files, 300, "ann")
    assert files.total == 500
    del first
    gc.collect()
    assert files.total == 300
    del second
    gc.collect()
    assert files.total == 0


def test_one_owner_cannot_take_the_room_of_others():
    files = OpenedFiles(1000)
    kept = [opened(files, 400, "ann")]
    with pytest.raises(InvalidInput, match="of yours"):
        opened(files, 200, "ann")
    kept.append(opened(files, 500, "ben"))
    with pytest.raises(InvalidInput, match="all users"):
        opened(files, 200, "cem")
    kept.clear()
    gc.collect()
    assert opened(files, 200, "cem") is not None


def test_a_file_that_cannot_be_decoded_takes_no_room():
    files = OpenedFiles(1000)
    with pytest.raises(ZeroDivisionError), files.room(400, ANN, "file.json"):
        raise ZeroDivisionError
    assert files.total == 0


def test_several_snapshots_of_a_board_free_all_bytes():
    files = OpenedFiles(1000)
    with files.room(100, ANN, "board.json") as held:
        held += [replace(samples.snapshot()) for _ in range(3)]
    del held[1:]
    gc.collect()
    assert 0 < files.total < 100
    held.clear()
    gc.collect()
    assert files.total == 0


def test_threads_open_and_close_at_once():
    files = OpenedFiles(10**9)

    def many(owner: str) -> None:
        for size in range(200):
            opened(files, size, owner)

    threads = [threading.Thread(target=many, args=(f"owner {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert files.total == 0


def collectives(count: int) -> str:
    """Return HLO text with so many collectives."""
    lines = "\n".join(
        f"  ar.{n} = f32[8]{{0}} all-reduce(p), replica_groups={{{{0,1}}}}, to_apply=sum"
        for n in range(count)
    )
    return f"""HloModule m, num_partitions=2
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY main {{
  p = f32[8]{{0}} parameter(0)
{lines}
  ROOT r = f32[8]{{0}} add(ar.0, ar.1)
}}
"""


@pytest.fixture(scope="module")
def service():
    with closing(Inspection(run_workers=1)) as service:
        yield service


def test_what_a_tab_opens_counts_and_what_a_command_opens_does_not(service, tmp_path, monkeypatch):
    files = OpenedFiles(10_000_000)
    monkeypatch.setattr(opened_files, "shared", lambda: files)
    path = tmp_path / "step.hlo"
    path.write_text(collectives(50))
    command = service.file(path, "step.hlo").answer()
    assert len(command.programs[0].collectives) == 50 and files.total == 0
    tab = service.of(ANN)
    answer = tab.file(path, "step.hlo").answer()
    assert answer.programs == command.programs
    assert files.total == len(snapshot.dumps(answer))


@pytest.mark.nightly
def test_too_many_collectives_are_refused_with_both_figures(service, tmp_path):
    path = tmp_path / "step.hlo"
    path.write_text(collectives(limits.MOST_COLLECTIVES + 1))
    job = service.file(path, "step.hlo").start().wait(PATIENCE)
    assert job.state == "failed"
    assert "100,001" in job.error and "100,000" in job.error
