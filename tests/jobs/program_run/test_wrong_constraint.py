"""A recorded script whose constraint replicates the logits: its finding, and the script with the fix."""

from pathlib import Path

import pytest

from inspector import audit
from inspector.answers.improvements import ranked
from inspector.audit.gathering_constraints import CODE
from inspector.jobs.program_run import folder_snapshot
from inspector.records.snapshot import Finding, Program
from tests.jobs.program_run.test_program_run import RUN, call
from tests.paths import ROOT

SCRIPT = (ROOT / "tests/sentences/programs/replicated_logits.py").read_text()
LINE = next(n for n, line in enumerate(SCRIPT.splitlines(), 1) if "with_sharding_constraint" in line)


def recorded(folder: Path, axis: str) -> tuple[Program, list[Finding], list[Finding]]:
    """Return the step, its findings about constraints, and all findings in their order."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT.replace("AXIS = None", f"AXIS = {axis}"))
    ended = call(folder, *RUN, "train.py")
    assert ended.returncode == 0, ended.stderr
    snapshot = folder_snapshot.read(folder / "recorded")
    every = [row.finding for row in ranked(snapshot, audit.audit(snapshot)) if row.finding is not None]
    (program,) = [one for one in snapshot.programs if one.name == "step"]
    return program, [finding for finding in every if finding.code == CODE], every


@pytest.mark.nightly_but_first
def test_the_finding_names_the_line_and_the_spec_which_saves_what_it_says(tmp_path: Path) -> None:
    wrong, (finding,), every = recorded(tmp_path / "wrong", "None")
    assert every[0] == finding and finding.source == f"train.py:{LINE}"
    assert "params/head" in finding.message and "P('data', None, 'model')" in finding.remedy
    # 16 × 128 × 1024 float32 over 2 devices, or over 8.
    assert "1.0 MiB instead of 4.0 MiB" in finding.remedy
    right, none, _ = recorded(tmp_path / "right", '"model"')
    assert not none and not any(part.operation.startswith("dot") for part in right.work.repeated)
    assert right.flops_per_device == pytest.approx(wrong.flops_per_device / finding.ratio, rel=0.02)
    assert wrong.memory.temporaries - right.memory.temporaries >= 3 * 2**20
