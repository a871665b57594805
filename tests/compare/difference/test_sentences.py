"""Sentences that compare two Snapshots: causes, amounts counted independently, and MaxText's goldens."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

from inspector.compare import difference
from inspector.compare.caveats import caveats
from inspector.compare.compared import compared
from inspector.compare.difference.causes import renamed_axes
from inspector.compare.questions import questions
from inspector.machines import hardware
from inspector.records.snapshot import Array, Finding, Memory
from inspector.sharding.totals import state_totals
from inspector.text.formatting import bytes_text
from tests.compare.difference import goldens
from tests.compare.difference.layouts import planned
from tests.compare.difference.programs import collective, ran
from tests.paths import CASES
from tests.readers import own_goldens

GOLDENS = CASES / "maxtext_goldens"
needs_goldens = pytest.mark.skipif(not GOLDENS.is_dir(), reason="needs MaxText's goldens in ../shared/cases")


def compare(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    return difference.sentences(planned(**before), planned(**after))


def unchanged(cause: str) -> tuple[str, ...]:
    return (f"Changed without an effect on arrays: {cause}.",)


def test_equal_snapshots_give_one_sentence() -> None:
    assert compare({}, {}) == (f"No differences. Compared: {len(planned().arrays)} arrays, mesh, layout.",)


def test_a_mesh_change_gives_amounts_and_dimensions() -> None:
    before, after = planned(mesh="2x4"), planned(mesh="4x2")
    headline, cause = difference.sentences(before, after)
    held = [bytes_text(state_totals(snapshot).per_device) for snapshot in (before, after)]
    assert headline.startswith("Mesh data 2 × model 4 → data 4 × model 2: ")
    assert f"Train state per device: {held[0]} → {held[1]} (+" in headline and "worse" in headline
    assert "hidden from model 4 to model 2" in cause and "batch from data 2 to data 4" in cause


def test_no_sentence_says_that_a_layout_that_jax_rejects_is_better() -> None:
    sharded = {"mesh": "4x4", "rules": "batch=data+model,embed=data+model,hidden="}
    works, rejected = planned(mesh="4x4", batch="16"), planned(**sharded, batch="8")
    assert any(
        "better" in sentence for sentence in difference.sentences(works, planned(**sharded, batch="16"))
    )
    for pair in ((works, rejected), (rejected, works)):
        said = " ".join(difference.sentences(*pair))
        assert "better" not in said and "worse" not in said and "JAX rejects" in said


def test_renamed_mesh_axes_change_no_array() -> None:
    sentences = compare(
        {"axes": "data,model", "rules": "batch=data,hidden=model"},
        {"axes": "x,y", "rules": "batch=x,hidden=y"},
    )
    assert sentences == unchanged("mesh axis name data → x, mesh axis name model → y")
    device_axes = [{"model": "mlp", "axes": axes} for axes in ("data,model", "data,tensor")]
    specs = [{"specs": f"W1=None.{axis},W2={axis}.None,y=data.{axis}"} for axis in ("model", "tensor")]
    assert compare(
        *(device_axis | two for device_axis, two in zip(device_axes, specs, strict=True))
    ) == unchanged("mesh axis name model → tensor")


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ({}, {"learning_rate": "0.01"}, "learning_rate 0.001 → 0.01"),
        (
            {"rules": "batch=data,hidden=model"},
            {"rules": "hidden=model,batch=data"},
            "rules reordered",
        ),
        ({}, {"donate": "true"}, "donation off → on"),
        ({"steps": "2"}, {"steps": "3"}, "steps 2 → 3"),
    ],
)
def test_a_change_without_effect_is_named(before, after, cause: str) -> None:
    assert compare(before, after) == unchanged(cause)


def test_another_model_explains_everything() -> None:
    sentences = difference.sentences(planned(), planned(model="mlp"))
    assert sum("odel logical_mlp → mlp" in sentence for sentence in sentences) == 1
    assert not any("rule" in sentence for sentence in sentences)


def test_a_rule_can_go_with_its_mesh_axis() -> None:
    sentences = compare({}, {"mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp"})
    assert "Rule hidden → model removed with mesh axis model." in sentences
    assert not any("without an effect" in sentence for sentence in sentences)


def test_collectives_and_causes_are_ranked_by_bytes() -> None:
    before = ran(planned(), collective("all-reduce", ("data",), 2**10))
    moved = planned(mesh="8", axes="fsdp", rules="batch=fsdp,embed=fsdp")
    for wire, place in ((2**40, 2), (2**10 + 100, 3)):
        after = ran(moved, collective("all-gather", ("fsdp",), wire))
        sentences = difference.sentences(before, after)
        assert sentences[1].startswith("Rule embed → fsdp added")
        assert sentences[place].startswith("Traffic: ")


def test_arrays_inside_a_step_that_one_cannot_know_are_no_difference() -> None:
    plan = planned()
    inside = tuple(
        dataclasses.replace(plan.arrays[0], path=f"{group}/{place}", group=group)
        for group in ("activation", "gradient")
        for place in range(2)
    )
    compiled = dataclasses.replace(ran(plan), arrays=(*plan.arrays, *inside))
    for before, after in ((plan, compiled), (compiled, plan)):
        sentences = difference.sentences(before, after)
        assert not any(" new" in sentence or " gone" in sentence for sentence in sentences)
        assert "not-compiled" in {caveat.code for caveat in caveats(before, after)}
    one_less = dataclasses.replace(compiled, arrays=compiled.arrays[:-1])
    assert "1 array gone" in difference.sentences(compiled, one_less)[0]


def test_programs_of_one_snapshot_only_are_named() -> None:
    bare = dataclasses.replace(ran(planned()), arrays=(), mesh=None, layout=None)
    other = dataclasses.replace(bare, programs=(dataclasses.replace(bare.programs[0], name="jit_f"),))
    assert difference.sentences(bare, other) == (
        "Programs only in the first: Train step.",
        "Programs only in the second: jit_f.",
    )
    assert difference.sentences(bare, bare) == ("No differences. Compared: programs.",)
    nothing = dataclasses.replace(bare, programs=())
    assert difference.sentences(nothing, nothing)[0].startswith("Nothing to compare")


def test_one_activation_is_singular() -> None:
    plan = planned()
    array = dataclasses.replace(plan.arrays[0], path="activation/x", group="activation")
    before, after = (
        dataclasses.replace(plan, arrays=(*plan.arrays, each))
        for each in (array, dataclasses.replace(array, dtype="bfloat16"))
    )
    assert "1 activation (activation/x), dtype" in " ".join(difference.sentences(before, after))


def test_changes_of_collectives_and_memory_are_explained_by_their_parts() -> None:
    def memory(temporaries: int) -> Memory:
        return Memory(100 * 2**20, 100 * 2**20, 0, temporaries, 0)

    before = ran(
        planned(), collective("all-reduce", ("data",), 8 * 2**20), memory=memory(0),
    )  # fmt: skip
    after = ran(
        planned(),
        collective("all-reduce", ("data",), 2 * 2**20),
        collective("all-gather", ("model",), 2**20, times=4),
        memory=memory(50 * 2**20),
    )
    assert difference.sentences(before, after) == (
        "Memory per device: 200 MiB → 250 MiB (+25%, worse): temporaries +50.0 MiB.",
        "Traffic: 8.0 MiB → 6.0 MiB (−25%, better): all-reduce over data −6.0 MiB, "
        "all-gather over model +4.0 MiB.",
    )
    assert "all-gather over model −4.0 MiB" in difference.sentences(after, before)[1]


def test_renamed_axes_of_the_optimizer_and_of_state_specs_are_no_change() -> None:
    before = planned(mesh="2x4", axes="data,model", optimizer_axes="data")
    after = planned(mesh="2x4", axes="x,model", rules="batch=x,hidden=model", optimizer_axes="x")
    (only,) = difference.sentences(before, after)
    assert only.startswith("No difference") or "optimizer" not in only, only
    rows = [["w1/kernel", [["data"], None]], [".*", "fsdp(data, 1024)"], ["data", []]]
    renamed = renamed_axes(dataclasses.replace(before, layout={"state_specs": rows}), {"data": "fsdp"})
    assert renamed.layout == {
        "state_specs": [["w1/kernel", [["fsdp"], None]], [".*", "fsdp(fsdp, 1024)"], ["data", []]]
    }


def test_collectives_over_renamed_axes_are_the_same() -> None:
    before = ran(planned(axes="data,model", rules=""), collective("all-reduce", ("model",), 8))
    after = ran(planned(axes="data,tensor", rules=""), collective("all-reduce", ("tensor",), 8))
    assert not any("Train step" in sentence for sentence in difference.sentences(before, after))


def test_new_and_resolved_findings() -> None:
    snapshot = planned()
    warned = dataclasses.replace(snapshot, findings=(Finding("warning", "w", "W2 is replicated."),))
    assert difference.sentences(snapshot, warned) == ("New: 1 warning: W2 is replicated.",)
    assert difference.sentences(warned, snapshot) == ("Resolved: 1 warning: W2 is replicated.",)


def test_findings_change_by_as_many_as_are_named() -> None:
    notes = tuple(Finding("note", "traffic", f"over {axis}", axes=(axis,)) for axis in ("data", "model"))
    again = (notes[0], Finding("note", "traffic", "over data too", axes=("data",)))
    for old, new in itertools.permutations(((), notes, again), 2):
        before, after = (dataclasses.replace(planned(), findings=findings) for findings in (old, new))
        said = {sentence.split(":")[0]: sentence for sentence in difference.sentences(before, after)}
        numbers = [int(said[word].split()[1]) if word in said else 0 for word in ("New", "Resolved")]
        assert len(old) + numbers[0] - numbers[1] == len(new)


def test_equal_programs_on_a_chip_do_not_differ() -> None:
    before = ran(planned(), collective("all-reduce", ("data",), 8))
    assert difference.sentences(before, before, hardware.chip("v5e"))[0].startswith("No differences")


# --- Goldens, our own and MaxText's ---------------------------------------------------------------


def folders() -> list[Path]:
    return sorted(path.parent for path in GOLDENS.rglob("named_shardings.json"))


OWN = {f"{path.parent.name}/{path.name}": path for path in own_goldens.folders()}


def test_two_own_goldens_give_three_sentences() -> None:
    before, after = (goldens.read(OWN[f"mixture/rule_{name}"]) for name in ("default", "experts-on-fsdp"))
    headline, experts, rest = difference.sentences(before, after)
    assert "Mesh fsdp 16 → fsdp 4 × expert 2 (16 → 8 devices)" in headline
    # The experts take the axis that embed has had.
    assert "exp from expert 1 to fsdp 4, embed from fsdp 16 to unsharded" in experts
    assert "3 arrays" in experts and rest.startswith("Mesh: 16 arrays")
    # In a third of the state: the embedding, norm, two of the MLP, experts and router. Then the step.
    held = [
        3 * (512 * 64 // 16 + 64 * 4 + 2 * 64 * 4 * 256 // 16 + 8 * 4 * 64 * 32 // 16 + 64 * 4 * 8 // 16) + 1,
        3 * (512 * 64 // 8 + 64 * 4 + 2 * 64 * 4 * 256 // 8 + 8 * 4 * 64 * 32 // 4 + 64 * 4 * 8 // 8) + 1,
    ]
    assert f"{held[0]:,} → {held[1]:,} (+{100 * held[1] / held[0] - 100:.0f}%, worse)" in headline
    counted = [sum(elements_held(array) for array in golden.arrays) for golden in (before, after)]
    assert counted == held


def test_own_goldens_that_differ_only_in_axes_of_size_1() -> None:
    before, after = (goldens.read(OWN[f"mixture/rule_{name}"]) for name in ("default", "more-axes"))
    (only,) = difference.sentences(before, after)
    assert only.startswith("Changed without an effect on arrays: mesh axes of size 1 ")


def test_own_goldens_of_two_models_are_compared() -> None:
    mixture, dense = (goldens.read(OWN[f"{model}/rule_default"]) for model in ("mixture", "dense"))
    sentences = difference.sentences(mixture, dense)
    # Three trees, each with five arrays that the other model lacks, or with one.
    assert "3 arrays new, 15 arrays gone" in sentences[0]
    assert {"arrays", "elements"} <= {caveat.code for caveat in caveats(mixture, dense)}


@needs_goldens
def test_two_goldens_give_three_sentences() -> None:
    by_rule = {path.name.split("_ici")[0]: path for path in folders() if "deepseek" in str(path)}
    before, after = (goldens.read(by_rule[name]) for name in ("rule_default", "rule_shard-exp-on-fsdp"))
    sentences = difference.sentences(before, after)
    assert len(sentences) == 3
    headline, experts, rest = sentences
    assert "Mesh fsdp 16 → fsdp 4 × expert 2 (16 → 8 devices)" in headline
    assert "embed_moe from fsdp 16 to unsharded" in experts
    assert "12 arrays" in experts and "3 of them only in part" in experts
    assert rest.startswith("Mesh: 72 arrays")
    # Elements per device, summed from the JSON's shapes and specs, and nothing else.
    assert "(+100%, worse)" in headline
    counted = [sum(elements_held(array) for array in snapshot.arrays) for snapshot in (before, after)]
    assert all(f"{count:,}" in headline for count in counted)


def elements_held(array: Array) -> int:
    count = 1
    for size in array.shard_shape:
        count *= size
    return count


@needs_goldens
def test_default_and_pure_fsdp_differ_only_in_axes_of_size_1() -> None:
    by_rule = {path.name: path for path in folders() if "deepseek" in str(path)}
    before, after = (goldens.read(by_rule[name]) for name in ("rule_default", "rule_pure-fsdp"))
    (only,) = difference.sentences(before, after)
    assert only.startswith("Changed without an effect on arrays: mesh axes of size 1 ")


@pytest.mark.parametrize(
    "paths",
    [
        [path for name, path in OWN.items() if name.startswith("mixture")],
        pytest.param([path for path in folders() if "deepseek" in str(path)], marks=needs_goldens),
    ],
    ids=["own", "MaxText's"],
)
def test_goldens_of_one_model_give_few_sentences_in_both_directions(paths: list[Path]) -> None:
    one_model = list(map(goldens.read, paths))
    for before, after in itertools.combinations(one_model, 2):
        there, back = difference.sentences(before, after), difference.sentences(after, before)
        assert 1 <= len(there) == len(back) <= 5
        assert all(len(one) < 420 for one in there)


@needs_goldens
def test_goldens_of_two_models_are_compared() -> None:
    of_two = [
        goldens.read(next(path for path in folders() if name in str(path)))
        for name in ("deepseek", "gpt-oss")
    ]
    sentences = difference.sentences(*of_two)
    assert "114 arrays new, 72 arrays gone" in sentences[0]
    codes = {caveat.code for caveat in caveats(*of_two)}
    assert {"arrays", "elements"} <= codes


def test_arrays_without_a_known_shape_are_compared() -> None:
    snapshot = planned()
    vague = dataclasses.replace(
        snapshot,
        layout=None,
        arrays=tuple(
            Array(array.path, array.group, None, "unknown", spec=array.spec) for array in snapshot.arrays
        ),
    )
    assert difference.sentences(snapshot, vague)[0].startswith("No differences")
    moved = dataclasses.replace(
        vague, arrays=tuple(dataclasses.replace(array, spec=(("data",),)) for array in vague.arrays)
    )
    assert "Train state per device unknown" in difference.sentences(vague, moved)[0]
    every = compared([("a", snapshot), ("b", vague), ("c", moved)])
    assert len(questions(every)[0].answers) == 3
    assert difference.spec_rows([snapshot, vague, moved])


def test_arrays_are_not_gone_if_one_snapshot_has_none() -> None:
    plan = planned()
    text_only = dataclasses.replace(ran(plan), arrays=(), mesh=None, layout=None)
    for before, after in ((plan, text_only), (text_only, plan)):
        sentences = difference.sentences(before, after)
        assert not any("arrays" in sentence or "MiB" in sentence for sentence in sentences)
        assert "no-arrays" in {caveat.code for caveat in caveats(before, after)}


def test_replicated_arrays_on_fewer_devices_are_not_split() -> None:
    sentences = compare({"mesh": "2x4"}, {"mesh": "2x2", "depth": "128"})
    (scalars,) = [sentence for sentence in sentences if "step and 1 more" in sentence]
    assert "replicated on 8 → 4 devices" in scalars and "split" not in scalars


def test_propagated_programs_of_a_renamed_mesh_have_the_new_names() -> None:
    """What is predicted from both programs of a layout needs one name for each axis."""
    before, after = planned(axes="data,model"), planned(axes="data,tensor", rules="hidden=tensor")
    both = []
    for snapshot, axis in ((before, "model"), (after, "tensor")):
        ran_one = ran(snapshot, collective("all-reduce", (axis,), 64))
        both.append(dataclasses.replace(ran_one, partitioned=ran_one.programs))
    assert difference.sentences(*both, hardware.chip("v5e"))
    renamed = renamed_axes(both[0], {"model": "tensor"})
    for programs in (renamed.programs, renamed.partitioned):
        assert [one.mesh_axes for one in programs[0].collectives] == [("tensor",)]
