"""The difference in sentences: causes, numbers that are counted here another way, and MaxText's goldens."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

from inspector.compare import difference
from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Array, Finding, Memory
from inspector.core.totals import state_totals
from inspector.machines import hardware
from tests.compare.difference import goldens
from tests.compare.difference.layouts import planned
from tests.compare.difference.programs import collective, ran
from tests.paths import CASES

GOLDENS = CASES / "maxtext_goldens"
needs_goldens = pytest.mark.skipif(not GOLDENS.is_dir(), reason="MaxText's goldens are not here")


def said(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    return difference.sentences(planned(**before), planned(**after))


def test_the_same_is_said_in_one_sentence() -> None:
    (only,) = said({}, {})
    assert only.startswith("Nothing differs: ") and "26" not in only
    count = len(planned().arrays)
    assert f"{count} arrays compared" in only


def test_another_mesh_says_what_follows_and_how_much() -> None:
    before, after = planned(mesh="2x4"), planned(mesh="4x2")
    headline, cause = difference.sentences(before, after)
    held = [state_totals(found).per_device for found in (before, after)]
    assert headline.startswith("The mesh is data 4 × model 2 in place of data 2 × model 4: ")
    assert f"{bytes_text(held[1])} of train state in place of {bytes_text(held[0])} (+" in headline
    assert "hidden from model 4 to model 2" in cause and "batch from data 2 to data 4" in cause


def test_other_names_alone_move_nothing() -> None:
    headline, cause = said(
        {"axes": "data,model", "rules": "batch=data,hidden=model"},
        {"axes": "x,y", "rules": "batch=x,hidden=y"},
    )
    assert cause.startswith(
        "The mesh axes have other names: data is now called x, model is now called y"
    )
    assert "lie as before" in cause
    assert headline.endswith("of train state as before.")


def test_what_no_array_follows_from_is_said_so() -> None:
    (only,) = said({}, {"learning_rate": "0.01"})
    assert (
        only
        == "The model's learning_rate is 0.01 in place of 0.001; no array lies otherwise for it."
    )
    (order,) = said({"rules": "batch=data,hidden=model"}, {"rules": "hidden=model,batch=data"})
    assert order == "The same rules stand in another order; no array lies otherwise for it."
    (donated,) = said({}, {"donate": "true"})
    assert donated.startswith("The train state is now donated")
    (steps,) = said({"steps": "2"}, {"steps": "3"})
    assert steps == "Besides: steps 3 in place of 2."


def test_another_model_is_one_sentence_not_one_for_each_rule() -> None:
    both = difference.sentences(planned(), planned(model="mlp"))
    assert sum("The model is mlp in place of logical_mlp" in one for one in both) == 1
    assert not any("rule" in one for one in both)


def test_a_rule_that_went_with_its_mesh_axis_is_not_said_to_do_nothing() -> None:
    all_said = said({}, {"mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp"})
    assert "The rule hidden → model is gone with the mesh axis model." in all_said
    assert not any("no array lies otherwise" in one for one in all_said)


def test_collectives_stand_among_the_causes_by_their_bytes() -> None:
    before = ran(planned(), collective("all-reduce", ("data",), 2**10))
    moved = planned(mesh="8", axes="fsdp", rules="batch=fsdp,embed=fsdp")
    for wire, place in ((2**40, 2), (2**10 + 1, 3)):
        after = ran(moved, collective("all-gather", ("fsdp",), wire))
        all_said = difference.sentences(before, after)
        assert all_said[1].startswith("The rule embed → fsdp is new")
        assert all_said[place].startswith("train_step sends")


def test_what_only_a_compiled_program_can_tell_is_no_difference_of_layouts() -> None:
    plan = planned()
    inside = tuple(
        dataclasses.replace(plan.arrays[0], path=f"{group}/{place}", group=group)
        for group in ("activation", "gradient")
        for place in range(2)
    )
    compiled = dataclasses.replace(ran(plan), arrays=(*plan.arrays, *inside))
    for before, after, which in ((plan, compiled, "second"), (compiled, plan, "first")):
        all_said = difference.sentences(before, after)
        assert all_said[0].startswith(
            f"2 activations and 2 gradients are known of the {which} only"
        )
        assert not any("new" in one or "gone" in one for one in all_said)
    one_less = dataclasses.replace(compiled, arrays=compiled.arrays[:-1])
    assert difference.sentences(compiled, one_less)[0].startswith("1 array is gone")


def test_other_programs_are_not_the_same() -> None:
    bare = dataclasses.replace(ran(planned()), arrays=(), mesh=None, layout=None)
    other = dataclasses.replace(
        bare, programs=(dataclasses.replace(bare.programs[0], name="jit_f"),)
    )
    assert difference.sentences(bare, other) == (
        "They have other programs: train_step is only in the first and jit_f is only in the second.",
    )
    assert difference.sentences(bare, bare) == ("Nothing differs: the programs are the same.",)
    nothing = dataclasses.replace(bare, programs=())
    assert difference.sentences(nothing, nothing)[0].endswith("nothing to compare.")


def test_one_activation_is_not_plural() -> None:
    plan = planned()
    one = dataclasses.replace(plan.arrays[0], path="activation/x", group="activation")
    before, after = (
        dataclasses.replace(plan, arrays=(*plan.arrays, each))
        for each in (one, dataclasses.replace(one, dtype="bfloat16"))
    )
    assert "1 activation differs in dtype" in " ".join(difference.sentences(before, after))


def test_collectives_and_memory_gained_and_lost() -> None:
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
        "train_step needs 250 MiB of memory per device in place of 200 MiB (+25%): "
        "50.0 MiB more of temporaries.",
        "train_step sends 6.0 MiB per device and run in place of 8.0 MiB (−25%): "
        "6.0 MiB less by all-reduce over data and 4.0 MiB by a new all-gather over model.",
    )
    assert "4.0 MiB by all-gather over model gone" in difference.sentences(after, before)[1]


def test_collectives_over_renamed_axes_are_the_same() -> None:
    before = ran(planned(axes="data,model", rules=""), collective("all-reduce", ("model",), 8))
    after = ran(planned(axes="data,tensor", rules=""), collective("all-reduce", ("tensor",), 8))
    assert not any("train_step" in one for one in difference.sentences(before, after))


def test_findings_come_and_go() -> None:
    found = planned()
    warned = dataclasses.replace(found, findings=(Finding("warning", "w", "W2 is replicated."),))
    assert difference.sentences(found, warned) == ("1 warning is new: W2 is replicated.",)
    assert difference.sentences(warned, found) == ("1 warning is gone: W2 is replicated.",)


def test_a_limit_says_what_it_leaves_out() -> None:
    before, after = planned(), planned(mesh="4x2", optimizer="sgd", dtype="bfloat16")
    everything = difference.sentences(before, after)
    assert len(everything) > 2
    cut = difference.sentences(before, after, limit=2)
    assert len(cut) == 2 and cut[0] == everything[0]
    assert cut[1] == f"{everything[1][:-1]}; and {len(everything) - 2} smaller change" + (
        "s." if len(everything) > 3 else "."
    )


def test_the_chip_is_modelled_where_one_is_chosen() -> None:
    chip = hardware.chip("v5e")
    before = ran(planned(), collective("all-reduce", ("data",), 8))
    assert difference.sentences(before, before, chip)[0].startswith("Nothing differs")


# --- MaxText's goldens ----------------------------------------------------------------------------


def folders() -> list[Path]:
    return sorted(path.parent for path in GOLDENS.rglob("named_shardings.json"))


@needs_goldens
def test_two_goldens_are_told_in_three_sentences() -> None:
    by_rule = {path.name.split("_ici")[0]: path for path in folders() if "deepseek" in str(path)}
    before, after = (
        goldens.read(by_rule[name]) for name in ("rule_default", "rule_shard-exp-on-fsdp")
    )
    found = difference.sentences(before, after)
    assert len(found) == 3
    headline, experts, rest = found
    assert "fsdp 4 × expert 2 in place of fsdp 16, 16 → 8 devices" in headline
    assert (
        "embed_moe goes from fsdp 16 to unsharded, exp from unsharded to expert 2 × fsdp 4"
        in experts
    )
    assert "12 arrays" in experts and "3 of them only in part" in experts
    assert "By the mesh alone, 72 arrays" in rest
    # Elements per device, summed from the JSON's shapes and specs, and nothing else.
    assert "5.9 billion elements of train state in place of 2.95 billion (+100%)" in headline
    counted = [sum(elements_held(array) for array in found.arrays) for found in (before, after)]
    assert [f"{count / 1e9:.3g}" for count in counted] == ["2.95", "5.9"]


def elements_held(array: Array) -> int:
    count = 1
    for size in array.shard_shape:
        count *= size
    return count


@needs_goldens
def test_axes_of_size_1_are_all_that_differs_between_default_and_pure_fsdp() -> None:
    by_rule = {path.name: path for path in folders() if "deepseek" in str(path)}
    before, after = (goldens.read(by_rule[name]) for name in ("rule_default", "rule_pure-fsdp"))
    (only,) = difference.sentences(before, after)
    assert only.startswith("The mesh lacks 11 axes of size 1 (") and "no array" in only


@needs_goldens
def test_every_pair_of_one_models_goldens_is_short_and_mirrored() -> None:
    one_model = [goldens.read(path) for path in folders() if "deepseek" in str(path)]
    for before, after in itertools.combinations(one_model, 2):
        there, back = difference.sentences(before, after), difference.sentences(after, before)
        assert 1 <= len(there) == len(back) <= 5
        assert all(len(one) < 420 for one in there)


@needs_goldens
def test_goldens_of_two_models_stand_together() -> None:
    of_two = [
        goldens.read(next(path for path in folders() if name in str(path)))
        for name in ("deepseek", "gpt-oss")
    ]
    found = difference.sentences(*of_two)
    assert "114 are new, 72 are gone" in found[0]
    assert any("not of the same arrays" in one for one in difference.reservations(*of_two))
    assert any(
        "bytes per device of both are not known" in one for one in difference.reservations(*of_two)
    )


def test_arrays_whose_shape_no_file_tells_can_stand_beside_others() -> None:
    found = planned()
    vague = dataclasses.replace(
        found,
        layout=None,
        arrays=tuple(
            Array(one.path, one.group, None, "unknown", spec=one.spec) for one in found.arrays
        ),
    )
    assert difference.sentences(found, vague)[0].startswith("Nothing differs")
    moved = dataclasses.replace(
        vague, arrays=tuple(dataclasses.replace(one, spec=(("data",),)) for one in vague.arrays)
    )
    assert "not known of both" in difference.sentences(vague, moved)[0]
    assert len(difference.questions([found, vague, moved])[0].answers) == 3
    assert difference.spec_rows([found, vague, moved])


def test_arrays_are_not_gone_where_one_tells_of_none() -> None:
    plan = planned()
    text_only = dataclasses.replace(ran(plan), arrays=(), mesh=None, layout=None)
    for before, after, which in ((plan, text_only, "second"), (text_only, plan, "first")):
        all_said = difference.sentences(before, after)
        assert all_said[0].startswith(f"The {which} tells of no arrays")
        assert not any("arrays are" in one or "MiB" in one for one in all_said)


def test_what_is_whole_on_fewer_devices_is_not_said_to_be_split() -> None:
    all_said = said({"mesh": "2x4"}, {"mesh": "2x2", "depth": "128"})
    (scalars,) = [one for one in all_said if "step and 1 more" in one]
    assert "2 arrays follow (step and 1 more), whole on 4 devices in place of 8" in scalars
    assert "split" not in scalars
