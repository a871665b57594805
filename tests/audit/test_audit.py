"""The audit finds known faults of layouts, and nothing in good layouts."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from dataclasses import replace

import jax
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import layout as layouts
from inspector.audit import CHECKS, CODES, SNAPSHOT_CHECKS, audit, audited, merged_by_logical_axis, questions
from inspector.audit.context import parameters_of_moments
from inspector.audit.unused_rules import shadowing
from inspector.layout.plan import INDIVISIBLE, plan
from inspector.recording.capture import capture
from inspector.records import snapshot, typed_json
from inspector.records.snapshot import (
    Array,
    Collective,
    Finding,
    Mesh,
    MeshAxis,
    Program,
    Shard,
    Snapshot,
    Source,
)
from inspector.text.formatting import bytes_text
from inspector.tracing.model.abstract import abstract_state

SMALL = {"layers": "3", "depth": "64", "target": "plan"}
STATES: dict[str, object] = {}


def planned(**fields: str) -> Snapshot:
    layout = layouts.parse({**SMALL, **fields}).unwrap()
    key = f"{layout.model} {dict(layout.sizes)}"
    if key not in STATES:
        STATES[key] = abstract_state(layout)
    return plan(layout, STATES[key])


def codes(snapshot: Snapshot, *levels: str) -> list[str]:
    return [finding.code for finding in audit(snapshot) if finding.level in (levels or ("error", "warning"))]


def the(snapshot: Snapshot, code: str) -> Finding:
    (finding,) = [finding for finding in audit(snapshot) if finding.code == code]
    return finding


def names_in(sentence: str | None) -> set[str]:
    """The names and numbers that a sentence has, whatever its other words are."""
    return set(re.findall(r"\w+(?:,\d+)*", sentence or ""))


def made(mesh: dict[str, int], *arrays: Array, rules: object = None, **more: object) -> Snapshot:
    """A Snapshot of these arrays, whose bytes follow from their shapes and specs."""
    axes = tuple(MeshAxis(name, size) for name, size in mesh.items())
    count = 1
    for axis in axes:
        count *= axis.size
    layout = None if rules is None else {"rules": rules}
    return Snapshot(
        Source("capture", None, "2026-01-01"), layout, Mesh(axes, tuple(range(count))), arrays, **more
    )  # fmt: skip


def array(path: str, shape: tuple[int, ...], spec, ways: int = 1, devices: int = 8, **more: object) -> Array:
    """A float32 array in `ways` parts."""
    size = 4
    for extent in shape:
        size *= extent
    group = {"params": "params", "opt": "opt_state", "batch": "batch"}[path.split("/")[0]]
    return Array(
        path, group, shape, "float32", spec=spec, bytes=size, bytes_per_device=size // ways,
        shard_shape=tuple(shape), replicas=devices // ways, **more,
    )  # fmt: skip


def test_default_layouts_have_no_problems() -> None:
    assert codes(planned()) == []
    assert codes(planned(model="mlp")) == []
    # Plain data parallelism over one of two axes is a note.
    note = the(planned(), "state-repeated-over-axis")
    state = sum(
        array.bytes_per_device for array in planned().arrays if array.group in ("params", "opt_state")
    )
    # All but Adam's count, which is a scalar.
    assert note.level == "note" and note.bytes == (state - 4) // 2


def test_a_dropped_logical_axis_is_found_and_explained() -> None:
    snapshot = planned(rules="batch=data,embed=model,hidden=model")
    finding = the(snapshot, "dropped-logical-axis")
    assert {"embed", "hidden", "model"} <= names_in(finding.message)
    assert "params/DotReluDot_{0…2}/Dense_0/kernel" in finding.message
    assert finding.rule == 2 and finding.logical_axis == "hidden"
    assert finding.axes == ("data",) and {"hidden", "data"} <= names_in(finding.remedy)
    # Every matrix of the train state can also be sharded over data, which halves it.
    state = sum(a.bytes_per_device for a in snapshot.arrays if len(a.shape) == 2 and "batch" not in a.path)
    state -= snapshot.array("output").bytes_per_device
    assert finding.bytes == state // 2
    assert finding.array in {a.path for a in snapshot.arrays}
    assert finding.count == 6


def test_a_logical_axis_that_a_later_rule_shards_is_not_dropped() -> None:
    snapshot = planned(rules="batch=data,embed=model,hidden=model,hidden=data")
    assert "dropped-logical-axis" not in codes(snapshot, "error", "warning", "note")


def test_replicated_parameters_and_moments_are_separate_findings() -> None:
    snapshot = planned(rules="batch=data")
    parameters = [finding for finding in audit(snapshot) if finding.code == "replicated-parameter"]
    moments = [finding for finding in audit(snapshot) if finding.code == "replicated-optimizer-state"]
    assert len(parameters) == len(moments) == 2  # Dense_0/kernel and W2, three layers each
    assert sum(parameter.bytes for parameter in parameters) == 6 * 64 * 64 * 4 * 7 // 8
    assert sum(moment.bytes for moment in moments) == 2 * sum(parameter.bytes for parameter in parameters)
    assert {finding.rule for finding in (*parameters, *moments)} == {None}
    assert {parameter.count for parameter in parameters} == {3}
    assert {moment.count for moment in moments} == {6}
    groups = {array.path: array.group for array in snapshot.arrays}
    for named, group in ((parameters, "params"), (moments, "opt_state")):
        paths = [path for finding in named for path in finding.arrays]
        assert {groups[re.sub(r"\{\d+…\d+\}", "0", path)] for path in paths} == {group}


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("batch=data,hidden=,hidden=model", "rule 2, hidden → none, replicates it"),
        ("batch=data,hidden=pipe", "rule 2, hidden → pipe, uses only mesh axes of size 1"),
    ],
)
def test_the_reason_for_replication(rules: str, why: str) -> None:
    snapshot = planned(rules=rules, mesh="2x4x1", axes="data,model,pipe")
    parameters = [finding for finding in audit(snapshot) if finding.code == "replicated-parameter"]
    assert parameters and all(why in parameter.message for parameter in parameters)


@pytest.mark.parametrize("embedded", [True, False])
def test_arrays_that_no_axis_shards_are_among_those_that_an_axis_repeats(embedded: bool) -> None:
    arrays = [
        array("params/wx", (512, 512), (None, ("model",)), 2),
        array("batch/x", (64, 8), (("data",), None), 4),
    ]
    arrays += [array("params/embed", (512, 64), (None, None))] if embedded else []
    note = the(made({"data": 4, "model": 2}, *arrays), "state-repeated-over-axis")
    held = sum(one.bytes_per_device for one in arrays if one.path.startswith("params/"))
    assert note.count == 1 + embedded and note.bytes == held * 3 // 4
    assert f" {bytes_text(held)} of " in note.message


def test_a_replicated_embedding_and_its_moments_come_first() -> None:
    """marin#7987: a replicated embedding and its moments took most of the memory of every GPU."""
    table, block = (32_000, 512), (512, 2048)
    arrays = [array("params/embedding", table, (None, None))]
    arrays += [array(f"opt/{m}/embedding", table, (None, None)) for m in ("mu", "nu")]
    arrays += [
        array(f"{where}/block_{layer}/W", block, (None, ("fsdp",)), ways=8)
        for where in ("params", "opt/mu", "opt/nu")
        for layer in range(4)
    ]
    moments, parameter = audit(made({"fsdp": 8}, *arrays))
    assert moments.code == "replicated-optimizer-state" and parameter.code == "replicated-parameter"
    assert parameter.bytes == 32_000 * 512 * 4 * 7 // 8 and moments.bytes == 2 * parameter.bytes
    assert parameter.array == "params/embedding"


