"""Tests of rules from files of MaxText and Levanter, against the published rules and mappings."""

from __future__ import annotations

import json

import pytest

from inspector import layout as layouts
from inspector.layout import rule_files
from inspector.media import terminal as command_line
from inspector.text.errors import InvalidInput
from tests.paths import CASES

FOLDER = CASES / "rules"
needs_cases = pytest.mark.skipif(not FOLDER.exists(), reason="needs the cases of published rules")
TRANSFORMER = layouts.parse({"model": "transformer"}).unwrap()


def plain(found) -> list:
    return [[name, list(axes)] for name, axes in found]


def lists_of_maxtext() -> list[dict]:
    path = FOLDER / "maxtext_logical_axis_rules.json"
    cases = json.loads(path.read_text()).values() if path.is_file() else ()
    return [
        case
        for case in cases
        if isinstance(case, dict) and case.get("mesh_axes") and "logical_axis_rules" in case
    ]


# All forms of a rule: to several axes, to an axis, and to none; twice for a logical axis.
OWN_LIST = {
    "mesh_axes": ["slice", "data", "fsdp", "tensor"],
    "parallelism": {"ici_fsdp_parallelism": -1, "dcn_data_parallelism": 2},
    "logical_axis_rules": [
        ["activation_batch", ["slice", "data", "fsdp"]],
        ["embed", ["fsdp"]],
        ["embed", "tensor"],
        ["mlp", "tensor"],
        ["norm", []],
        ["layers", None],
    ],
}


@pytest.mark.parametrize(
    ("cases", "least"),
    [([OWN_LIST], 1), pytest.param(lists_of_maxtext(), 6, marks=needs_cases)],
    ids=["own", "published"],
)
def test_every_list_of_maxtext_is_read(cases: list[dict], least: int) -> None:
    for case in cases:
        written = case["logical_axis_rules"]
        lines = [f"mesh_axes: {case['mesh_axes']}", "data: !include other.yml"]
        lines += [f"{key}: {value}" for key, value in case.get("parallelism", {}).items()]
        lines += [f"logical_axis_rules: {json.dumps(written)}  # as in base.yml"]
        (rule_set,) = rule_files.rule_sets("\n".join(lines), "base.yml")
        expected = [[name, [axes] if isinstance(axes, str) else list(axes or [])] for name, axes in written]
        assert plain(rule_set.rules) == expected
        assert rule_set.axes == tuple(case["mesh_axes"])
    assert len(cases) >= least


# The compute mapping has the resources, then those of tensor parallelism, then the batch. The parameters have
# it as well, then their own, then those of FSDP. A later axis replaces an earlier one.
OWN_LEVANTER = """
trainer:
  axis_resources: {token: data, mlp: data}
  tensor_parallel_axes: [mlp, heads]
  batch_axis: batch
  parameter_axis_resources: {heads: data, vocab: model}
  fsdp_axis: [embed, vocab]
"""


def test_mappings_of_an_own_file_in_levanters_form() -> None:
    parameters, compute = rule_files.rule_sets(OWN_LEVANTER, "own.yaml")
    expected = {
        "token": ["data"],
        "mlp": ["model"],
        "heads": ["model"],
        "batch": ["replica", "data"],
    }
    assert {axis: list(to) for axis, to in compute.rules} == expected
    expected |= {"heads": ["data"], "vocab": ["data"], "embed": ["data"]}
    assert {axis: list(to) for axis, to in parameters.rules} == expected
    assert parameters.axes == compute.axes == ("replica", "data", "model")


