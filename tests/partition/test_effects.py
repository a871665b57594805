"""Effects of changes of a layout, against two compiles for emulated devices each."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from inspector import layout as layouts
from inspector.compiled import program_text
from inspector.layout import Layout
from inspector.layout.changes import changes
from inspector.machines import hardware
from inspector.model.built_in import logical_mlp
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.partition import effects, template
from inspector.partition.effects import layout_effects
from inspector.partition.partition_layout import Setting
from inspector.records.snapshot import Change, Effects, LayoutCost, Program, ShardingError
from inspector.text.errors import InvalidInput
from inspector.tracing.leaves import mesh_record
from inspector.tracing.mlir.xla_partitioner import partitioned_prepared
from inspector.tracing.model.build import build_model, make_mesh, signatures, tracing
from tests.partition.test_partition_layout import SMALL, TENSOR, wire_bytes

MLP = {"mesh": "2x4", "depth": "64"}
TRANSFORMER = {
    "model": "transformer", "mesh": "2x4", "axes": "data,tensor", "rules": f"{TENSOR},batch=data",
    **SMALL, "layers": "1",
}  # fmt: skip
CASES = (
    (MLP, "Remove hidden → model"),
    (MLP, "Remove batch → data"),
    (MLP, "Swap batch → data, hidden → model"),
    (MLP, "Move axis model into data (data 8)"),
    ({"model": "mlp", **MLP}, "Remove constraint y"),
    ({"model": "mlp", **MLP}, "Move axis data into model (model 8)"),
    (
        {**MLP, "rules": "batch=data,hidden=model", "optimizer_axes": "data"},
        "Do not shard the optimizer state over data as well",
    ),
    (TRANSFORMER, "Remove mlp → tensor"),
    (TRANSFORMER, "Remove vocab → tensor"),
    (TRANSFORMER, "Remove constraint hidden"),
    (TRANSFORMER, "Move axis tensor into data (data 8)"),
)


def quiet(*_: object, **__: object) -> None:
    pass


@pytest.fixture
def effects_of(monkeypatch) -> Callable[..., Effects]:
    """The effects of a layout on its train step; only the changes with these labels, if there are any."""

    def find(fields: Mapping[str, str], *labels: str, program: str = "train_step") -> Effects:
        def some(layout: Layout) -> tuple[list[Change], int]:
            result, left_out = changes(layout)
            return [change for change in result if not labels or change.label in labels], left_out

        monkeypatch.setattr(effects, "changes", some)
        return layout_effects(layouts.parse(dict(fields)).unwrap(), program, None, quiet)

    return find


def effect(effects: Effects, label: str) -> Change:
    return next(change for change in effects.changes if change.label == label)


def by_axes(cost: LayoutCost) -> Counter[tuple[str, ...]]:
    return Counter({tuple(axes.split(",")): count or 0 for axes, count in cost.wire_bytes.items()})


@functools.cache
def compiled(key: str) -> tuple[Counter[tuple[str, ...] | None], int]:
    """Wire bytes by mesh axes and state bytes on one device of a compiled train step."""
    layout = layouts.from_json(json.loads(key))
    mesh = make_mesh(layout)
    with tracing(layout, mesh):
        step = next(
            signature
            for signature in signatures(build_model(layout), layout, mesh)
            if signature.name == "train_step"
        )
        program = step.jitted().lower(*step.arguments).compile()
    read = program_text.read(program.as_text(), mesh_record(mesh))
    state, _ = program.input_shardings[0]
    leaves = zip(jax.tree.leaves(step.arguments[0]), jax.tree.leaves(state), strict=True)
    held = sum(math.prod(sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf, sharding in leaves)
    return wire_bytes(Program("train_step", collectives=read.collectives)), held


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("fields", "label"), CASES, ids=[label for _, label in CASES])
def test_a_change_costs_what_two_compiles_differ_by(effects_of, fields: dict[str, str], label: str) -> None:
    effects = effects_of(fields, label)
    changed = effect(effects, label)
    assert changed.cost is not None and changed.layout is not None
    before, held_before = compiled(layouts.parse(fields).unwrap().key())
    after, held_after = compiled(layouts.from_json(changed.layout).key())
    sent, expected = Counter(by_axes(changed.cost)), Counter(after)
    sent.subtract(by_axes(effects.current))
    expected.subtract(before)
    for axes in sent.keys() | expected.keys():
        assert sent[axes] == pytest.approx(expected[axes], rel=0.001, abs=64)
    assert changed.cost.state_bytes - effects.current.state_bytes == held_after - held_before


@pytest.mark.nightly
def test_largest_effects_come_first_and_invalid_changes_last(effects_of) -> None:
    effects = effects_of({**MLP, "batch": "4"})
    total = effects.current.wire_total
    sizes = [abs(change.cost.wire_total - total) for change in effects.changes if change.cost]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 0
    assert not any(change.cost for change in effects.changes[len(sizes) :])
    refused = effect(effects, "Move axis model into data (data 8)")
    assert refused.cost is None and "not divisible by 8" in refused.reason


@pytest.mark.nightly
def test_a_change_that_shardy_refuses_has_its_reason(effects_of, monkeypatch) -> None:
    original = effects.partitioned_totals

    def refusing(lowered, layout, *rest, **named):
        if not dict(layout.rules).get("hidden"):
            raise InvalidInput("No rule for op.")
        return original(lowered, layout, *rest, **named)

    monkeypatch.setattr(effects, "partitioned_totals", refusing)
    rules = ("Remove hidden → model", "Remove batch → data")
    result = effects_of({**MLP, "depth": "32"}, *rules)
    assert effect(result, rules[0]).reason == "No rule for op."
    assert effect(result, rules[1]).cost is not None


@pytest.mark.nightly
def test_a_program_that_jax_refuses_has_its_reason(effects_of, monkeypatch) -> None:
    error = ShardingError("ShardingTypeError", "Sharding is ambiguous.", source="model.py:3")
    refused = Program("apply", sharding_error=error)  # its constraints have no names, so it is traced again
    original = effects.template_of_program

    def refusing(like: Layout, layout: Layout, name: str) -> template.Template:
        if not layout.unconstrained:
            return original(like, layout, name)
        return template.Template((), False, (refused,))

    monkeypatch.setattr(effects, "template_of_program", refusing)
    labels = ("Remove constraint y", "Remove batch → data")
    result = effects_of({**MLP, "depth": "16"}, *labels, program="apply")
    assert "ambiguous" in effect(result, "Remove constraint y").reason
    assert effect(result, "Remove batch → data").cost is not None


@pytest.mark.nightly
def test_seconds_are_those_of_products_and_collectives() -> None:
    layout = layouts.parse({**MLP, "target": "tpu:v5e:2x4"}).unwrap()
    effects = layout_effects(layout, "train_step", hardware.chip("v5e"), quiet)
    assert effects.chip == "v5e"
    # Without the rule of `hidden`, each device computes four times the products.
    without = effect(effects, "Remove hidden → model").cost
    assert without.flops == 4 * effects.current.flops
    seconds = [change.cost.seconds for change in effects.changes if change.cost]
    changes = [abs(one - effects.current.seconds) for one in seconds]
    assert changes == sorted(changes, reverse=True)


@pytest.mark.nightly
def test_the_same_rules_on_another_machine_have_its_collectives() -> None:
    """A TPU gathers parameters as bfloat16; on a GPU, gradients are reduce-scattered."""
    fields = {**MLP, "rules": "batch=data,embed=data,hidden=model"}
    sent = []
    for target in ("tpu:v5e:2x4", "gpu:h100:8"):
        layout = layouts.parse({**fields, "target": target}).unwrap()
        sent.append(layout_effects(layout, "train_step", None, quiet).current.wire_total)
    assert sent[0] != sent[1]


def test_the_changes_with_the_largest_bounds_come_first_and_equal_programs_once(monkeypatch):
    partitioned: list[tuple[str, ...]] = []
    original = effects.partitioned_totals

    def counting(lowered, setting, *rest, **named):
        partitioned.append(setting.mesh.axis_names)
        return original(lowered, setting, *rest, **named)

    monkeypatch.setattr(effects, "partitioned_totals", counting)
    effects.forget()
    # A second rule that is equal to the first one changes no array.
    layout = layouts.parse({**MLP, "depth": "40", "rules": "hidden=model,batch=data"}).unwrap()
    without = Change("rule", "Remove hidden", replace(layout, rules=layout.rules[1:]).to_json())
    repeated = replace(layout, rules=(*layout.rules, layout.rules[1]))
    again = Change("rule", "Repeat batch", repeated.to_json())
    monkeypatch.setattr(effects, "changes", lambda _: ([again, without], 0))
    shown: list[list[str]] = []

    def report(_: str, **progress: object) -> None:
        if "found" in progress:
            found = progress["found"]
            assert isinstance(found, dict)
            shown.append([change["label"] for change in found["changes"]])

    result = layout_effects(layout, "train_step", None, report)
    assert shown[0] == [] and shown[1] == ["Remove hidden"]
    assert len(partitioned) == 2
    assert effect(result, "Repeat batch").cost == result.current


def test_a_cancelled_job_partitions_no_further_changes(monkeypatch) -> None:
    partitioned: list[str] = []
    original = effects.partitioned_totals

    def counting(lowered, *rest, **named):
        partitioned.append(lowered.name)
        return original(lowered, *rest, **named)

    class Cancelled(BaseException):
        pass

    def report(_: str, **progress: object) -> None:
        if progress.get("done") == 1:
            raise Cancelled

    monkeypatch.setattr(effects, "partitioned_totals", counting)
    effects.forget()
    layout = layouts.parse({**MLP, "depth": "56"}).unwrap()
    others = [replace(layout, rules=(*layout.rules, (f"other{n}", ("data",)))) for n in range(20)]
    changes = [Change("rule", f"Change {n}", other.to_json()) for n, other in enumerate(others)]
    monkeypatch.setattr(effects, "changes", lambda _: (changes, 0))
    monkeypatch.setattr(effects._Evaluator, "_key", lambda _, layout, removed: (layout.key(), repr(removed)))
    with pytest.raises(Cancelled):
        layout_effects(layout, "train_step", None, report)
    assert len(partitioned) < 10


def test_another_program_and_a_layout_without_rules(effects_of) -> None:
    effects = effects_of({**MLP, "rules": ""}, program="apply")
    assert effects.current.wire_bytes == {}
    assert {change.kind for change in effects.changes} >= {"axis", "constraint", "preset"}
    with pytest.raises(InvalidInput, match="must be one of init, train_step, apply"):
        effects_of(MLP, program="missing")


def test_neither_rules_nor_constraints_need_a_new_trace(monkeypatch) -> None:
    layout = layouts.parse({**MLP, "depth": "48"}).unwrap()
    template.template_of(layout)

    def refusing(layout: Layout):
        raise AssertionError(f"{layout.model} is traced again")

    monkeypatch.setattr(template, "_Programs", refusing)
    effects = layout_effects(layout, "train_step", None, quiet)
    assert {change.kind for change in effects.changes} >= {"rule", "constraint"}
    assert all(change.cost for change in effects.changes)


CONSTRAINED = (
    MLP,
    {"model": "mlp", **MLP},
    {**MLP, "scan": "true"},
    TRANSFORMER,
    {**TRANSFORMER, "layers": "2", "scan": "true", "remat": "full"},
    {**TRANSFORMER, "layers": "2", "remat": "minimal", "tied": "true"},
    {**TRANSFORMER, "layers": "2", "accumulate": "2", "unconstrained": "hidden"},
    {**TRANSFORMER, "model": "moe", "axes": "data,expert", "rules": "expert=expert,batch=data"},
)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("fields", CONSTRAINED)
def test_a_program_without_a_constraint_is_what_jax_traces_without_it(fields: dict[str, str]) -> None:
    """XLA writes the same text for both."""
    layout = layouts.parse(fields).unwrap()
    lowered = next(
        program for program in template.template_of(layout).programs if program.name == "train_step"
    )
    logical = template.template_of(layout).logical
    names = set(layout.entry.constraints) - set(layout.unconstrained)
    assert lowered.constraints_by_name.keys() == names

    for name in sorted(names):
        unconstrained = tuple(n for n in layout.entry.constraints if n == name or n in layout.unconstrained)
        without = replace(layout, unconstrained=unconstrained)
        traced = next(
            program for program in template.template_of(without).programs if program.name == "train_step"
        )
        copies = (lowered.apart(lowered.constraints_by_name[name]), traced.without_names)
        ours, theirs = (
            partitioned_prepared(Setting.of(layout).written(copy, program, logical), layout.devices)
            for copy, program in zip(copies, (lowered, traced), strict=True)
        )
        assert ours == theirs


def test_constraints_of_a_model_without_names_are_removed_by_source_line(effects_of, monkeypatch) -> None:
    fields = {**MLP, "rules": "batch=data,embed=data,hidden=model"}
    named = effects_of(fields, "")
    both = layouts.parse({**fields, "unconstrained": "y,z"}).unwrap()
    removed = effects_of(layouts.to_fields(both), "").current
    changed = {**CATALOGUE, "logical_mlp": replace(CATALOGUE["logical_mlp"], constraints=())}
    monkeypatch.setattr("inspector.layout.layout.CATALOGUE", changed)
    effects = effects_of(fields, "")
    # Flax constrains both parameters of a block, and all activations are constrained in one line.
    lines = Path(logical_mlp.__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "nn.with_logical_constraint(" in text)
    assert len(effects.changes) == 3 and {change.kind for change in effects.changes} == {"constraint"}
    activations = effect(effects, f"Remove constraint logical_mlp.py:{line}")
    assert activations.layout is None and activations.cost == removed
    assert effects.current == named.current != removed
