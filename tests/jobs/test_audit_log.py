"""The audit log: one JSON object a line, appended by several writers, readable by its user only."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inspector import layout as layouts
from inspector.jobs.engine import Requester
from inspector.jobs.engine.pool import Event
from inspector.jobs.request import digest, subject_of
from inspector.jobs.serving import AuditLog
from inspector.text.errors import InvalidInput
from tests.paths import ROOT

ANN = Requester("https://p.org 1", 'Ann\n{"event": "forged"}', "tab", signed_in=True)


def test_events_are_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    layout = layouts.parse({"target": "tpu:v5e:2x4"}).unwrap()
    logs = [AuditLog(str(path)), AuditLog(str(path))]
    subject = subject_of({"layout": layout.to_json()})
    logs[0].job(Event("end", ANN, "compile", subject, "done", 1.23456))
    logs[1].library("delete", ANN, "mine", "done")
    for log in logs:
        log.close()
    assert path.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    job, library = sorted(lines, key=lambda line: line["event"])
    assert job["user"] == ANN.name and job["user_id"] == ANN.owner
    # Who knows a session's id can take it over.
    assert job["session"] == library["session"] != ANN.session
    assert (job["event"], job["what"], job["outcome"], job["seconds"]) == (
        *("job-end", "compile", "done"),
        1.235,
    )
    assert (job["layout"], job["target"]) == (digest(layout), "tpu:v5e:2x4")
    assert (library["event"], library["what"]) == ("library-delete", "mine")
    moment = datetime.datetime.fromisoformat(job["time"])
    assert abs((datetime.datetime.now(datetime.UTC) - moment).total_seconds()) < 60


def test_equal_layouts_have_equal_digests() -> None:
    layout, other = layouts.parse({"mesh": "2x4"}).unwrap(), layouts.parse({"mesh": "4x2"}).unwrap()
    assert digest(layout) == digest(layouts.parse({"mesh": "2x4"}).unwrap()) != digest(other)
    together = subject_of({"layouts": [[0, layout.to_json()], [1, other.to_json()]], "rounds": 3})
    assert "1 more" in together.title and together.layout not in (digest(layout), digest(other))
    assert subject_of({"path": "/x"}).target is None


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="audit log"):
        AuditLog(str(tmp_path / "missing" / "audit.jsonl"))
    AuditLog().job(Event("start", ANN, "run", subject_of({})))  # without a path, nothing


# A process whose files cannot grow beyond a limit, as on a full disk: a write that reaches it is cut short.
FULL = """
import resource, sys
from inspector.jobs.serving import AuditLog
from inspector.jobs.engine import Requester

path, room = sys.argv[1], int(sys.argv[2])
for room in (-1, room, -1):
    log = AuditLog(path)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    log.library("delete", Requester("1", "Ann"), "mine", "done")
    log.close()
"""


@pytest.mark.parametrize("cut", [1, 40])
def test_no_line_is_cut_off_on_a_full_disk(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(str(path))
    log.library("delete", Requester("1", "Ann"), "mine", "done")
    log.close()
    size = path.stat().st_size
    path.unlink()
    ended = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(2 * size - cut)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["library-delete"] * 2
    assert "cannot be written" in ended.stderr