def test_optimizer_state_sharded_unlike_its_parameter_is_found() -> None:
    """maxtext#5104: a ZeRO flag without effect; the optimizer state stayed replicated."""
    shape = (1024, 64)
    snapshot = made(
        {"data": 8},
        array("params/w", shape, (("data",), None), ways=8),
        array("opt/mu/w", shape, (None, None)),
        array("opt/nu/w", shape, (("data",), None), ways=8),
    )
    finding = the(snapshot, "optimizer-not-following")
    assert finding.array == "opt/mu/w" and finding.bytes == 1024 * 64 * 4 * 7 // 8
    assert "replicated-optimizer-state" not in codes(snapshot)


def test_moments_find_their_parameter() -> None:
    arrays = [
        *(array(path, (4,), (None,)) for path in ("params/norm/scale", "params/block_0/norm/scale")),
        *(array(path, (4,), (None,)) for path in ("opt/mu/norm/scale", "opt/mu/block_0/norm/scale")),
        array("opt/mu/other/scale", (5,), (None,)),
        replace(array("params/x", (6,), (None,)), path=".params/['params']/['x']"),
        replace(array("opt/x", (6,), (None,)), path=".opt_state/[0]/.mu/['params']/['x']"),
    ]
    assert {path: parameter.path for path, parameter in parameters_of_moments(arrays).items()} == {
        "opt/mu/norm/scale": "params/norm/scale",
        "opt/mu/block_0/norm/scale": "params/block_0/norm/scale",
        ".opt_state/[0]/.mu/['params']/['x']": ".params/['params']/['x']",
    }


