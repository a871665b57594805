"""The verbs `audit`, `explain` and `device`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from inspector import layout as layouts
from inspector.audit import audited, smallest_change
from inspector.layout.plan import plan
from inspector.media import terminal as command_line
from inspector.model import own_model
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records import snapshot
from inspector.tracing.model.abstract import abstract_state

LAYOUT = layouts.parse(
    {"depth": "64", "layers": "2", "rules": "batch=data,embed=model,hidden=model", "target": "plan"}
).unwrap()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("audited") / "plan.json"
    snapshot.write(plan(LAYOUT, abstract_state(LAYOUT)), path)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = command_line.main(arguments)
    said = capsys.readouterr()
    return status, said.out, said.err


def test_audit_prints_findings_and_fixes(path: Path, capsys) -> None:
    result = snapshot.read(path)
    findings = audited(result).findings
    status, out, _ = run(capsys, "audit", str(path), "--json")
    rows = json.loads(out)
    changes = [row for row in rows if row["code"].startswith("change-")]
    assert changes[0]["code"] == "change-donation"
    assert layouts.from_json(changes[0]["change"]["layout"]) == replace(LAYOUT, donate=True)
    rows = [row for row in rows if row not in changes]
    assert status == 0 and [row["code"] for row in rows] == [finding.code for finding in findings]
    change = smallest_change(result, findings[0], LAYOUT)
    assert rows[0]["change"]["words"] == change.words
    assert rows[0]["change"]["saves_per_device"] == change.saves == rows[0]["bytes"]
    assert rows[0]["change"]["layout"] == change.layout
    status, out, _ = run(capsys, "audit", str(path))
    assert status == 0 and "warning: dropped-logical-axis" in out
    assert f"Fix: {change.words.replace('`', '')}" in out


def test_explain_prints_the_ledger(path: Path, capsys) -> None:
    status, out, _ = run(capsys, "explain", str(path), "--array", "params/DotReluDot_0/W2")
    assert status == 0
    row = next(line for line in out.splitlines() if line.startswith("3, hidden → model"))
    assert "passed over: mesh axis model is taken by embed" in row
    status, out, _ = run(capsys, "explain", str(path))
    assert out.startswith("All 14 arrays")
    status, out, _ = run(capsys, "explain", str(path), "--rules", "batch=data", "--json")
    follows = {row["array"]: row["follows"] for row in json.loads(out)}
    assert follows["batch/x"] is False and status == 0
    status, out, err = run(capsys, "explain", str(path), "--array", "opt_state/0/count")
    assert status == 2 and "no logical axes" in err and not out


def test_device_prints_contents(path: Path, capsys) -> None:
    status, out, _ = run(capsys, "device", str(path), "--device", "0,4", "--json")
    plain = json.loads(out)
    assert status == 0 and plain["devices"] == [0, 4]
    assert plain["bytes"] == sum(piece["bytes"] for piece in plain["pieces"]) > 0
    status, out, _ = run(capsys, "device", str(path), "--process", "0")
    assert status == 0 and out.splitlines()[0].split(maxsplit=1)[1] == "0, 1, 2, 3, 4, 5, 6, 7"
    for arguments in (("--device", "8"), ("--device", "x"), ("--process", "3"), ("--device", "")):
        status, out, err = run(capsys, "device", str(path), *arguments)
        assert status == 2 and not out and err.count("\n") == 1


@pytest.mark.nightly
def test_fixes_of_an_own_model_need_its_name(tmp_path: Path, monkeypatch, capsys) -> None:
    built_in = dict(CATALOGUE)

    def said(*arguments: str) -> str:
        """Run a command that does not know the models of earlier commands."""
        monkeypatch.setenv(own_model.VARIABLE, "[]")
        try:
            status, out, err = run(capsys, *arguments)
        finally:
            CATALOGUE.clear()
            CATALOGUE.update(built_in)
        assert status == 0, err
        return out

    model = "examples.linen_mlp:build"
    planned = tmp_path / "planned.json"
    said("inspect", "--model", model, "--mesh", "2x4", "--target", "plan", "-o", str(planned))
    # Without it, a finding has only what helps in general.
    assert "(planned)" not in said("audit", str(planned))
    assert "(planned)" in said("audit", str(planned), "--model", model)
