"""Rules about programs: memory, and collectives whose executions are known, unknown or conditional."""

from __future__ import annotations

import dataclasses

import pytest

from inspector.audit import lock_file, policy
from inspector.records import snapshot
from inspector.records.snapshot import Collective, CollectivePart, Finding, Memory, Snapshot
from tests.audit.policy.one_rule import collective, outcome, sentences
from tests.figures import samples

NONE = "[collectives]\nop = 'all-gather'\naxis = 'data'"


def with_collectives(*collectives: Collective) -> Snapshot:
    snapshot = samples.snapshot()
    programs = tuple(
        dataclasses.replace(program, collectives=collectives if program.name == "train_step" else None)
        for program in snapshot.programs
    )
    return dataclasses.replace(snapshot, programs=programs)


def test_an_operation_over_an_axis_is_forbidden() -> None:
    (said,) = sentences(NONE, with_collectives(collective(), collective()))
    assert said == (
        "all-gather over data in train_step: 2 instructions, 2 executions per run, "
        "1.0 KiB (1,024 bytes) on the wire per device (none allowed)"
    )
    # Groups over both axes include data. Other axes, operations and 0 executions do not count.
    assert len(sentences(NONE, with_collectives(collective(axes=("data", "model"))))) == 1
    assert sentences(NONE, with_collectives()) == []
    for other in (
        collective(axes=("model",)),
        collective(axes=()),
        collective(op="all-reduce"),
        collective(executions=0),
    ):
        assert sentences(NONE, with_collectives(other)) == []
    # Without an operation or axis, all collectives count.
    assert len(sentences("[collectives]\naxis = 'data'", with_collectives(collective("all-reduce")))) == 1
    assert len(sentences("[collectives]", with_collectives(collective(axes=None)))) == 1


def test_only_larger_payloads_are_forbidden() -> None:
    rule = f"{NONE}\nlarger_than = '1 KiB'"
    assert sentences(rule, with_collectives(collective(payload=1024))) == []
    large = dataclasses.replace(collective(payload=1025), arrays=("params/w", "params/v"))
    (said,) = sentences(rule, with_collectives(large, collective(payload=1024)))
    assert said == (
        "all-gather over data in train_step: 1 instruction, 1 execution per run, 512 B on the "
        "wire per device for params/w and params/v (none with a payload over 1.0 KiB (1,024 bytes) allowed)"
    )
    # The compiler has combined two gathers of 1 KiB.
    parts = tuple(CollectivePart(inputs=(path,), payload_bytes=1024) for path in ("params/w", "params/v"))
    combined = dataclasses.replace(collective(payload=2048), arrays=("params/w", "params/v"), parts=parts)
    assert sentences(rule, with_collectives(combined)) == []
    assert len(sentences(f"{NONE}\nlarger_than = 1023", with_collectives(combined))) == 1
    unknown = outcome(rule, with_collectives(collective(payload=None)))
    assert unknown.violations == () and "unknown payload of all-gather.1" in (unknown.unknown or "")
    limited = f"{rule}\nmost_wire_bytes = 600"
    assert sentences(limited, with_collectives(large, collective(payload=1024))) == []
    assert len(sentences(limited, with_collectives(large, large))) == 1


def test_a_rule_without_a_program_checks_the_only_one() -> None:
    snapshot = with_collectives(collective())
    (step,) = (program for program in snapshot.programs if program.name == "train_step")
    alone = dataclasses.replace(snapshot, programs=(dataclasses.replace(step, name="forward"),))
    (said,) = sentences(NONE, alone)
    assert said.startswith("all-gather over data in forward: ")
    several = dataclasses.replace(alone, programs=(*alone.programs, dataclasses.replace(step, name="decode")))
    assert "forward" in (outcome(NONE, several).unknown or "")


def test_unknown_executions_and_branches_are_named() -> None:
    (unknown,) = sentences(NONE, with_collectives(collective(executions=None)))
    assert "unknown executions" in unknown
    (branch,) = sentences(NONE, with_collectives(collective(conditional=True)))
    assert "up to 1 execution per run (in a branch)" in branch


def test_unknown_axes_make_the_rule_unknown() -> None:
    only = outcome(NONE, with_collectives(collective(axes=None)))
    assert only.violations == () and "unknown mesh axes of all-gather.1" in (only.unknown or "")
    both = outcome(NONE, with_collectives(collective(axes=None), collective()))
    assert len(both.violations) == 1 and both.unknown is not None


@pytest.mark.parametrize("which", ["most_wire_bytes", "most_payload_bytes"])
def test_bytes_are_summed_over_executions(which: str) -> None:
    each = 512 if which == "most_wire_bytes" else 1024
    snapshot = with_collectives(collective(executions=3), collective(executions=1))
    assert sentences(f"{NONE}\n{which} = {4 * each}", snapshot) == []
    (said,) = sentences(f"{NONE}\n{which} = {4 * each - 1}", snapshot)
    assert f"all-gather over data in train_step: {4 * each // 1024}.0 KiB" in said
    branch = with_collectives(collective(executions=4, conditional=True))
    assert "up to " in sentences(f"{NONE}\n{which} = 1", branch)[0]


