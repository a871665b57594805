"""The rules of real projects give the shardings that those projects have published."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from inspector.records.snapshot import Array, Mesh, MeshAxis, Spec
from inspector.sharding import rules
from inspector.sharding.rules import Rule
from inspector.sharding.rules.entries import follows, ledger_of, without_size_1
from inspector.sharding.rules.written import parse
from tests.paths import CASES
from tests.readers import own_goldens

GOLDENS = CASES / "maxtext_goldens"

pytestmark = pytest.mark.close_to_jax
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="needs ../shared/cases")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def rules_of(folder: Path) -> tuple[Rule, ...]:
    """The rules that the golden's folder names: `rule_default`, `rule_pure-fsdp`, `rule_ep-as-cp_ici_…`."""
    if folder in own_goldens.folders():
        _, own = own_goldens.RULES[folder.name]
        return parse(json.dumps(own))
    published = read(CASES / "rules" / "maxtext_logical_axis_rules.json")
    name = folder.name.removeprefix("rule_").partition("_ici")[0]
    key = "2026-08" if name == "default" else f"src/maxtext/configs/custom_mesh_and_rule/{name}.yml"
    return parse(json.dumps(published[key]["logical_axis_rules"]))


def normal(spec: Any, rank: int) -> Spec:
    entries = [None if not one else (one,) if isinstance(one, str) else tuple(one) for one in spec]
    return (*entries, *[None] * (rank - len(entries)))


def dumped(text: str) -> list[Any]:
    """`P(('fsdp', 'expert'), None)` as a list."""
    return list(ast.literal_eval(f"[{text.strip().removeprefix('P(').removesuffix(')')}]"))


@pytest.mark.parametrize(
    ("folders", "least"),
    [
        (own_goldens.folders(), (104, 24)),
        pytest.param(
            sorted(path.parent for path in GOLDENS.rglob("named_shardings.json")),
            (630, 100),
            marks=needs_cases,
        ),
    ],
    ids=["own", "MaxText's"],
)
def test_every_spec_of_the_goldens_follows_from_its_rules(
    folders: Sequence[Path], least: tuple[int, int]
) -> None:
    parameters = activations = 0
    for path in (folder / "named_shardings.json" for folder in folders):
        rule_list = rules_of(path.parent)
        logical = read(path.with_name("logical_shardings.json"))
        for name, golden in read(path).items():
            sizes, names = golden["mesh"]["shape"], logical[name]["partition_spec"]
            axes = tuple(MeshAxis(axis, size) for axis, size in sizes.items())
            count = 1
            for axis in axes:
                count *= axis.size
            mesh = Mesh(axes, tuple(range(count)))
            shape = tuple(golden["shape"])
            spec = normal(golden["partition_spec"], len(shape))
            array = Array(name, "params", shape, "bfloat16", tuple(names), spec)
            ledger = ledger_of(array, mesh, rule_list)
            assert ledger is not None and ledger.follows is True, name
            parameters += 1
        for one in read(path.with_name("input_shardings.json"))["Activation Sharding Dump"]:
            for name, golden in one.items():
                if golden["logic_axes"] == "Unknown":
                    continue
                names = ast.literal_eval(golden["logic_axes"])
                spec = normal(dumped(golden["PartitionSpec"]), len(names))
                result = rules.partition_spec(names, rule_list)
                assert without_size_1(result, mesh) == without_size_1(spec, mesh), name
                activations += 1
    assert parameters >= least[0] and activations >= least[1]


@needs_cases
def test_t5x_and_haliax_expect_what_follows_here() -> None:
    others = read(CASES / "rules" / "other_frameworks_rules.json")
    # t5x's own test: (vocab, embed) → P(model, None), (embed, mlp) → P(None, model).
    rule_list = (("batch", ("data",)), ("embed", ()), ("vocab", ("model",)), ("mlp", ("model",)))
    assert rules.partition_spec(("vocab", "embed"), rule_list) == (("model",), None)
    assert rules.partition_spec(("embed", "mlp"), rule_list) == (None, ("model",))
    # Its four standard sets, all of which name mesh axes that its mesh has.
    for name in ("act1_param1", "act2_param1", "act1_param2", "act2_param2"):
        every = parse(json.dumps(others["t5x"][name]))
        assert {axis for _, axes in every for axis in axes} <= set(others["t5x"]["mesh_axes"])
    # The comment in t5x: with 2-D parameters, embed is sharded over `model` if it is free, else `data`.
    every = parse(json.dumps(others["t5x"]["act2_param2"]))
    assert rules.partition_spec(("embed", "mlp"), every) == (("data",), ("model",))
    assert rules.partition_spec(("embed",), every) == (("model",),)
    # haliax maps each name by a table without order, which is what both readings do without conflicts.
    haliax = others["haliax_tests"]
    table = tuple((name, (axis,)) for name, axis in haliax["resource_map"].items())
    for case in haliax["cases"]:
        if "axes" in case:
            expected = normal(case["expected"], len(case["axes"]))
            assert rules.partition_spec(case["axes"], table) == expected


def test_a_spec_that_is_not_what_the_rules_say_does_not_follow() -> None:
    mesh = Mesh((MeshAxis("data", 2), MeshAxis("one", 1)), (0, 1))
    array = Array("w", "params", (4, 4), "float32", ("a", "b"), (("one",), None))
    assert follows(array, (None, None), mesh) is True
    assert follows(array, (("data",), None), mesh) is False
    assert follows(array, None, mesh) is None
