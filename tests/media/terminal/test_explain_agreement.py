"""`explain --agreement`: partitioned against compiled collectives of one Snapshot, from a real compile."""

from __future__ import annotations

import json

import pytest

from inspector.answers.partitioned_traffic import HEADING
from inspector.media import report
from inspector.media.terminal import main
from inspector.records import snapshot as snapshots

LAYOUT = {
    "model": "logical_mlp",
    "mesh": "2x4",
    "axes": ["fsdp", "tensor"],
    "rules": [["batch", "fsdp"], ["embed", "fsdp"], ["hidden", "tensor"]],
    "sizes": {"depth": 64, "layers": 2},
    "steps": 1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agreement")
    (folder / "layout.json").write_text(json.dumps(LAYOUT))
    assert main(["inspect", str(folder / "layout.json"), "-o", str(folder / "run.json")]) == 0
    return folder / "run.json"


def test_a_run_contains_both_and_they_agree(run, capsys) -> None:
    snapshot = snapshots.read(run)
    assert snapshot.partitioned is not None
    assert {program.stage for program in snapshot.partitioned} == {"partitioned"}
    capsys.readouterr()
    assert main(["explain", str(run), "--agreement", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["program"] for row in rows} == {"train_step", "apply"}
    for row in rows:
        one, other = row["propagated"], row["compiled"]
        assert one["wire_bytes_per_device"] == other["wire_bytes_per_device"]
        assert row["reasons"] == ([] if one["executions"] == other["executions"] else ["combined"])


def test_text_and_report_have_the_table(run, capsys) -> None:
    assert main(["explain", str(run), "--agreement"]) == 0
    assert HEADING in capsys.readouterr().out
    assert main(["show", str(run), "--all"]) == 0
    assert HEADING in capsys.readouterr().out
    assert HEADING in report.content([("run", snapshots.read(run))], ".html")


def test_a_plan_has_nothing_to_compare(tmp_path, capsys) -> None:
    path = str(tmp_path / "plan.json")
    (tmp_path / "layout.json").write_text(json.dumps(LAYOUT))
    layout = str(tmp_path / "layout.json")
    assert main(["inspect", layout, "--target", "plan", "-o", path]) == 0
    capsys.readouterr()
    assert main(["explain", path, "--agreement"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
