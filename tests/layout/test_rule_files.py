"""Tests of rules from files of MaxText, T5X and Levanter, against the published rules and mappings."""

from __future__ import annotations

import json

import pytest

from inspector import layout as layouts
from inspector.core import rules
from inspector.core.errors import InvalidInput
from inspector.layout import presets, rule_files
from inspector.media import terminal as command_line
from tests.paths import CASES

FOLDER = CASES / "rules"
needs_cases = pytest.mark.skipif(not FOLDER.exists(), reason="needs the cases of published rules")
TRANSFORMER = layouts.parse({"model": "transformer"}).unwrap()


def plain(found) -> list:
    return [[name, list(axes)] for name, axes in found]


@needs_cases
def test_every_published_list_of_maxtext_is_read() -> None:
    cases = json.loads((FOLDER / "maxtext_logical_axis_rules.json").read_text())
    read = 0
    for case in cases.values():
        if (
            not isinstance(case, dict)
            or not case.get("mesh_axes")
            or "logical_axis_rules" not in case
        ):
            continue
        written = case["logical_axis_rules"]
        lines = [f"mesh_axes: {case['mesh_axes']}", "data: !include other.yml"]
        lines += [f"{key}: {value}" for key, value in case.get("parallelism", {}).items()]
        lines += [f"logical_axis_rules: {json.dumps(written)}  # as in base.yml"]
        (found,) = rule_files.rule_sets("\n".join(lines), "base.yml")
        expected = [
            [name, [axes] if isinstance(axes, str) else list(axes or [])] for name, axes in written
        ]
        assert plain(found.rules) == expected
        assert found.axes == tuple(case["mesh_axes"])
        read += 1
    assert read >= 6


@needs_cases
@pytest.mark.parametrize(
    ("case", "preset"), [("act1_param1", "T5X, 1D"), ("act2_param2", "T5X, 2D")]
)
def test_rules_of_t5x_are_those_of_the_preset(case, preset) -> None:
    written = json.loads((FOLDER / "other_frameworks_rules.json").read_text())["t5x"][case]
    text = "import os\nos.abort()\ndef standard():\n  rules = [\n"
    text += "".join(f"      ({name!r}, {axes!r}),  # )\n" for name, axes in written) + "  ]\n"
    (found,) = rule_files.rule_sets(text, "partitioning.py")
    changed = found.applied_to(TRANSFORMER)
    assert changed.mesh_shape == TRANSFORMER.mesh_shape
    ours = next(one for one in presets.TRANSFORMER_PRESETS if one.name == preset).rules
    # T5X has no name for kv_heads, and shards heads.
    for names in (
        ("vocab", "embed"),
        ("embed", "mlp"),
        ("batch", "seq", "embed"),
        ("heads", "embed"),
    ):
        assert rules.partition_spec(names, changed.rules) == rules.partition_spec(names, ours)


@needs_cases
@pytest.mark.parametrize("name", ["gemma_2b.yaml"])
def test_mappings_of_levanter(name) -> None:
    case = json.loads((FOLDER / "other_frameworks_rules.json").read_text())["levanter"]
    config = case["configs"][name]
    keys = ("tensor_parallel_axes", "fsdp_axis", "batch_axis")
    text = "trainer:\n" + "".join(f"  {key}: {json.dumps(config[key])}\n" for key in keys)
    parameters, compute = rule_files.rule_sets(text, name)
    for found, key in ((parameters, "parameter"), (compute, "compute")):
        expected = {axis: [to] if isinstance(to, str) else to for axis, to in config[key].items()}
        assert {axis: list(to) for axis, to in found.rules} == expected
        assert found.axes == tuple(case["mesh_axes"])
    assert parameters.rules[0][0] == "batch"


MESH = """
mesh_axes: [data, fsdp, tensor, expert]
logical_axis_rules: [[activation_batch, [data, fsdp]], [embed, fsdp], [mlp, [tensor, expert]],
                     [vocab, expert], [unknown, tensor]]
ici_fsdp_parallelism: -1
ici_tensor_parallelism: 4
"""


def test_axes_that_the_mesh_lacks_have_size_1() -> None:
    (found,) = rule_files.rule_sets(MESH, "a.yml")
    opened = found.applied_to(TRANSFORMER)
    assert (opened.mesh_shape, opened.axis_names) == ((2, 4), ("fsdp", "tensor"))
    assert opened.rules == (
        ("batch", ("fsdp",)), ("embed", ("fsdp",)), ("mlp", ("tensor",)), ("vocab", ()),
    )  # fmt: skip
    assert found.unused(opened) == ("unknown",)
    kept = found.applied_to(TRANSFORMER, keep_mesh=True)
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
    "a.py": {
        "rules = [f('x')]": "contains no rules",
        "rules = [": "contains no rules",
        "#" * 1_000_001: "at most 1,000,000",
    },
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
    # In Python, it is taken for a list of something else.
    with pytest.raises(InvalidInput, match="contains no rules"):
        rule_files.rule_sets("rules = [('heads', ('tensor', 'tensor'))]", "rules.py")
