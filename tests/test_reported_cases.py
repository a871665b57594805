"""Programs of other people that are kept outside of the repository, each with its right answer."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import jax
import pytest

from inspector.recording.inspected import inspect
from inspector.records.snapshot import Finding, Program
from tests.paths import CASES

REPORTED = CASES / "reported"
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not REPORTED.is_dir(), reason="needs ../shared/cases/reported"),
    pytest.mark.skipif(jax.device_count() < 8, reason="the programs need 8 devices"),
]


def case(name: str) -> ModuleType:
    path = REPORTED / name / "repro.py"
    spec = importlib.util.spec_from_file_location(f"case_{name.replace('-', '_')}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def inspected(name: str) -> dict[str, tuple[Program, tuple[Finding, ...]]]:
    found = {}
    for key, function, arguments in case(name).make():
        snapshot = inspect(function, *arguments)
        found[key] = snapshot.programs[0], snapshot.findings
    return found


def codes(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def test_uneven_constraint() -> None:
    result = inspected("24-silent-replication")
    _, uneven = result["uneven"]
    (finding,) = [one for one in uneven if one.code == "uneven-result-gathered"]
    assert finding.bytes == 12_867_584 - 12_867_584 // 8
    assert "uneven-result-gathered" not in codes(result["even"][1])


def test_donation() -> None:
    result = inspected("07-donate")
    for name, aliased in (("good", 1_048_576), ("moved", 1_048_576), ("cast", 0)):
        program, findings = result[name]
        assert program.memory is not None and program.memory.aliased == aliased
        assert ("donation-not-used" in codes(findings)) == (aliased == 0)
    program, _ = result["cast"]
    assert program.donation is not None
    (unused,) = program.donation.unused
    assert unused.bytes == 524_288


def test_repeated_work() -> None:
    result = inspected("04-muon")
    ratios = {
        name: [finding.ratio for finding in findings if finding.code == "repeated-work"]
        for name, (_, findings) in result.items()
    }
    assert ratios["per_leaf"] == [pytest.approx(1_677_721_600 * 8 / (503_316_480 * 8), rel=0.01)]
    assert ratios["stacked"] == []


def test_caches() -> None:
    result = inspected("17-kv-cache")
    moved = {
        name: [finding for finding in findings if finding.code == "cache-moved"]
        for name, (_, findings) in result.items()
    }
    assert len(moved["slice_rep"]) == 2 and not moved["scatter_rep"]
    for program, _ in result.values():
        uses = {sharding.path.split("/")[-1]: sharding.use for sharding in program.shardings if sharding.use}
        assert {name for name, use in uses.items() if use == "cache"} == {"k", "v"}
        phases = {collective.op_name for collective in program.collectives or () if collective.op_name}
        assert not any("transpose(" in name for name in phases)