def test_an_unused_mesh_axis_and_a_replicated_batch_are_found() -> None:
    snapshot = planned(rules="hidden=model")
    idle, batch = the(snapshot, "unused-mesh-axis"), the(snapshot, "batch-not-sharded")
    assert idle.axes == batch.axes == ("data",)
    assert batch.level == "warning"
    # In pure tensor parallelism a replicated batch is only a note.
    pure = planned(mesh="8", axes="model", rules="hidden=model")
    assert the(pure, "batch-not-sharded").level == "note" and codes(pure) == []


@pytest.mark.parametrize("split", [("data",), ()])
def test_the_inputs_of_captured_programs_decide_whether_an_axis_shards_the_batch(split) -> None:
    mesh = jax.make_mesh((8,), ("data",), (AxisType.Auto,))
    state = {"params": {"w": jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P()))}}
    x = jax.device_put(jnp.ones((16, 64)), NamedSharding(mesh, P(*split)))
    step = jax.jit(lambda state, x: x @ state["params"]["w"]).lower(state, x).compile()
    alone = capture(state)
    assert the(alone, "state-repeated-over-axis").level == "note"
    assert "unused-mesh-axis" not in codes(alone, "error", "warning", "note")
    with_program = capture(state, programs={"step": step})
    assert ("unused-mesh-axis" in codes(with_program)) == (not split)


def test_unused_rules_are_found() -> None:
    snapshot = planned(rules="batch=data,hiden=model,hidden=model,hidden=data+model")
    misspelt, late = (finding for finding in audit(snapshot) if finding.code == "rule-never-used")
    assert misspelt.rule == 1 and "hidden" in names_in(misspelt.remedy)
    assert late.rule == 3 and {"3", "hidden", "model"} <= names_in(late.message)
    absent = made({"data": 2}, rules=[["a", ["dat"]], ["b", "data"]])
    assert the(absent, "rule-names-absent-axis").level == "error"
    assert "data" in names_in(the(absent, "rule-names-absent-axis").remedy)


def test_linen_never_takes_a_shadowed_rule() -> None:
    from hypothesis import given
    from hypothesis import strategies as st

    from inspector.sharding.rules import ledger

    names = st.sampled_from(["a", "b", "c"])
    axes = st.lists(st.sampled_from(["x", "y", "z"]), unique=True).map(tuple)

    @given(st.lists(st.tuples(names, axes), max_size=6), st.permutations(["a", "b", "c"]))
    def check(rules: list, dimensions: list[str]) -> None:
        for trial in ledger(dimensions, rules):
            if shadowing(tuple(rules), trial.rule) is not None:
                assert not trial.taken

    check()


