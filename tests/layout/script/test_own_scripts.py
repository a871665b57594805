"""Tests that the exported script of a user's own model places arrays as the inspector does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inspector import layout as layouts
from inspector.compiling.run_layout import run_layout
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.layout.script import script
from inspector.media import terminal as command_line
from inspector.model.built_in import catalogue
from inspector.records import snapshot
from inspector.text.errors import InvalidInput
from inspector.tracing.model.abstract import abstract_state
from inspector.tracing.model.describe import entry_of
from tests.layout.script.comparison import made_by_scripts, refuse_other_arrays
from tests.model.importable import importable

pytestmark = pytest.mark.close_to_jax

SMALL = {"rows": "8", "width": "16", "hidden": "32", "mesh": "2x4", "steps": "2"}
LINEN, NNX = "examples.linen_mlp:build", "examples.nnx_mlp:build"

# Functions with names that the script also uses, a minimal model of mesh axes, and an nnx model whose rules
# are applied as in Linen.
ODD = """
    import jax
    from flax import linen as nn
    from flax import nnx
    from inspector.model import Model

    def jax_of_mesh(*, word: str = "it's\\n"):
        def init(key, batch):
            w = jax.random.normal(key, (8, 4))
            return {"params": {"w": nn.Partitioned(w, names=(("data", "model"), None)), "b": w[0]}}
        def step(state, batch):
            return jax.tree.map(lambda one: one * 0.5, state), batch["x"].sum()
        return Model(init=init, step=step, names="mesh",
                     batch=lambda key: {"x": jax.random.normal(key, (8, 4))})

    def mesh(*, rows: int = 8):
        def init(key, batch):
            return nnx.State({"params": {"w": nnx.Param(batch["x"], out_sharding=("a", "b"))}})
        return Model(init=init, step=lambda state, batch: (state, batch["x"].mean()),
                     batch=lambda key: {"x": jax.random.normal(key, (rows, 8))},
                     apply=lambda state, batch: batch["x"] @ state["params"]["w"],
                     batch_axes={"x": ("a", None)}, output_axes=(None, "b"),
                     rules=[("a", "model"), ("b", "model"), ("b", "data")])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    """Yield a folder with an importable module of models, and unregister its models afterwards."""
    mktemp = tmp_path_factory.mktemp("own")
    with importable(mktemp, "odd_models", ODD):
        yield mktemp


@pytest.fixture(scope="module")
def chosen(folder: Path) -> list[Layout]:
    """Return layouts of the examples, of repeated rules, and of unusual models."""
    found = []
    for name, fields in (
        (LINEN, SMALL | {"optimizer_axes": "data", "donate": "true"}),
        (NNX, SMALL | {"rules": "hidden=data,batch=data,embed=,hidden=model"}),
        ("odd_models:jax_of_mesh", {"mesh": "2x4", "steps": "1"}),
        ("odd_models:mesh", {"mesh": "2x4", "steps": "1"}),
    ):
        if name not in catalogue.CATALOGUE:
            catalogue.register(entry_of(name))
        found.append(layouts.parse({"model": name} | fields).unwrap())
    return found


@pytest.mark.nightly
def test_a_script_gives_exactly_the_layout(folder: Path, chosen: list[Layout]) -> None:
    paths = [folder / f"script_{number}.py" for number in range(len(chosen))]
    for path, layout in zip(paths, chosen, strict=True):
        path.write_text(script(layout), encoding="utf-8")
    result = made_by_scripts(paths)
    for theirs, layout in zip(result, chosen, strict=True):
        refuse_other_arrays(theirs["arrays"], plan(layout, abstract_state(layout)))
    for theirs, layout in zip(result[:2], chosen[:2], strict=True):
        snapshot = run_layout(layout, lambda *_, **__: None)
        refuse_other_arrays(theirs["arrays"], snapshot)
        losses = snapshot.program("train_step").losses[: layout.steps]
        assert np.allclose(theirs["losses"], losses, rtol=1e-4)
    split = [{path: one["spec"] for path, one in theirs["arrays"].items()} for theirs in result]
    assert split[1]["params/up/kernel"] == [None, ["model"]]  # to Linen it would be data
    assert split[2] == {"batch/x": [], "params/b": [], "params/w": [["data", "model"], None]}
    assert split[3]["params/w"] == [["model"], ["data"]]


def test_a_script_imports_the_build_function_with_its_sizes(
    chosen: list[Layout],
) -> None:
    linen, nnx, _, named_mesh = map(script, chosen)
    assert "from examples.linen_mlp import build\n" in linen
    assert 'build(rows=8, width=16, hidden=32, optimizer="adam", learning_rate=0.001)' in linen
    assert "donate_argnums=0" in linen and "donate" not in nnx
    assert "the first rule whose mesh axes are all free" in linen and "the last rule" in nnx
    assert "from odd_models import mesh as own_mesh\n" in named_mesh
    assert "model = own_mesh(rows=8)" in named_mesh


@pytest.mark.parametrize(
    ("name", "part"),
    [("class:build", "class"), ("a.oﬁ:b", "oﬁ"), ("a.b²:c", "b²"), ("a:None", "None")],
)
def test_what_python_cannot_import_by_a_statement_is_refused(
    name: str, part: str, chosen: list[Layout], monkeypatch
) -> None:
    monkeypatch.setitem(catalogue.CATALOGUE, name, replace(chosen[0].entry, name=name))
    with pytest.raises(InvalidInput, match=f"model is {name}, but a script .* and '{part}' is not one"):
        script(replace(chosen[0], model=name))


def test_the_command_line_writes_it_for_who_names_the_model(
    tmp_path: Path, chosen: list[Layout], capsys, monkeypatch
) -> None:
    path, out = tmp_path / "run.json", tmp_path / "train.py"
    snapshot.write(plan(chosen[1], abstract_state(chosen[1])), path)
    assert command_line.main(["code", str(path), "--model", NNX, "-o", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == script(chosen[1])
    out.unlink()
    assert command_line.main(["code", str(path), "--model", LINEN, "-o", str(out)]) == 2
    assert f"--model is '{LINEN}', but the model of {path} is {NNX}" in capsys.readouterr().err
    monkeypatch.delitem(catalogue.CATALOGUE, NNX)
    # The file names code, and does not have it read.
    assert command_line.main(["code", str(path), "-o", str(out)]) == 2
    assert f"your own model needs `--model {NNX}" in capsys.readouterr().err
    assert not out.exists()