@needs_cases
@pytest.mark.parametrize("name", ["gemma_2b.yaml"])
def test_mappings_of_levanter(name) -> None:
    case = json.loads((FOLDER / "other_frameworks_rules.json").read_text())["levanter"]
    config = case["configs"][name]
    keys = ("tensor_parallel_axes", "fsdp_axis", "batch_axis")
    text = "trainer:\n" + "".join(f"  {key}: {json.dumps(config[key])}\n" for key in keys)
    parameters, compute = rule_files.rule_sets(text, name)
    for rule_set, key in ((parameters, "parameter"), (compute, "compute")):
        expected = {axis: [to] if isinstance(to, str) else to for axis, to in config[key].items()}
        assert {axis: list(to) for axis, to in rule_set.rules} == expected
        assert rule_set.axes == tuple(case["mesh_axes"])
    assert parameters.rules[0][0] == "batch"


MESH = """
mesh_axes: [data, fsdp, tensor, expert]
logical_axis_rules: [[activation_batch, [data, fsdp]], [embed, fsdp], [mlp, [tensor, expert]],
                     [vocab, expert], [unknown, tensor]]
ici_fsdp_parallelism: -1
ici_tensor_parallelism: 4
"""


def test_axes_that_the_mesh_lacks_have_size_1() -> None:
    (rule_set,) = rule_files.rule_sets(MESH, "a.yml")
    opened = rule_set.applied_to(TRANSFORMER)
    assert (opened.mesh_shape, opened.axis_names) == ((2, 4), ("fsdp", "tensor"))
    assert opened.rules == (
        ("batch", ("fsdp",)), ("embed", ("fsdp",)), ("mlp", ("tensor",)), ("vocab", ()),
    )  # fmt: skip
    assert rule_set.unused(opened) == ("unknown",)
    kept = rule_set.applied_to(TRANSFORMER, keep_mesh=True)
    assert kept.axis_names == TRANSFORMER.axis_names


# By name of the file: its text, and words of the error.
INVALID = {
    "a.yml": {
        "a: [": "not valid YAML at line 1",
        "a: !!python/object/apply:os.abort []": "not valid YAML at line 1",
        "a: 1": "contains no rules",
        "logical_axis_rules: [[a, [3]]]": "a.yml: rule 'a' goes to",
        "logical_axis_rules: [['<b>', data]]": "a.yml has the axis '<b>'",
    },
    "a.txt": {"rules = [": "contains no rules", "#" * 1_000_001: "at most 1,000,000"},
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in INVALID.items() for text in texts]
)
def test_errors_of_files(name, text) -> None:
    with pytest.raises(InvalidInput, match=INVALID[name][text]):
        rule_files.rule_sets(text, name)


@pytest.mark.nightly
def test_the_command_line_opens_a_file(tmp_path, capsys) -> None:
    path, out = tmp_path / "base.yml", tmp_path / "out.json"
    path.write_text(MESH)
    arguments = ["inspect", "--model", "transformer", "--target", "plan", "-o", str(out)]
    sizes = ["--set", "layers=1", "--set", "seq=16"]
    assert command_line.main([*arguments, *sizes, "--rules", str(path)]) == 0
    found = json.loads(out.read_text())["layout"]
    assert (found["mesh"], found["axes"]) == ("2x4", ["fsdp", "tensor"])
    assert found["rules"][0] == ["batch", ["fsdp"]]
    assert command_line.main([*arguments, "--rules", str(path), "--rule-set", "x"]) == 2
    assert "--rule-set is 'x', but the file has rules" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["missing.yaml", "rules.py", "./rules", "folder/base.yml"])
def test_a_file_of_rules_that_does_not_exist_is_named(name, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_line.main(["inspect", "--target", "plan", "--rules", name]) == 2
    assert f"--rules is {name!r}, but must be" in capsys.readouterr().err
    assert not any(map(rule_files.is_file_name, ("", "batch=data", "batch.data~hidden.model")))


def test_a_rule_with_one_mesh_axis_twice_is_refused() -> None:
    """JAX refuses such a PartitionSpec, and a layout with such a rule could not be read back."""
    text = "logical_axis_rules: [['heads', ['tensor', 'tensor']]]"
    with pytest.raises(InvalidInput, match=r"heads.*only once"):
        rule_files.rule_sets(text, "base.yml")