def test_uneven_shards_and_imbalance_are_found() -> None:
    shards = tuple(Shard(device, ((0, 700) if device == 0 else (700, 1000), (0, 64)), 0) for device in (0, 1))
    uneven = dataclasses.replace(
        array("params/w", (1000, 64), None, devices=2), shards=shards, bytes_per_device=700 * 256
    )
    snapshot = made({"data": 2}, uneven)
    assert the(snapshot, "uneven-shards").array == "params/w"
    finding = the(snapshot, "imbalance")
    assert finding.bytes == (700 - 500) * 256 and "0" in names_in(finding.message)


def test_an_indivisible_dimension_is_reported_once() -> None:
    odd = dataclasses.replace(array("params/w", (6, 4096), (("data",), None)), bytes_per_device=None)
    snapshot = made({"data": 4}, odd)
    assert the(snapshot, "indivisible").level == "error"
    reported = replace(snapshot, findings=(Finding("error", "indivisible", "so it is", "params/w"),))
    assert audit(reported) == ()
    inside = dataclasses.replace(odd, group="activation", path="x")
    (padded,) = [finding for finding in audit(made({"data": 4}, inside)) if finding.code == "padded-shards"]
    # Each of four devices has 2 rows instead of 1.5.
    assert padded.bytes == (2 * 4096 - 6 * 4096 // 4) * 4


WHOLE = 64 * 64 * 4  # bytes of the gradient below


def reducing(op: str, spec: tuple, stage: str = "compiled", kind: str = "TPU v5e") -> Snapshot:
    """A train step that reduces the gradient of a parameter over `data`."""
    collective = Collective(
        op, False, "r.1", "main", 1, False, ("data",), 8, 1, WHOLE, 2 * WHOLE, arrays=("params/w",)
    )
    weight = array("params/w", (4096, 64), spec, ways=8)
    snapshot = made({"data": 8}, weight)
    assert snapshot.mesh is not None
    return replace(
        snapshot,
        mesh=replace(snapshot.mesh, device_kind=kind),
        programs=(Program("train_step", stage=stage, collectives=(collective,)),),
    )


def test_a_gradient_that_is_all_reduced_over_the_axis_of_its_parameter_is_a_note() -> None:
    sharded, code = (("data",), None), "gradient-all-reduced"
    finding = the(reducing("all-reduce", sharded), code)
    assert finding.level == "note" and finding.wire_bytes == 2 * WHOLE
    assert finding.array == "params/w" and finding.axes == ("data",)
    assert code not in codes(reducing("reduce-scatter", sharded), "note")
    assert code not in codes(reducing("all-reduce", (None, None)), "note")
    assert code not in codes(reducing("all-reduce", sharded, stage="propagated"), "note")
    assert code not in codes(reducing("all-reduce", sharded, kind="cpu"), "note")


def test_linen_and_nnx_are_compared() -> None:
    snapshot = planned(rules="batch=data,hidden=model,hidden=data,embed=")
    (finding,) = [finding for finding in audit(snapshot) if finding.code == "linen-and-nnx-disagree"]
    assert finding.cause == "order" and "hidden" in names_in(finding.message)
    assert finding.level == "note"


def test_small_arrays_share_one_finding() -> None:
    small = [array(f"params/b_{n}/bias", (64,), (None,)) for n in range(3)]
    large = array("params/w", (4096, 64), (("data",), None), ways=8)
    assert audit(made({"data": 8}, large, *small)) == ()
    many = [array(f"params/{chr(97 + n)}/bias", (64,), (None,)) for n in range(26)]
    (finding,) = audit(made({"data": 8}, large, *many))
    assert finding.code == "replicated-parameter" and finding.count == 26


def test_unknown_facts_give_no_findings() -> None:
    assert audit(replace(planned(), mesh=None)) == ()
    nothing = made({"data": 8})
    assert audit(nothing) == ()
    bare = Array("params/w", "params", None, "unknown", spec=(("data",),))
    assert audit(made({"data": 8}, bare)) == ()
    placeless = Array("params/w", "params", (8, 8), "float32")
    assert audit(made({"data": 8}, placeless)) == ()


def test_without_dtypes_findings_count_elements() -> None:
    whole = replace(
        array("params/w", (1024, 64), (None, None)),
        bytes=None,
        bytes_per_device=None,
        dtype="unknown",
    )
    (finding,) = [
        finding for finding in audit(made({"data": 8}, whole)) if finding.code == "replicated-parameter"
    ]
    assert finding.bytes is None and "65,536" in names_in(finding.message)


def test_findings_are_ranked_and_not_repeated(tmp_path) -> None:
    result = audited(planned(rules="embed=model,hidden=model,hiden=model"))
    assert {finding.code for finding in result.findings} <= CODES
    sizes = [finding.bytes or 0 for finding in result.findings if finding.level != "error"]
    assert sizes == sorted(sizes, reverse=True)
    snapshot.write(result, tmp_path / "a.json")
    again = audited(snapshot.read(tmp_path / "a.json"))
    assert typed_json.encode(again) == typed_json.encode(result)
    assert len(questions()) == len(set(questions())) == len(CHECKS) + len(SNAPSHOT_CHECKS)


def test_one_skipped_rule_after_many_others_is_one_finding() -> None:
    rules = "expert=expert,batch=data,vocab=model,mlp=model,heads=model,kv_heads=model,embed=model"
    fields = {"model": "moe", "layers": "1", "mesh": "2x2x2", "axes": "data,expert,model"}
    layout = layouts.parse({**fields, "rules": rules, "target": "plan"}).unwrap()
    snapshot = plan(layout, abstract_state(layout))
    finding = the(snapshot, "dropped-logical-axis")
    assert {"vocab", "mlp", "heads", "kv_heads", "embed", *"3456"} <= names_in(finding.message)
    assert finding.rule == 6
    both = [
        array.path
        for array in snapshot.arrays
        if array.group == "params"
        and {"vocab", "mlp", "heads", "kv_heads"} & set(array.logical_axes or ())
        and "embed" in (array.logical_axes or ())
    ]
    assert finding.count == len(both) > 4


def test_indivisible_arrays_of_one_logical_axis_are_merged() -> None:
    fields = {"mesh": "2x3", "batch": "7", "layers": "2", "depth": "64"}
    layout = layouts.parse(fields).unwrap()
    findings = audited(plan(layout, abstract_state(layout))).findings
    uneven = Counter(finding.logical_axis for finding in findings if finding.code == INDIVISIBLE)
    assert set(uneven) == {"batch", "hidden"} and uneven.total() > 2
    merged = merged_by_logical_axis(findings)
    for finding in (finding for finding in merged if finding.code == INDIVISIBLE):
        more = uneven[finding.logical_axis] - 1
        assert (f"nor in {more} more array" in finding.message) == bool(more)
    assert [finding for finding in merged if finding.code != INDIVISIBLE] == [
        finding for finding in findings if finding.code != INDIVISIBLE
    ]
    assert merged_by_logical_axis(merged) == merged


@pytest.mark.parametrize(("alive", "reported"), [(None, True), (2**20, True), (2**30, False)])
def test_a_recorded_job_has_no_findings_below_a_share_of_what_is_alive(
    alive: int | None, reported: bool
) -> None:
    """Of errors, all count. Without a record of what was alive, the share is that of the train state."""
    snapshot = made({"data": 8}, array("params/w", (512, 512), (None, None)))
    wasted = replace(snapshot, most_alive_bytes=alive)
    assert bool(codes(wasted, "warning")) == reported
    failed = array("params/odd", (6, 4096), (("data",), None))
    indivisible = made({"data": 4}, dataclasses.replace(failed, bytes_per_device=None))
    assert codes(replace(indivisible, most_alive_bytes=2**40), "error")