def test_a_limit_counts_known_bytes() -> None:
    snapshot = with_collectives(collective(executions=None), collective())
    rule = f"{NONE}\nmost_wire_bytes = "
    assert "unknown executions or bytes of all-gather.1" in (outcome(f"{rule}512", snapshot).unknown or "")
    (said,) = sentences(f"{rule}511", snapshot)
    assert "at least 512 B on the wire" in said
    sizeless = with_collectives(collective(payload=None))
    assert "unknown executions or bytes" in (outcome(f"{rule}9", sizeless).unknown or "")


def test_without_programs_the_rule_is_unknown() -> None:
    plan = dataclasses.replace(samples.snapshot(), programs=())
    for text in (NONE, "[memory]\nmost = 1"):
        assert "no program" in (outcome(text, plan).unknown or "")
    uncounted = outcome(f"{NONE}\nprogram = 'apply'", with_collectives())
    assert uncounted.unknown == "unknown collectives of apply"


def test_memory_is_that_of_the_compiler() -> None:
    memory = Memory(100, 60, 40, 30, 5, peak=130)
    snapshot = samples.snapshot()
    programs = tuple(
        dataclasses.replace(program, memory=memory if program.name == "train_step" else None)
        for program in snapshot.programs
    )
    snapshot = dataclasses.replace(snapshot, programs=programs)
    step = "[memory]\nprogram = 'train_step'\n"
    assert sentences(f"{step}most = 130", snapshot) == []
    assert sentences(f"{step}most = 129", snapshot) == [
        "train_step: peak memory 130 B per device (limit 129 B)"
    ]
    # 100 + 60 + 30 − 40; the code of an emulated device is not in its memory.
    assert sentences(f"{step}figure = 'total'\nmost = 150", snapshot) == []
    assert sentences(f"{step}figure = 'total'\nmost = 149", snapshot)
    every = outcome("[memory]\nmost = 129", snapshot)
    assert len(every.violations) == 1
    assert every.unknown == "unknown peak memory of init, apply"


def test_specs_are_compared_with_a_snapshot_or_lock_file(tmp_path) -> None:
    result = samples.snapshot()
    snapshot.write(result, tmp_path / "golden.json")
    lock_file.write(lock_file.locked(result), tmp_path / "golden.sharding.json")
    first, *rest = samples.mlp_state()[1:]
    moved = dataclasses.replace(first, spec=(("data",), None))
    changed = samples.snapshot(arrays=(moved, *rest, samples.with_path(first, "params/new")))
    for name in ("golden.json", "golden.sharding.json"):
        (tmp_path / "p.toml").write_text(f"[specs]\nsame_as = '{name}'")
        rules = policy.read(tmp_path / "p.toml")
        (same,) = rules.check(result)
        assert same.holds
        (other,) = rules.check(changed)
        assert [violation.sentence for violation in other.violations] == [
            f"params/DotReluDot_0/Dense_0/kernel: P('data', None), but P(None, 'model') in {name}",
            f"params/new: P(None, 'model'), but missing in {name}",
            f"step: missing, but P() in {name}",
        ]
        (lost,) = rules.check(dataclasses.replace(result, arrays=(_unknown(first), *result.arrays[2:])))
        assert "unknown spec of params/DotReluDot_0/Dense_0/kernel here" in (lost.unknown or "")


def _unknown(array):
    return dataclasses.replace(array, spec=None)


def test_mesh_axes_of_size_1_do_not_count(tmp_path) -> None:
    on, bare = samples.mesh(data=2, model=4, tensor=1), samples.DEFAULT_MESH
    golden = samples.snapshot(on, (samples.array("params/w", (8, 8), (("data", "tensor"), None), on),))
    snapshot.write(golden, tmp_path / "golden.json")
    (tmp_path / "p.toml").write_text("[specs]\nsame_as = 'golden.json'\narrays = 'params/*'")
    rules = policy.read(tmp_path / "p.toml")
    for spec, holds in (((("data",), None), True), ((None, ("data",)), False)):
        (only,) = rules.check(samples.snapshot(bare, (samples.array("params/w", (8, 8), spec, bare),)))
        assert only.holds == holds


def test_findings_of_a_level_are_forbidden() -> None:
    pytest.importorskip("inspector.audit")
    on = samples.mesh(data=2, model=4)
    # Sharded over every axis, so the audit finds nothing.
    arrays = (samples.array("params/w", (64, 64), (("data",), ("model",)), on),)
    bare = dataclasses.replace(samples.snapshot(on, arrays), programs=())
    snapshot = dataclasses.replace(
        bare,
        findings=(
            Finding("warning", "some-code", "one\nthing", "params/w"),
            Finding("note", "mild", "another"),
        ),
    )
    rule = "[findings]\nnone_from = "
    assert sentences(f"{rule}'error'", snapshot) == []
    assert sentences(f"{rule}'warning'", snapshot) == [
        "warning some-code: one thing (no finding from warning allowed)"
    ]
    assert len(sentences(f"{rule}'note'", snapshot)) == 2
    assert sentences(f"{rule}'warning'\nexcept = 'some-code'", snapshot) == []
